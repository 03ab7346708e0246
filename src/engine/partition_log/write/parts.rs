//! The parts of a partition log that is open for writing: appends, and their durability.
//!
//! Positions are those of the store as a whole: bytes of all partitions together. A sync
//! for a position takes all partitions that have bytes which are not synced, and the position up to
//! which these are all, at one moment under the append lock.
//!
//! ```text
//!   append lock: take what is not synced, and the end --> sync each: complete segments, then the
//!   last one --> the partition is durable up to there --> ... --> the store is durable up to there
//! ```
//!
//! A *full pass* writes what the index files lack, and then the durable end of each partition to
//! the checkpoint, from which the next opening after a crash checks batches.

use super::files::{self, RECOVERY_POINT};
use super::indexes::Piece;
use super::rules::Rules;
use super::tail::{Appender, Tail, Unsaved, Unsynced};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::engine::partition_log::segments::names::beside;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::Condition;
use crate::engine::service::durability::Durable;
use crate::engine::service::health::Health;
use crate::engine::{Appended, Atomicity, Topic};
use crate::error::{Error, Result};
use crate::meter::FlushMeter;
use crate::plant::{Bug, planted};
use crate::record::Batch;
use crate::region::guard;
use crate::sync::Mutex;
use crossbeam_utils::CachePadded;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
    /// How long flushes take.
    pub meter: FlushMeter,
    published: AtomicU64,
    durable: AtomicU64,
    /// What a sync that could not begin has left. Held while partitions are synced.
    unsynced: Mutex<Vec<Unsynced>>,
    /// As `unsynced`, for indexes. Held during a full pass.
    unsaved: Mutex<Passes>,
}

/// What full passes have to do.
#[derive(Debug, Default)]
struct Passes {
    left: Vec<Unsaved>,
    /// The durable position at the last one.
    passed: u64,
}

impl Parts {
    /// The parts of a store with these partitions.
    pub fn new(
        (root, disk, clock): (&Path, &Arc<dyn Disk>, &Arc<dyn Clock>),
        (rules, seed): (Rules, u64),
        tail: AppendLock<Tail>,
        (news, meter): (Arc<Condition>, FlushMeter),
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
            meter,
            published: AtomicU64::new(end),
            durable: AtomicU64::new(end),
            unsynced: Mutex::default(),
            unsaved: Mutex::default(),
        }
    }

    /// Appends batches of rows, and publishes them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for an atomic batch that is not one batch of one partition;
    /// [`Error::Busy`]; those of creating files and reserving blocks. Nothing was appended.
    /// [`Error::Failed`] after an error of the disk.
    pub fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        appended: &mut Appended,
    ) -> Result<()> {
        let now_ms = self.clock.now_ms();
        let mut newest = i64::MIN;
        let mut count = 0;
        for (_, batch) in batches.iter_mut() {
            let own = batch.kafka_mut().ok_or_else(other_form)?;
            own.finish(now_ms)?;
            count += own.parts().len();
            let times = own.parts().iter().map(|part| part.max_timestamp());
            newest = times.fold(newest, i64::max);
        }
        if atomicity == Atomicity::Whole && count > 1 {
            return Err(Error::Unsupported {
                what: "an atomic batch for several queues, or longer than a segment, in a \
                       partition log"
                    .to_owned(),
            });
        }
        appended.store_timestamp = newest;
        let len: usize = batches.iter().map(|(_, batch)| batch.encoded_len()).sum();
        guard::renew_at(now_ms);
        // Declared before the lock, so that it is dropped after it.
        let _long;
        let mut tail = self.tail.acquire(now_ms, self.rules.busy_timeout)?;
        self.check_open()?;
        if len >= LONG_LEN {
            _long = self.tail.begin_long();
        }
        let done = tail.append(&self.appender(now_ms), batches, appended);
        done.inspect_err(|error| self.fail_of(error))?;
        self.tail.show_counters(tail.counters());
        self.published.store(tail.end(), Ordering::Release);
        drop(tail);
        if !self.rules.sync {
            self.news.notify();
        }
        Ok(())
    }

    /// Completes the last segment of each partition that has messages in it. Returns whether there
    /// were any. Durable on return, with the indexes.
    ///
    /// # Errors
    ///
    /// Those of creating segments; the last segments of some partitions may be complete. Those of
    /// the disk.
    pub fn roll(&self) -> Result<bool> {
        self.health.check()?;
        let used = self.tail.lock().used();
        let any = !used.is_empty();
        // One by one, so that senders wait for one segment only.
        let rolled = used.into_iter().try_for_each(|key| {
            let now_ms = self.clock.now_ms();
            let mut tail = self.tail.acquire(now_ms, self.rules.busy_timeout)?;
            self.check_open()?;
            let done = tail.roll(&self.appender(now_ms), key);
            done.inspect_err(|error| self.fail_of(error))
        });
        // Also after an error: the position says nothing of a segment that was completed.
        self.sync_all(&mut self.unsynced.lock())?;
        if any {
            self.unsaved.lock().passed = 0;
            self.full_pass()?;
        }
        rolled.map(|()| any)
    }

    /// The error of a store that cannot be written; the append lock is held.
    fn check_open(&self) -> Result<()> {
        match self.health.is_closed() {
            true => Err(Error::Closed),
            false => self.health.check(),
        }
    }

    fn appender(&self, now_ms: i64) -> Appender<'_> {
        Appender {
            disk: &self.disk,
            rules: &self.rules,
            seed: self.seed,
            now_ms,
        }
    }

    /// Ends writing if the contents of a map, or what a sync has made durable, are unknown.
    #[cold]
    fn fail_of(&self, error: &Error) {
        if error.is_fault() || error.is_of_sync() {
            self.fail(error);
        }
    }

    /// Ends writing for good.
    pub fn fail(&self, error: &Error) {
        self.health.fail(error, || {});
        self.news.notify();
    }

    #[cold]
    fn fail_appended(&self, error: &Error) -> Error {
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

    /// Syncs what a partition has appended.
    fn sync(&self, unsynced: &Unsynced) -> Result<()> {
        let disk = &*self.disk;
        for (path, len) in &unsynced.sealed {
            // The zeros after the contents go; a broker would take them for damage.
            disk.set_len(path, *len)?;
            disk.sync_file(path)?;
        }
        match &unsynced.last {
            Some((file, from, to)) if from < to => file.flush(*from, *to),
            _ => Ok(()),
        }
    }

    /// Syncs everything in the list. What is left in it after an error may be synced again.
    fn sync_each(&self, list: &mut Vec<Unsynced>) -> Result<()> {
        // From the oldest: a later entry may be of the same partition.
        list.reverse();
        let mut outcome = Ok(());
        while let Some(unsynced) = list.last() {
            outcome = self.sync(unsynced);
            if outcome.is_err() && planted(Bug::RetryFailedSync) {
                outcome = self.sync(unsynced);
            }
            if outcome.is_err() {
                break;
            }
            unsynced.ends.set_durable(unsynced.end);
            list.pop();
        }
        list.reverse();
        outcome
    }

    /// Writes the index files of what was taken from the tail.
    fn save(&self, unsaved: &Unsaved) -> Result<()> {
        let disk = &*self.disk;
        for (log, indexes) in &unsaved.sealed {
            indexes.save(disk, log)?;
        }
        if let Some((log, _)) = unsaved.sealed.first()
            && let Some(folder) = log.parent()
        {
            disk.sync_directory(folder)?;
        }
        if let Some((log, pieces)) = &unsaved.pieces {
            for Piece {
                ending,
                start,
                bytes,
            } in pieces
            {
                if !bytes.is_empty() {
                    disk.write_at(&beside(log, ending), *start, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Writes everything in the list. What is left in it after an error is written again.
    fn save_each(&self, list: &mut Vec<Unsaved>) -> Result<()> {
        // From the oldest: an index must not get later entries without those before them.
        list.reverse();
        let mut outcome = Ok(());
        while let Some(unsaved) = list.last() {
            outcome = self.save(unsaved);
            if outcome.is_err() {
                break;
            }
            list.pop();
        }
        list.reverse();
        outcome
    }

    fn pass(&self) -> Result<()> {
        let mut passes = self.unsaved.lock();
        let durable = self.durable();
        if durable <= passes.passed && passes.left.is_empty() {
            return Ok(());
        }
        let lines = {
            let mut tail = self.tail.lock();
            tail.remove_strays(&*self.disk)?;
            passes.left.extend(tail.take_unsaved());
            // Taken together: the indexes of all segments below these ends are in the list.
            tail.durable_offsets()
        };
        self.save_each(&mut passes.left)?;
        let lines: Vec<_> = lines
            .iter()
            .map(|(t, queue, at)| (&**t, *queue, *at))
            .collect();
        files::save_checkpoint(&*self.disk, &self.root, RECOVERY_POINT, &lines)?;
        passes.passed = durable;
        Ok(())
    }

    /// Writes what a clean stop leaves. The store was closed, so that nothing is appended
    /// meanwhile.
    pub fn finish(&self) -> Result<()> {
        self.health.check()?;
        self.sync_all(&mut self.unsynced.lock())?;
        let mut passes = self.unsaved.lock();
        let (sealed, lines) = {
            let mut tail = self.tail.lock();
            tail.remove_strays(&*self.disk)?;
            passes.left.extend(tail.take_unsaved());
            (tail.seal_all(), tail.next_offsets())
        };
        self.save_each(&mut passes.left)?;
        let disk = &*self.disk;
        for (log, len, indexes) in sealed {
            disk.set_len(&log, len)?;
            disk.sync_file(&log)?;
            indexes.save(disk, &log)?;
            if let Some(folder) = log.parent() {
                disk.sync_directory(folder)?;
            }
        }
        let lines: Vec<_> = lines
            .iter()
            .map(|(t, queue, at)| (&**t, *queue, *at))
            .collect();
        files::save_clean_stop(disk, &self.root, &lines)
    }
}

#[cold]
fn other_form() -> Error {
    Error::Unsupported {
        what: "records of another form in a partition log".to_owned(),
    }
}

impl Durable for Parts {
    fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Makes all partitions durable up to `position`, with syncs that concurrent callers share. A
    /// failure is final: the kernel may have marked the pages clean, so that a second sync would
    /// report success although bytes are missing.
    fn flush_to(&self, position: u64) -> Result<()> {
        if self.durable() >= position {
            return Ok(());
        }
        let mut list = self.unsynced.lock();
        match self.durable() >= position {
            true => Ok(()),
            false => self.sync_all(&mut list),
        }
    }

    fn count_wait(&self, waited: Duration) {
        self.meter.waited(waited);
    }

    fn full_pass(&self) -> Result<()> {
        self.health.check()?;
        self.flush_to(self.published())?;
        let passed = self.pass();
        if let Err(error) = &passed
            && error.ends_writing()
        {
            self.fail(error);
        }
        passed
    }

    fn tidy(&self) {}

    fn unmap_unused(&self) {
        self.tail.lock().unmap_unused();
    }
}

impl Parts {
    /// Syncs what is in the list, and what was appended since it was filled.
    fn sync_all(&self, list: &mut Vec<Unsynced>) -> Result<()> {
        self.health.check_appended()?;
        let durable = self.durable();
        let (taken, end) = self.tail.lock().take_unsynced();
        list.extend(taken);
        if list.is_empty() && end <= durable {
            return Ok(());
        }
        let began = Instant::now();
        if planted(Bug::ProgressAhead) {
            self.durable.store(end, Ordering::Release);
        }
        let synced = self.sync_each(list);
        self.meter
            .flushed(end.saturating_sub(durable), began.elapsed());
        if let Err(error) = synced {
            return Err(match error.ends_writing() {
                true => self.fail_appended(&error),
                false => error,
            });
        }
        self.durable.store(end, Ordering::Release);
        if self.rules.sync {
            self.news.notify();
        }
        Ok(())
    }
}
