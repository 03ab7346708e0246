//! The parts of a partition log that is open for writing.
//!
//! Positions count the bytes of all partitions together. Under the append lock, a sync takes all
//! partitions that have unsynced bytes, and the position at that moment: once it has synced them,
//! the store is durable up to there.
//!
//! ```text
//!   append lock: take what is not synced, and the end --> sync each: complete segments, then the
//!   last one --> the partition is durable up to there --> ... --> the store is durable up to there
//! ```

use super::ends::Ends;
use super::gone::Gone;
use super::indexing::Indexing;
use super::readers::Readers;
use super::rules::Rules;
use super::shared::Shared;
use super::tail::Tail;
use super::unsynced::{Folders, Unsynced};
use super::writing::{Start, Unsaved};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::engine::Topic;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::Condition;
use crate::engine::service::durability::Durable;
use crate::engine::service::health::Health;
use crate::error::{Error, Result};
use crate::mapped::Allocator;
use crate::meter::FlushMeter;
use crate::sync::Mutex;
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The parts.
#[derive(Debug)]
pub struct Parts {
    /// The log directory.
    pub root: PathBuf,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The rules.
    pub rules: Rules,
    /// The seed of the store.
    pub seed: u64,
    /// Whether the store may be written; closed under the append lock.
    pub health: Health,
    /// Faults in pages ahead of use, if the store is asynchronous and not shared.
    pub allocator: Option<Allocator>,
    /// The ends of all partitions, under the append lock.
    pub tail: CachePadded<AppendLock<Tail>>,
    /// Notified when readers can see more.
    pub news: Arc<Condition>,
    /// The readers in other processes.
    pub readers: Readers,
    /// Appends that failed.
    pub sends_failed: AtomicU64,
    /// How long flushes take.
    pub meter: FlushMeter,
    /// The names of the folders of partitions.
    pub folders: Folders,
    /// The partitions whose folders were gone when this process opened the store.
    pub gone: Gone,
    /// This process among those that share the store, if it is shared.
    pub shared: Option<Shared>,
    pub(super) all: Mutex<All>,
    /// Partitions of a shared store that this process can append to.
    pub(super) adopted: AtomicU32,
    pub(super) published: AtomicU64,
    pub(super) durable: AtomicU64,
    /// What a failed sync has left, if it has not ended writing. Held while partitions are synced.
    pub(super) unsynced: Mutex<Vec<Unsynced>>,
    /// As `unsynced`, for indexes. Held during a full pass.
    pub(super) unsaved: Mutex<Passes>,
    /// Where the last atomic batch with an intent ends, if the intent may exist. Held while such a
    /// batch is appended, in a store of one process.
    pub(super) whole: Mutex<Option<u64>>,
}

/// Topic, queue and ends of a partition.
pub type One = (Arc<str>, u32, Arc<Ends>);

/// All partitions by topic and queue.
pub type All = BTreeMap<(Arc<str>, u32), Arc<Ends>>;

/// What full passes have to do.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// The indexes that are not written.
    pub left: Vec<Unsaved>,
    /// The durable position at the last full pass.
    pub passed: u64,
    /// The indexes of partitions that processes share.
    pub indexing: Indexing,
}

impl Parts {
    /// The parts of a store with these partitions.
    pub fn new(
        (root, disk, clock): (&Path, &Arc<dyn Disk>, &Arc<dyn Clock>),
        (rules, seed): (Rules, u64),
        (tail, all): (AppendLock<Tail>, All),
        (news, meter, shared): (Arc<Condition>, FlushMeter, Option<Shared>),
    ) -> Parts {
        let end = tail.lock().end();
        Parts {
            root: root.to_owned(),
            disk: Arc::clone(disk),
            clock: Arc::clone(clock),
            rules,
            seed,
            health: Health::default(),
            allocator: None,
            tail: CachePadded::new(tail),
            news,
            readers: Readers::default(),
            sends_failed: AtomicU64::new(0),
            meter,
            folders: Folders::new(&**disk, root),
            gone: Gone::default(),
            shared,
            all: Mutex::new(all),
            adopted: AtomicU32::new(0),
            published: AtomicU64::new(end),
            durable: AtomicU64::new(end),
            unsynced: Mutex::default(),
            unsaved: Mutex::default(),
            whole: Mutex::default(),
        }
    }

    /// The highest end that this process has published.
    pub(super) fn seen(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Wakes readers, because they can see more.
    pub fn tell(&self) {
        self.wake();
        self.readers.notify();
    }

    /// Wakes the threads that wait in the processes that write.
    pub fn wake(&self) {
        match &self.shared {
            Some(shared) => shared.tell(),
            None => self.news.notify(),
        }
    }

    /// Returns the error of a store that cannot be written. The caller holds the append lock.
    pub(super) fn check_open(&self) -> Result<()> {
        match self.health.is_closed() {
            true => Err(Error::closed(&self.root)),
            false => self.health.check(),
        }
    }

    /// Ends writing if the error leaves the contents of a map, or what is durable, unknown.
    #[cold]
    pub(super) fn fail_of(&self, error: &Error) {
        if error.is_fault() || error.is_of_sync() {
            self.fail(error);
        }
    }

    /// Ends writing for good, in all processes that share the store.
    pub fn fail(&self, error: &Error) {
        self.health.fail(error, || {
            if let Some(shared) = &self.shared {
                shared.page().set_failed(&error.to_string());
            }
        });
        self.tell();
    }

    #[cold]
    pub(super) fn fail_appended(&self, error: &Error) -> Error {
        self.fail(error);
        Error::Failed {
            reason: error.to_string(),
            appended: true,
        }
    }

    /// End of what readers may see.
    pub fn readable(&self) -> u64 {
        match self.rules.sync {
            true => self.durable(),
            false => self.published(),
        }
    }

    /// Makes everything appended before the call durable.
    pub fn flush(&self) -> Result<()> {
        self.health.check()?;
        self.flush_to(self.published())
    }

    /// As [`Parts::flush`], but includes segments that were completed since the last message: in a
    /// store of one process, completing a segment does not advance the position. Until this
    /// returns, a sync may still need the file of a complete segment, so it must not be replaced or
    /// removed.
    ///
    /// # Errors
    ///
    /// As [`Parts::flush`].
    pub fn flush_completed(&self) -> Result<()> {
        match &self.shared {
            Some(_) => self.flush(),
            None => {
                self.health.check()?;
                self.sync_pending(&mut self.unsynced.lock())
            }
        }
    }

    /// Adds a partition whose folder was made. Returns whether it is new.
    pub fn add(&self, topic: &Topic, queue: u32, ends: &Arc<Ends>, start: Start) -> bool {
        if self.shared.is_none() {
            self.folders.add();
        }
        let key = (topic.id, queue);
        let is_new = self.tail.lock().add(key, &topic.name, ends, start);
        if self.shared.is_none() {
            let name = (Arc::from(&*topic.name), queue);
            self.all.lock().insert(name, Arc::clone(ends));
        }
        is_new
    }

    /// Number of queues of a topic, up to the highest one that exists.
    pub fn queues_of(&self, topic: &str) -> u32 {
        let all = self.all.lock();
        let own = all.range((Arc::from(topic), 0)..=(Arc::from(topic), u32::MAX));
        own.last().map_or(0, |((_, queue), _)| queue + 1)
    }

    /// How many partitions of a topic exist.
    pub fn count_of(&self, topic: &str) -> usize {
        let all = self.all.lock();
        all.range((Arc::from(topic), 0)..=(Arc::from(topic), u32::MAX))
            .count()
    }

    /// Whether a partition exists.
    pub fn has(&self, topic: &str, queue: u32) -> bool {
        self.all.lock().contains_key(&(topic.into(), queue))
    }

    /// Topic, queue and ends of each partition, in order, including what other processes have
    /// changed.
    ///
    /// # Errors
    ///
    /// Those of the table of the processes that share the store, and of listing folders.
    pub fn all_ends(&self) -> Result<Vec<One>> {
        self.load()?;
        let all = self.all.lock();
        let one = |(key, ends): (&(Arc<str>, u32), &Arc<Ends>)| {
            (Arc::clone(&key.0), key.1, Arc::clone(ends))
        };
        let all: Vec<_> = all.iter().map(one).collect();
        let mut ends = all.iter().map(|(_, _, ends)| ends);
        ends.try_for_each(|ends| ends.catch_up(&*self.disk).map(drop))?;
        Ok(all)
    }

    /// Makes the names of all folders durable.
    ///
    /// # Errors
    ///
    /// Those of the disk. A sync that failed ends writing.
    pub fn sync_folders(&self) -> Result<()> {
        self.health.check()?;
        let disk = &*self.disk;
        let synced = self.folders.sync(disk, &self.root);
        synced.inspect_err(|error| self.fail_of(error))
    }

    /// The next offset of each partition: of what is published, or of what is durable.
    pub fn next_offsets(&self, durable: bool) -> Vec<((Arc<str>, u32), u64)> {
        let all = self.all.lock();
        let next =
            |(key, ends): (&(Arc<str>, u32), &Arc<Ends>)| (key.clone(), ends.next_offset(durable));
        all.iter().map(next).collect()
    }
}
