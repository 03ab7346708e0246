//! The parts of an open store: its data, and appends to it.
//!
//! Code that reads, repairs or flushes takes the parts as an argument. The services of a store
//! ([`super::services`]) are not parts: their threads hold the parts, and the parts wake threads
//! only through [`Conditions`].

pub mod durable;
pub mod given;
pub mod topics;
pub mod write_out;

use super::dispatch::Dispatcher;
use super::index::Index;
use super::log::Log;
use super::log::append::{Appender, Tail};
use super::log::atomic;
use super::queues::Queues;
use super::tables::checkpoint::Checkpoint;
use super::tables::topics::TopicTable;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::engine::directory::catalogue::Listed;
use crate::engine::report::Report;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::{Condition, notify_all};
use crate::engine::service::health::Health;
use crate::engine::{Appended, Topic, Topics};
use crate::error::{Error, Result};
use crate::mapped::{Allocator, TransientPool};
use crate::meter::FlushMeter;
use crate::record::{Batch, Form, RecordStyle};
use crate::region::guard;
use crate::sync::{Mutex, RwLock, TimedMutexGuard};
use crossbeam_utils::CachePadded;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// Senders help dispatch when more than this many bytes are not dispatched.
pub const BACKLOG_MAX: u64 = 256 << 20;
/// An append of at least this many bytes is long: other senders sleep until it has ended.
const LONG_LEN: usize = 256 << 10;

/// How records are made and appended.
#[derive(Clone, Copy, Debug)]
pub struct AppendRules {
    /// What all records have in common.
    pub style: RecordStyle,
    /// Number of queues of a topic that nobody created explicitly.
    pub default_queues: u32,
    /// How long an append waits for the append lock.
    pub busy_timeout: Duration,
    /// Whether an append fails if the transient pool is full.
    pub pool_fail_fast: bool,
}

/// Wake threads that sleep until there is work or news.
#[derive(Debug, Default)]
pub struct Conditions {
    /// Notified when there is something to dispatch.
    pub work: Condition,
    /// Notified when a buffer of the transient pool is full.
    pub full: Condition,
    /// Notified when readers can see more.
    pub news: Condition,
}

/// What the flushes of a store share.
#[derive(Debug)]
pub struct Flushing {
    /// Held while the log is synced.
    pub log: Mutex<()>,
    /// Held during a full pass.
    pub full_pass: Mutex<()>,
    /// Queues and index entries from this position on were taken over in the page cache of a
    /// process that died. A failed sync of that process may have left pages clean that are missing
    /// on the disk.
    pub in_doubt: Mutex<Option<u64>>,
    /// The file `checkpoint`; `None` if another process writes the store.
    pub checkpoint: Option<Checkpoint>,
    /// How long flushes take.
    pub meter: FlushMeter,
}

/// How far this process has followed the writer in another process.
#[derive(Debug)]
pub struct Following {
    /// Held while this process opens the writer's new files.
    pub lock: Mutex<()>,
    /// The writer's generation, as last seen.
    pub generation: AtomicU32,
    /// Which queues are known.
    pub listed: Listed,
}

/// The parts of an open store.
#[derive(Debug)]
pub struct Parts {
    /// The store's directory.
    pub root: PathBuf,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Whether the store may be written; closed under the append lock.
    pub health: Health,
    /// The log.
    pub log: Arc<Log>,
    /// The topics.
    pub topics: Arc<Topics>,
    /// The queues.
    pub queues: Arc<Queues>,
    /// The index, if keys are indexed.
    pub index: Option<Arc<Index>>,
    /// Held while keys that the index lacks are put again.
    pub rebuilding: RwLock<()>,
    /// Held while retention raises the first offsets of the queues and the first position of the
    /// log.
    pub raising: Mutex<()>,
    /// Builds queues and index.
    pub dispatcher: Dispatcher,
    /// Creates files ahead of use.
    pub allocator: Allocator,
    /// How records are made and appended.
    pub append_rules: AppendRules,
    /// The append lock. It shares no cache line with data that other threads write.
    pub tail: CachePadded<AppendLock<Tail>>,
    /// The buffers that appends go to first, if the store has them.
    pub pool: Option<TransientPool>,
    /// `topics.json`.
    pub table: Mutex<TopicTable>,
    /// Whether a topic has changed since the table was last written.
    pub table_dirty: AtomicBool,
    /// Known damage, and warnings.
    pub report: Arc<Report>,
    /// State that all flushes share.
    pub flushing: Flushing,
    /// How far this process has followed another writer.
    pub following: Following,
    /// Wake sleeping threads.
    pub conditions: Conditions,
}

impl Parts {
    /// Whether this process writes the store.
    #[inline]
    pub fn is_written(&self) -> bool {
        self.flushing.checkpoint.is_some()
    }

    /// The form of its records.
    #[inline]
    pub fn form(&self) -> Form {
        Form::RocketMq(self.append_rules.style)
    }

    /// [`Tail::append`] under the append lock. Fails if the store is closed or has failed.
    pub fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        clock_ms: i64,
        appended: &mut Appended,
    ) -> Result<()> {
        // The clock of a batch may have been read long ago, before its first row was encoded.
        let began_ms = match batches {
            [(_, batch)] if batch.len() == 1 => clock_ms,
            _ => self.clock.coarse_ms(),
        };
        let len: usize = batches.iter().map(|(_, batch)| batch.encoded_len()).sum();
        // Declared before the lock, so that it is dropped after it.
        let _long;
        let mut tail = self.writable_tail(began_ms)?;
        if len >= LONG_LEN {
            _long = self.tail.begin_long();
        }
        let done = tail.append(&self.appender(), batches, clock_ms, appended);
        done.inspect_err(|error| self.fail_of_fault(error))?;
        self.tail.show_counters(tail.counters());
        self.check_marks()
    }

    /// [`Parts::append`] of rows; after a crash only some may exist.
    #[inline]
    pub fn append_rows(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        appended: &mut Appended,
    ) -> Result<()> {
        let clock_ms = newest_clock(batches);
        self.append(batches, clock_ms, appended)
    }

    /// Appends batches, possibly of several topics, so that recovery finds all of them or none.
    /// Fills `appended`, which must be empty, with the places of the rows. Records that mark the
    /// begin and the end are added; see [`atomic`].
    pub fn append_whole(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        appended: &mut Appended,
    ) -> Result<()> {
        let markers = self.topic_for_append(atomic::TOPIC);
        let clock_ms = newest_clock(batches);
        atomic::append(&markers, self.form(), batches, appended, |all, appended| {
            self.append(all, clock_ms, appended)
        })
    }

    /// Seals the log file in use; see [`Tail::seal`].
    pub fn seal(&self, start: Option<u64>) -> Result<Option<u64>> {
        let mut tail = self.writable_tail(self.clock.coarse_ms())?;
        let sealed = tail.seal(&self.appender(), start);
        let end = sealed.inspect_err(|error| self.fail_of_fault(error))?;
        self.check_marks()?;
        Ok(end)
    }

    /// Locks the tail of a store that may be written.
    #[inline]
    fn writable_tail(&self, began_ms: i64) -> Result<TimedMutexGuard<'_, Tail>> {
        guard::renew_at(began_ms);
        let tail = self
            .tail
            .acquire(began_ms, self.append_rules.busy_timeout)?;
        if self.health.is_closed() {
            return Err(Error::closed(&self.root));
        }
        self.health.check()?;
        Ok(tail)
    }

    #[inline]
    fn appender(&self) -> Appender<'_> {
        Appender {
            log: &self.log,
            allocator: &self.allocator,
            disk: &self.disk,
            pool: self.pool.as_ref(),
            pool_fail_fast: self.append_rules.pool_fail_fast,
        }
    }

    /// Wakes the threads that an append up to `end` concerns, and helps dispatch if it lags far.
    #[inline]
    pub fn announce(&self, end: u64) {
        self.tell_readers();
        // In a synchronous store the threads that wait for the disk write out.
        if !self.log.sync && self.pool.as_ref().is_some_and(TransientPool::has_full) {
            self.conditions.full.notify();
        }
        if end.saturating_sub(self.dispatcher.dispatched()) > BACKLOG_MAX {
            // An append does not fail because dispatch fails. The dispatch thread meets the failure
            // again and reports it.
            let _ = self.dispatcher.try_step();
        }
    }

    /// Wakes the readers: the readable end has moved, or will once the messages are durable.
    #[inline]
    pub(super) fn tell_readers(&self) {
        if self.dispatcher.is_followed() {
            // Readers in other processes see dispatched messages only, and the dispatch thread
            // rests between its steps, so the sender dispatches. The dispatch thread meets a
            // failure again and reports it.
            let _ = self.dispatcher.try_step();
        }
        notify_all(&[&self.conditions.work, &self.conditions.news]);
    }

    /// Wakes all sleeping threads because the store closes.
    pub fn wake_all(&self) {
        notify_all(&[
            &self.conditions.work,
            &self.conditions.full,
            &self.conditions.news,
        ]);
    }

    /// Ends writing for good.
    pub fn fail(&self, error: &Error) {
        self.health.fail(error, || {
            self.log.state.doubt();
            if self.log.state.is_shared() {
                self.log.state.set_failed(&error.to_string());
            }
        });
        self.conditions.news.notify();
    }

    /// Ends writing for good. Returns the error for callers whose messages are in the log.
    #[cold]
    pub(super) fn fail_appended(&self, error: &Error) -> Error {
        self.fail(error);
        Error::Failed {
            reason: error.to_string(),
            appended: true,
        }
    }

    /// Ends writing if a store to a map has faulted: the contents of the map are unknown.
    #[cold]
    fn fail_of_fault(&self, error: &Error) {
        if error.is_fault() {
            self.fail(error);
        }
    }

    /// Ends writing if the marks could not be stored.
    #[inline]
    fn check_marks(&self) -> Result<()> {
        let checked = self.log.state.check();
        checked.map_err(|error| self.fail_appended(&error))
    }
}

/// The newest clock of the batches.
#[inline]
fn newest_clock(batches: &[(&Topic, &mut Batch)]) -> i64 {
    let clocks = batches.iter().map(|(_, batch)| batch.clock_ms());
    clocks.max().unwrap_or_default()
}
