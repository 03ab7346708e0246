//! The parts of a partition log that is open for writing, and appends.
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
use super::tail::{Key, Tail};
use super::unsynced::{Folders, Unsynced};
use super::writing::{Appender, Start, Unsaved};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::engine::directory::member::Held;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::Condition;
use crate::engine::service::durability::Durable;
use crate::engine::service::health::Health;
use crate::engine::{Appended, Atomicity, Topic};
use crate::error::{Error, Result};
use crate::meter::FlushMeter;
use crate::plant::{Bug, Point, pass, planted};
use crate::record::Batch;
use crate::region::guard;
use crate::sync::{Mutex, TimedMutexGuard};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An append of at least this many bytes takes some hundred microseconds.
const LONG_LEN: usize = 256 << 10;

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
    /// Left over from a sync that could not begin. Held while partitions are synced.
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
    /// The durable position at the last one.
    pub passed: u64,
    /// The indexes of partitions that processes share.
    pub indexing: Indexing,
}

/// The append lock: that of this process, and that of all processes if they share the store.
pub struct Taken<'a> {
    // Dropped first: the threads of a process take turns at the lock of all.
    _held: Option<Held<'a>>,
    /// The ends of all partitions.
    pub tail: TimedMutexGuard<'a, Tail>,
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

    /// Appends batches of rows, and publishes them. Returns whether a flush is to be asked for,
    /// because so many messages of a partition are not durable as the rules allow.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]; those of creating files and reserving blocks. Nothing was appended.
    /// [`Error::Failed`] after an error of the disk.
    pub fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        appended: &mut Appended,
    ) -> Result<bool> {
        let done = self.append_uncounted(batches, atomicity, appended);
        done.inspect_err(|_| {
            self.sends_failed.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// [`Parts::append`] for others than the owner of the store: a failure is not counted among the
    /// sends.
    ///
    /// # Errors
    ///
    /// As [`Parts::append`].
    pub fn append_uncounted(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        appended: &mut Appended,
    ) -> Result<bool> {
        let now_ms = match self.rules.form.append_time {
            true => self.clock.now_ms(),
            // It only decides when a segment is old.
            false => self.clock.coarse_ms(),
        };
        let mut newest = i64::MIN;
        let mut count = 0;
        for (_, batch) in batches.iter_mut() {
            let own = batch.kafka_mut().ok_or_else(other_form)?;
            own.finish(now_ms)?;
            count += own.parts().len();
            let times = own.parts().iter().map(|part| part.max_timestamp());
            newest = times.fold(newest, i64::max);
        }
        appended.store_timestamp = newest;
        let len: usize = batches.iter().map(|(_, batch)| batch.encoded_len()).sum();
        guard::renew_at(now_ms);
        // The rows of one batch are all there or not at all by themselves.
        let is_joined = atomicity == Atomicity::Whole && count > 1;
        // If processes share the store, their table says where the last one ends.
        let is_alone = self.shared.is_none();
        let mut whole = (is_joined && is_alone).then(|| self.whole.lock());
        if is_joined {
            self.await_whole(whole.as_deref().copied().flatten())?;
        }
        // Declared before the lock, so that it is dropped after it.
        let _long;
        let mut taken = self.take(now_ms)?;
        while is_joined && self.is_whole_undurable() {
            // Another process has appended an atomic batch meanwhile.
            drop(taken);
            self.await_whole(None)?;
            taken = self.take(now_ms)?;
        }
        if len >= LONG_LEN {
            _long = self.tail.begin_long();
        }
        let with = Appender {
            whole: is_joined.then_some(&*self.root),
            ..self.appender(now_ms)
        };
        let done = taken.tail.append(&with, batches, appended);
        self.note_strays(&mut taken.tail);
        done.inspect_err(|error| self.fail_of(error))?;
        let end = taken.tail.end();
        if let Some(whole) = &mut whole {
            **whole = Some(end);
        }
        self.tail.show_counters(taken.tail.counters());
        let must_flush = taken.tail.take_must_flush();
        self.publish(end, is_joined)?;
        drop(taken);
        if !self.rules.sync {
            self.tell();
        }
        Ok(must_flush)
    }

    /// Takes the append lock, and with it that of the processes that share the store.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`], [`Error::Closed`], [`Error::Failed`]; those of removing what a process has
    /// left that died with the lock.
    pub fn take(&self, now_ms: i64) -> Result<Taken<'_>> {
        let timeout = self.rules.busy_timeout;
        let Some(shared) = &self.shared else {
            let tail = self.tail.acquire(now_ms, timeout)?;
            self.check_open()?;
            return Ok(Taken { _held: None, tail });
        };
        shared.member.patiently(timeout, |left| {
            let mut tail = self.tail.acquire(now_ms, left)?;
            self.check_open()?;
            let held = self.hold(shared, &mut tail, left)?;
            pass(Point::Locked);
            Ok(Taken {
                _held: Some(held),
                tail,
            })
        })
    }

    /// Publishes what was appended up to `end`. `is_joined`: it ends with an atomic batch that has
    /// an intent.
    fn publish(&self, end: u64, is_joined: bool) -> Result<()> {
        match &self.shared {
            Some(shared) => {
                if is_joined {
                    shared.table.set_whole(end);
                }
                self.publish_shared(shared, end);
                pass(Point::Published);
                let checked = shared.check_maps();
                checked.inspect_err(|error| self.fail_of(error))?;
            }
            None => self.published.store(end, Ordering::Release),
        }
        Ok(())
    }

    /// Publishes what was appended up to `end` for all processes that share the store.
    pub(super) fn publish_shared(&self, shared: &Shared, end: u64) {
        self.published.store(end, Ordering::Release);
        shared.publish(end);
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

    /// Makes the last atomic batch durable, which ends at `own` if this process appended it.
    fn await_whole(&self, own: Option<u64>) -> Result<()> {
        let end = match &self.shared {
            Some(shared) => Some(shared.table.whole()),
            None => own,
        };
        match end.filter(|_| !planted(Bug::ReplaceIntent)) {
            // Nothing of the next one is appended if that fails.
            Some(end) => {
                let flushed = self.flush_to(end);
                flushed.or_else(|error| self.health.check().and(Err(error)))
            }
            None => Ok(()),
        }
    }

    /// Whether the last atomic batch of the processes that share the store is not durable.
    fn is_whole_undurable(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.table.whole() > shared.durable())
    }

    /// Notes what an append has left that failed, if processes share the store: the next one to
    /// append removes it.
    fn note_strays(&self, tail: &mut Tail) {
        if let Some(shared) = &self.shared {
            if tail.is_strewn() {
                shared.table.set_unclean(true);
            }
            tail.forget_strays();
        }
    }

    /// Completes the last segment of each partition that has messages in it. Returns whether there
    /// were any. Durable on return, with the indexes.
    ///
    /// # Errors
    ///
    /// Those of creating segments; the last segments of some partitions may be complete. Those of
    /// the disk.
    pub fn roll(&self) -> Result<bool> {
        let used = self.tail.lock().used();
        self.roll_keys(used)
    }

    /// As [`Parts::roll`], for these partitions only.
    ///
    /// # Errors
    ///
    /// As [`Parts::roll`].
    pub fn roll_some(&self, all: &[Arc<Ends>]) -> Result<bool> {
        let used = self.tail.lock().used_of(all);
        self.roll_keys(used)
    }

    fn roll_keys(&self, used: Vec<Key>) -> Result<bool> {
        self.health.check()?;
        let mut any = false;
        // One by one, so that senders wait for one segment only.
        let rolled = used.into_iter().try_for_each(|key| {
            let now_ms = self.clock.now_ms();
            let mut taken = self.take(now_ms)?;
            let done = taken.tail.roll(&self.appender(now_ms), key);
            self.note_strays(&mut taken.tail);
            let rolled = done.inspect_err(|error| self.fail_of(error))?;
            any |= rolled;
            if let Some(shared) = self.shared.as_ref().filter(|_| rolled) {
                // So that a flush covers the completion of the segment.
                self.publish_shared(shared, taken.tail.end() + 1);
            }
            Ok(())
        });
        // Also after an error.
        self.flush_completed()?;
        if any {
            self.pass_again()?;
        }
        rolled.map(|()| any)
    }

    /// The error of a store that cannot be written; the append lock is held.
    pub(super) fn check_open(&self) -> Result<()> {
        match self.health.is_closed() {
            true => Err(Error::closed(&self.root)),
            false => self.health.check(),
        }
    }

    pub(super) fn appender(&self, now_ms: i64) -> Appender<'_> {
        Appender {
            disk: &self.disk,
            rules: &self.rules,
            seed: self.seed,
            now_ms,
            whole: None,
            cuts: self.shared.as_ref().map(|shared| shared.table.cuts()),
        }
    }

    /// Ends writing if the contents of a map, or what a sync has made durable, are unknown.
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

    /// As [`Parts::flush`], also where a segment was completed since the last message. A process
    /// alone has no position for that: until this returns, a sync may still need the file of a
    /// complete segment, so it must not be replaced or removed.
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

    /// Adds a partition whose folder was made. Returns whether it was not known.
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

    /// Topic, queue and ends of each partition, in order. What other processes have changed is
    /// known.
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

#[cold]
fn other_form() -> Error {
    Error::Unsupported {
        what: "records of another form in a partition log".to_owned(),
    }
}
