//! What the engine and its threads share: the parts of an open store, its flush and its checkpoint.

use super::append::{Appender, Tail};
use super::append_lock::AppendLock;
use super::bell::{Bell, ring_all};
use super::checkpoint::{Checkpoint, Stamp};
use super::dispatch::Dispatcher;
use super::flush::{FlushRules, WriteOutRules};
use super::group_commit::GroupCommit;
use super::health::Health;
use super::index::Index;
use super::intake::Intake;
use super::log::Log;
use super::queues::Queues;
use super::report::Report;
use super::retention::Retention;
use super::roll::Rolling;
use super::state::{Mark, Word};
use super::tables::Inventory;
use super::topic_table::TopicTable;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::engine::{Appended, Topic, Topics};
use crate::error::{Error, Result};
use crate::machine::Drive;
use crate::mapped::{Allocator, PAGE, TransientPool, guard};
use crate::meter::FlushMeter;
use crate::plant::{Bug, planted};
use crate::record::{Batch, RecordStyle};
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Senders help dispatch while it is further behind than this.
pub const BACKLOG_MAX: u64 = 256 << 20;
/// From this many bytes on an append is long: it takes some hundred microseconds.
const LONG_LEN: usize = 256 << 10;

/// How records are made and appended.
#[derive(Clone, Copy, Debug)]
pub struct AppendRules {
    /// What they share.
    pub style: RecordStyle,
    /// Queues of a topic that nobody created.
    pub default_queues: u32,
    /// How long an append waits for the append lock.
    pub busy_timeout: Duration,
    /// Whether each message gets a unique id.
    pub unique_ids: bool,
}

/// The parts of a store that is open.
#[derive(Debug)]
pub struct Shared {
    /// The store's directory.
    pub root: PathBuf,
    /// Who runs the services.
    pub drive: Drive,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The log.
    pub log: Arc<Log>,
    /// The topics.
    pub topics: Arc<Topics>,
    /// The queues.
    pub queues: Arc<Queues>,
    /// The index, where keys are indexed.
    pub index: Option<Arc<Index>>,
    /// Position from which on queues and index came with the page cache of a process that died: a
    /// sync of its may have failed, and left pages clean that are missing on the disk.
    pub in_doubt: Mutex<Option<u64>>,
    /// Builds queues and index.
    pub dispatcher: Dispatcher,
    /// Makes files ahead of use.
    pub allocator: Allocator,
    /// How records are made and appended.
    pub append_rules: AppendRules,
    /// Whether the store may be written; closed under the append lock.
    pub health: Health,
    /// Held while the index lacks keys that are put again.
    pub rebuilding: RwLock<()>,
    /// Takes up what other processes have staged.
    pub intake: Intake,
    /// The append lock. Nothing that another thread writes shares its cache lines.
    pub tail: CachePadded<AppendLock<Tail>>,
    /// `topics.json`.
    pub table: Mutex<TopicTable>,
    /// Whether the table is behind the topics.
    pub table_dirty: AtomicBool,
    /// Damage.
    pub report: Arc<Report>,
    /// Where appends go first, in a store that has one.
    pub pool: Option<TransientPool>,
    /// When it is written out.
    pub write_out_rules: WriteOutRules,
    /// Takes old files away.
    pub retention: Retention,
    /// When the file that is written is sealed.
    pub rolling: Rolling,
    /// Senders that wait for a sync.
    pub group: GroupCommit,
    /// How long flushes take.
    pub flushes: FlushMeter,
    /// Rung when there is something to dispatch.
    pub work: Bell,
    /// Rung when a buffer of the transient pool is full.
    pub full: Bell,
    /// Rung when readers have something new.
    pub news: Bell,
    /// Rung when the threads have to end.
    pub stop_bell: Bell,
    /// When the log is flushed.
    pub flush_rules: FlushRules,
    /// The file `checkpoint`, where the store is written.
    pub checkpoint: Option<Checkpoint>,
    /// Held while the files of another process are joined.
    pub(super) follow_lock: Mutex<()>,
    /// The exchanges of the process that is followed, as of the last look.
    pub(super) exchanges: AtomicU32,
    pub(super) stop: AtomicBool,
    pub(super) flush_lock: Mutex<()>,
    pub(super) settle_lock: Mutex<()>,
}

/// What [`Shared::flush_all`] has made durable.
#[derive(Debug)]
pub struct Flushed<'a> {
    /// The bounds of queues and index files.
    pub inventory: Inventory,
    _alone: MutexGuard<'a, ()>,
}

impl Shared {
    /// The topic, created with the default number of queues where it is not there yet.
    pub fn topic_for_append(&self, name: &str) -> Arc<Topic> {
        let queues = crate::engine::topic::initial_queues(name, self.append_rules.default_queues);
        let (topic, added) = self.topics.get_or_add(name, queues);
        if added {
            self.table_dirty.store(true, Ordering::Release);
        }
        topic
    }

    /// [`Tail::append`] under the append lock, while the store is open and has not failed.
    pub fn append(
        &self,
        parts: &mut [(&Topic, &mut Batch)],
        clock_ms: i64,
        appended: &mut Appended,
    ) -> Result<()> {
        // The clock of a batch may have been read long ago, before its first row was encoded.
        let began_ms = match parts {
            [(_, batch)] if batch.rows().len() == 1 => clock_ms,
            _ => self.clock.coarse_ms(),
        };
        let len: usize = parts.iter().map(|(_, batch)| batch.encoded_len()).sum();
        // Before the lock, so that it is dropped after it.
        let _long;
        let mut tail = self.writable_tail(began_ms)?;
        if len >= LONG_LEN {
            _long = self.tail.begin_long();
        }
        let done = tail.append(&self.appender(), parts, clock_ms, appended);
        done.inspect_err(|error| self.fail_of_fault(error))?;
        self.tail.show_counters(tail.counters());
        self.check_marks()
    }

    /// Seals the log file that is written; see [`Tail::seal`].
    pub fn seal(&self, start: Option<u64>) -> Result<Option<u64>> {
        let mut tail = self.writable_tail(self.clock.coarse_ms())?;
        let sealed = tail.seal(&self.appender(), start);
        let end = sealed.inspect_err(|error| self.fail_of_fault(error))?;
        self.check_marks()?;
        Ok(end)
    }

    /// The tail, locked, of a store that may be written.
    #[inline]
    fn writable_tail(&self, began_ms: i64) -> Result<MutexGuard<'_, Tail>> {
        guard::renew_at(began_ms);
        let tail = self
            .tail
            .acquire(began_ms, self.append_rules.busy_timeout)?;
        if self.health.is_closed() {
            return Err(Error::Closed);
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
            pool_fail_fast: self.write_out_rules.fail_fast,
        }
    }

    /// Wakes who has something to do with what was appended up to `end`, and helps dispatch where
    /// it is far behind.
    #[inline]
    pub fn announce(&self, end: u64) {
        ring_all(&[&self.work, &self.news]);
        // In a synchronous store those who wait for the disk write out.
        if !self.log.sync && self.pool.as_ref().is_some_and(TransientPool::has_full) {
            self.full.ring();
        }
        if end.saturating_sub(self.dispatcher.dispatched()) > BACKLOG_MAX {
            // A failure to dispatch is not one to append; the thread meets it again and reports it.
            let _ = self.dispatcher.try_step();
        }
    }

    /// Whether the threads have to end.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Tells the threads to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.work.ring();
        self.stop_bell.ring();
        self.full.ring();
        self.news.ring();
        self.log.state.ring(Word::Pending);
    }

    /// Ends the writing for good.
    pub fn fail(&self, error: &Error) {
        self.health.fail(error, || self.log.state.doubt());
        self.news.ring();
    }

    /// Ends the writing for good; returns what those are told whose messages are in the log.
    #[cold]
    fn fail_appended(&self, error: &Error) -> Error {
        self.fail(error);
        Error::Failed {
            reason: error.to_string(),
            appended: true,
        }
    }

    /// Ends the writing where a store to a map has faulted: what the map holds is not known.
    #[cold]
    fn fail_of_fault(&self, error: &Error) {
        if error.is_fault() {
            self.fail(error);
        }
    }

    /// Ends the writing where the marks, of this process's appends too, could not be stored.
    #[inline]
    fn check_marks(&self) -> Result<()> {
        let checked = self.log.state.check();
        checked.map_err(|error| self.fail_appended(&error))
    }

    /// End of what was appended, readable or not.
    pub fn wrote(&self) -> u64 {
        self.pool
            .as_ref()
            .map_or_else(|| self.log.published(), TransientPool::wrote)
    }

    /// Writes out what is in the transient pool, so that readers see it.
    pub fn write_out(&self) -> Result<()> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        if pool.wrote() <= self.log.published() {
            return Ok(());
        }
        self.health.check_appended()?;
        let written = pool.write_out(|end| self.log.publish(end));
        written.map_err(|error| self.fail_appended(&error))?;
        ring_all(&[&self.work, &self.news]);
        Ok(())
    }

    /// Makes the log durable up to `position`: one sync of what is not durable yet, shared by all
    /// who wait for it. A failure is final: the kernel may have marked the pages clean, so a second
    /// try would report what is not true.
    pub fn flush_to(&self, position: u64) -> Result<()> {
        if self.log.state.get(Mark::Durable) >= position {
            return Ok(());
        }
        // Read in this order: the record of that time is published.
        let stored_ms = self.log.stored_ms.load(Ordering::Acquire);
        self.write_out()?;
        let _alone = self.flush_lock.lock();
        let durable = self.log.state.get(Mark::Durable);
        if durable >= position {
            return Ok(());
        }
        self.health.check_appended()?;
        let published = self.log.published();
        let began = Instant::now();
        let flushed = self.sync_log(durable, published);
        self.flushes
            .flushed(published.saturating_sub(durable), began.elapsed());
        flushed.map_err(|error| self.fail_appended(&error))?;
        self.log.state.set(Mark::Durable, published);
        self.stamp(&[Stamp::Log], stored_ms);
        if self.log.sync {
            ring_all(&[&self.work, &self.news]);
        }
        Ok(())
    }

    /// Syncs `durable..published` of the log; a mark that says so moves behind it alone.
    fn sync_log(&self, durable: u64, published: u64) -> Result<()> {
        if planted(Bug::ProgressAhead) {
            self.log.state.set(Mark::Durable, published);
        }
        let until = match planted(Bug::SyncPopulated) {
            true => published + PAGE as u64,
            false => published,
        };
        let synced = self.log.files.flush(durable, until);
        match planted(Bug::RetryFailedSync) && synced.is_err() {
            true => self.log.files.flush(durable, until),
            false => synced,
        }
    }

    fn stamp(&self, stamps: &[Stamp], ms: i64) {
        if let Some(checkpoint) = self.checkpoint.as_ref().filter(|_| ms > 0) {
            let set = |stamp: &Stamp| checkpoint.set(*stamp, ms);
            if let Err(error) = stamps.iter().try_for_each(set) {
                self.fail(&error);
            }
        }
    }

    /// Writes the table of topics where it is behind them.
    pub fn save_table(&self) -> Result<()> {
        if !self.table_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let mut table = self.table.lock();
        table.update(&self.topics, self.clock.now_ms());
        table.save(&*self.disk).inspect_err(|_| {
            self.table_dirty.store(true, Ordering::Release);
        })
    }

    /// A full pass: log, queues, index and tables durable, then the marks that say so.
    pub fn settle(&self) -> Result<()> {
        self.health.check()?;
        self.save_table()?;
        if self.dispatcher.dispatched() <= self.log.state.get(Mark::Settled) {
            return Ok(());
        }
        let flushed = self.flush_all()?;
        self.save_inventory(flushed)
    }

    /// Says that no part of the queues is known to be durable, for they are changed where they
    /// were: who opens the store after a death makes all of it durable again. There is no full
    /// pass, which would say otherwise, while the guard lives.
    pub fn unsettle(&self) -> MutexGuard<'_, ()> {
        let alone = self.settle_lock.lock();
        let min = self.log.min_position();
        self.log.state.set(Mark::Settled, min);
        alone
    }

    /// Makes log, queues and index durable as far as they are dispatched; what they hold then, at
    /// least. Nobody else does so until that is written down or let go of: what one has begun to
    /// flush looks clean to the other.
    pub fn flush_all(&self) -> Result<Flushed<'_>> {
        let alone = self.settle_lock.lock();
        // Taken before the flush: what it tells of is durable when it is written.
        let (inventory, dispatched_ms) = self.inventory()?;
        // What is in the queues is published, if not yet dispatched as a whole.
        self.flush_to(self.log.readable_end())?;
        let flushed = self
            .dirty_what_is_in_doubt()
            .and_then(|()| self.queues.flush())
            .and_then(|()| self.index.as_ref().map_or(Ok(()), |index| index.flush()));
        if let Err(error) = flushed {
            // What passes has synced nothing that it does not sync again.
            if error.ends_writing() {
                self.fail(&error);
            }
            return Err(error);
        }
        self.stamp(&[Stamp::Queues, Stamp::Index], dispatched_ms);
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.sync(&*self.disk)?;
        }
        Ok(Flushed {
            inventory,
            _alone: alone,
        })
    }

    /// Has the next sync of queues and index write what an earlier process may have failed to.
    fn dirty_what_is_in_doubt(&self) -> Result<()> {
        let mut in_doubt = self.in_doubt.lock();
        let Some(position) = *in_doubt else {
            return Ok(());
        };
        for (_, queue) in self.queues.all(&self.topics) {
            queue.dirty_from(position)?;
            self.queues.limit_maps();
        }
        if let Some(index) = &self.index {
            index.dirty_from(position)?;
        }
        *in_doubt = None;
        Ok(())
    }

    /// Writes down what [`Shared::flush_all`] has made durable, and moves the mark that says so.
    pub fn save_inventory(&self, flushed: Flushed<'_>) -> Result<()> {
        // A failure, of a repair perhaps, may have left less than the inventory tells of.
        self.health.check()?;
        let inventory = &flushed.inventory;
        inventory.save(&self.disk, &self.root)?;
        self.log.state.set(Mark::Settled, inventory.position);
        self.health.unless_failed(|| self.log.state.vouch());
        self.log.state.sync(&*self.disk)
    }

    /// The bounds of all queues and the index files, and the store time of the last record that is
    /// in them. Dispatch stands still meanwhile, so they are those of one position of the log.
    pub fn inventory(&self) -> Result<(Inventory, i64)> {
        self.dispatcher.hold(|position, stored_ms| {
            let queues = self.queues.all(&self.topics).into_iter();
            let listing = self.index.as_ref().map(|index| index.listing());
            let inventory = Inventory {
                position,
                queues: queues
                    .map(|(topic, queue)| {
                        (topic.name.to_string(), queue.id, queue.min(), queue.max())
                    })
                    .collect(),
                index: listing.transpose()?,
            };
            Ok((inventory, stored_ms))
        })
    }

    /// Writes what a clean close leaves: everything durable, inventory, checkpoint, then the flag,
    /// and only then the file `abort` goes.
    pub fn settle_for_close(&self, last_store_ms: i64) -> Result<()> {
        self.write_out()?;
        let end = self.log.published();
        // A synchronous store dispatches only what is durable, so the flush comes first.
        self.flush_to(end)?;
        self.pool.iter().for_each(TransientPool::let_go);
        self.dispatcher.catch_up(end)?;
        self.table_dirty.store(true, Ordering::Release);
        self.save_table()?;
        let flushed = self.flush_all()?;
        self.save_inventory(flushed)?;
        self.stamp(&[Stamp::Log, Stamp::Queues, Stamp::Index], last_store_ms);
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.sync(&*self.disk)?;
        }
        self.log.state.end_epoch(true);
        self.log.state.sync(&*self.disk)?;
        super::running::take_away(&*self.disk, &self.root)
    }

    /// Takes what was faulted in behind the end of the log out of the page cache. It is zeros,
    /// which the kernel would write, and which every opening would look through for records.
    pub fn drop_unused_pages(&self) {
        if let Some((file, range)) = self.tail.lock().unused_pages() {
            let len = range.end - range.start;
            self.disk.drop_zeros(file.path(), range.start, len);
        }
    }
}
