//! What the engine and its threads share: the parts of an open store, its flush and its checkpoint.

use super::append::Tail;
use super::dispatch::Dispatcher;
use super::group_commit::GroupCommit;
use super::index::Index;
use super::log::Log;
use super::queues::Queues;
use super::report::Report;
use super::service::Bell;
use super::state::{Mark, StatePage};
use super::tables::{Checkpoint, Inventory, TopicTable};
use crate::disk::Disk;
use crate::engine::Topics;
use crate::error::{Error, Result};
use crate::mapped::{Allocator, Preparation};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The parts of a store that is open.
#[derive(Debug)]
pub struct Shared {
    /// The store's directory.
    pub root: PathBuf,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The log.
    pub log: Arc<Log>,
    /// The topics.
    pub topics: Arc<Topics>,
    /// The queues.
    pub queues: Arc<Queues>,
    /// The index, where keys are indexed.
    pub index: Option<Arc<Index>>,
    /// Builds queues and index.
    pub dispatcher: Dispatcher,
    /// Makes files ahead of use.
    pub allocator: Allocator,
    /// How new log files are prepared.
    pub preparation: Preparation,
    /// The append lock. Nothing that another thread writes shares its cache lines.
    pub tail: CachePadded<Mutex<Tail>>,
    /// `topics.json`.
    pub table: Mutex<TopicTable>,
    /// Whether the table is behind the topics.
    pub table_dirty: AtomicBool,
    /// The page of the process that writes, where this one follows it.
    pub source: Option<Arc<StatePage>>,
    /// Damage.
    pub report: Arc<Report>,
    /// Senders that wait for a sync.
    pub group: GroupCommit,
    /// Rung when there is something to dispatch.
    pub work: Bell,
    /// Rung when readers have something new.
    pub news: Bell,
    /// Rung when the threads have to end.
    pub stop_bell: Bell,
    /// Between two flushes.
    pub flush_interval: Duration,
    /// Between two passes over queues, index and checkpoint.
    pub settle_interval: Duration,
    /// Held while the files of another process are joined.
    pub(super) follow_lock: Mutex<()>,
    pub(super) stop: AtomicBool,
    pub(super) flush_lock: Mutex<()>,
    pub(super) failure: Mutex<Option<String>>,
    pub(super) failed: AtomicBool,
}

impl Shared {
    /// Whether the threads have to end.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Tells the threads to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.work.ring();
        self.stop_bell.ring();
        self.news.ring();
    }

    /// Ends the writing for good.
    pub fn fail(&self, error: &Error) {
        self.failure.lock().get_or_insert_with(|| error.to_string());
        self.failed.store(true, Ordering::Release);
        self.news.ring();
    }

    /// [`Error::Failed`] where the writing has ended.
    #[inline]
    pub fn check_failed(&self, appended: bool) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.failure.lock().clone().unwrap_or_default();
        Err(Error::Failed { reason, appended })
    }

    /// Makes the log durable up to `position`: one sync of what is not durable yet, shared by all
    /// who wait for it. A failure is final: the kernel may have marked the pages clean, so a second
    /// try would report what is not true.
    pub fn flush_to(&self, position: u64) -> Result<()> {
        if self.log.state.get(Mark::Durable) >= position {
            return Ok(());
        }
        let _alone = self.flush_lock.lock();
        let durable = self.log.state.get(Mark::Durable);
        if durable >= position {
            return Ok(());
        }
        self.check_failed(true)?;
        let published = self.log.published();
        if let Err(error) = self.log.files.flush(durable, published) {
            self.fail(&error);
            return Err(Error::Failed {
                reason: error.to_string(),
                appended: true,
            });
        }
        self.log.state.set(Mark::Durable, published);
        if self.log.sync {
            super::service::ring_all(&[&self.work, &self.news]);
        }
        Ok(())
    }

    /// Writes the table of topics where it is behind them.
    pub fn save_table(&self) -> Result<()> {
        if !self.table_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let mut table = self.table.lock();
        table.update(&self.topics, crate::store::now_ms());
        table.save(&*self.disk).inspect_err(|_| {
            self.table_dirty.store(true, Ordering::Release);
        })
    }

    /// A full pass: log, queues, index and tables durable, then the marks that say so.
    pub fn settle(&self) -> Result<()> {
        self.check_failed(false)?;
        let dispatched = self.dispatcher.dispatched();
        // Taken before the flush: what it tells of is durable when it is written.
        let inventory = self.inventory();
        self.save_table()?;
        if dispatched <= self.log.state.get(Mark::Settled) {
            return Ok(());
        }
        self.flush_to(dispatched)?;
        let flushed = self
            .queues
            .flush()
            .and_then(|()| self.index.as_ref().map_or(Ok(()), |index| index.flush()));
        if let Err(error) = flushed {
            self.fail(&error);
            return Err(error);
        }
        inventory.save(&self.disk, &self.root)?;
        self.log.state.set(Mark::Settled, dispatched);
        self.log.state.sync(&*self.disk)
    }

    /// The bounds of all queues and the index files, as of now.
    pub fn inventory(&self) -> Inventory {
        let queues = self.queues.all(&self.topics).into_iter();
        let files = self.index.iter().flat_map(|index| index.files());
        Inventory {
            position: self.dispatcher.dispatched(),
            queues: queues
                .map(|(topic, queue)| (topic.name.to_string(), queue.id, queue.min(), queue.max()))
                .collect(),
            index: files
                .map(|file| {
                    let name = file.path().file_name().unwrap_or_default();
                    (name.to_string_lossy().into_owned(), file.count())
                })
                .collect(),
        }
    }

    /// Writes what a clean close leaves: everything durable, inventory, checkpoint, then the flag,
    /// and only then the file `abort` goes.
    pub fn settle_for_close(&self, last_store_ms: i64) -> Result<()> {
        let end = self.log.published();
        // A synchronous store dispatches only what is durable, so the flush comes first.
        self.flush_to(end)?;
        self.dispatcher.catch_up(end)?;
        self.table_dirty.store(true, Ordering::Release);
        self.settle()?;
        self.inventory().save(&self.disk, &self.root)?;
        let times = Checkpoint {
            log_ms: last_store_ms,
            queues_ms: last_store_ms,
            index_ms: last_store_ms,
        };
        times.save(&*self.disk, &self.root)?;
        self.log.state.end_epoch(true);
        self.log.state.sync(&*self.disk)?;
        let abort = self.root.join("abort");
        let io = |error| Error::io("unlink", &abort, error);
        if self.disk.look(&abort).map_err(io)?.is_some() {
            self.disk.unlink(&abort).map_err(io)?;
        }
        self.disk
            .sync_directory(&self.root)
            .map_err(|e| Error::io("sync", &self.root, e))
    }
}
