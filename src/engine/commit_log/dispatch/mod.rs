//! Dispatch: builds queue entries and index entries from the log, in log order.
//!
//! Dispatch runs in *steps*, which any thread may run under the dispatch lock. A thread of the
//! engine runs them while there is work. A reader that asks for a message that is not yet
//! dispatched runs steps until it is. A sender helps when the backlog is large. So a message can be
//! read as soon as it has been sent, without waiting for a timer.
//!
//! A step takes the records in batches. With many topics, the records of a batch belong to
//! different queues, and the processor's cache holds nothing about them. So everything that the
//! entries and keys of a batch need is loaded before the first of them is stored: these loads
//! overlap. In a long backlog batches are long, and their entries are grouped by queue; see
//! [`grouping`].
//!
//! ```text
//!   walk a batch --> load the ends of its queues --> store its entries
//!                --> load the slots of its keys  --> store its keys     --> move the mark
//! ```

mod finder;
mod grouping;

use super::index::{Index, is_indexed};
use super::log::sound::{Depth, Sound, SoundWalk};
use super::log::{Log, Lookup};
use super::queues::Queues;
use super::queues::queue::QueueEntry;
use super::queues::queue::entry::queue_and_offset;
use crate::engine::Topics;
use crate::engine::directory::page::{Mark, News};
use crate::engine::report::Report;
use crate::engine::service::shared_condition::SharedCondition;
use crate::error::{Error, Result};
use crate::plant::{Point, pass};
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::{Known, TopicHash};
use crate::sync::{Mutex, MutexGuard};
use crossbeam_utils::CachePadded;
pub use finder::{Claim, Finder};
use grouping::Grouping;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of records per step.
const STEP_RECORDS: usize = 4096;
/// Records per batch. The data that their entries need must fit a small part of the first-level
/// cache: entries of many queues have the same place in their pages, so they compete for few cache
/// lines.
const BATCH_RECORDS: usize = 64;
/// Number of keys whose slots are loaded at once.
const BATCH_KEYS: usize = 2 * BATCH_RECORDS;

/// Records per batch in a backlog whose entries are grouped by queue.
const GROUPED_RECORDS: usize = if cfg!(test) { 256 } else { 1 << 16 };
/// A backlog of more than this many bytes is grouped. It has about [`GROUPED_RECORDS`] records.
const GROUPED_BACKLOG: u64 = if cfg!(test) { 16 << 10 } else { 16 << 20 };
/// With fewer queues than this, the cache holds all that dispatch needs of them, and nothing is
/// grouped.
const GROUPED_QUEUES: usize = if cfg!(test) { 2 } else { 256 };

/// Builds queues and index.
#[derive(Debug)]
pub struct Dispatcher {
    log: Arc<Log>,
    topics: Arc<Topics>,
    queues: Arc<Queues>,
    index: Option<Arc<Index>>,
    report: Arc<Report>,
    lock: CachePadded<Mutex<State>>,
    shared_condition: SharedCondition,
}

#[derive(Debug)]
struct State {
    walk: SoundWalk,
    finder: Finder,
    /// The entries of the current batch.
    entries: Vec<PendingEntry>,
    grouping: Grouping,
    keys: Vec<PendingKey>,
    /// Store time of the last dispatched record in ms; 0 before the first.
    stored_ms: i64,
    /// Store time of the last record walked, whose keys may not be put yet.
    walked_ms: i64,
    /// Position of the last record walked, by this process or by recovery.
    last: Option<u64>,
    /// Whether a hole was met since [`Dispatcher::take_hole`].
    met_hole: bool,
    /// Why dispatch has stopped for good. Retrying could hide the failure: after a failed sync the
    /// next one may succeed without writing the lost pages.
    failed: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct PendingEntry {
    /// Number of its queue in the finder.
    queue: usize,
    offset: u64,
    entry: QueueEntry,
}

#[derive(Debug, Clone, Copy)]
struct PendingKey {
    hash: u32,
    position: u64,
    time: i64,
}

impl Dispatcher {
    /// A dispatcher that continues at the dispatched mark, before which the last record is at
    /// `last`.
    pub fn new(
        log: &Arc<Log>,
        topics: &Arc<Topics>,
        queues: &Arc<Queues>,
        index: Option<&Arc<Index>>,
        report: &Arc<Report>,
        last: Option<u64>,
    ) -> Dispatcher {
        let position = log.state.get(Mark::Dispatched);
        let progress = State {
            walk: SoundWalk::new(log, position..position, Depth::Structure),
            finder: Finder::default(),
            entries: Vec::with_capacity(BATCH_RECORDS),
            grouping: Grouping::default(),
            keys: Vec::with_capacity(BATCH_KEYS),
            stored_ms: 0,
            walked_ms: 0,
            last,
            met_hole: false,
            failed: None,
        };
        Dispatcher {
            log: Arc::clone(log),
            topics: Arc::clone(topics),
            queues: Arc::clone(queues),
            index: index.cloned(),
            report: Arc::clone(report),
            lock: CachePadded::new(Mutex::new(progress)),
            shared_condition: SharedCondition::default(),
        }
    }

    /// Position up to which the log is dispatched.
    #[inline]
    pub fn dispatched(&self) -> u64 {
        self.log.state.get(Mark::Dispatched)
    }

    /// Whether readers wait for messages to be dispatched. A hint.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.shared_condition.is_followed()
    }

    /// Runs one step for a reader that has waited for it. Returns whether there was anything to do.
    pub fn step_for_reader(&self) -> Result<bool> {
        let done = self.step();
        self.shared_condition.note_reader();
        done
    }

    /// Runs one step. Returns whether there was anything to do.
    pub fn step(&self) -> Result<bool> {
        let progress = self.lock.lock();
        self.step_and_notify(progress, GROUPED_RECORDS)
    }

    /// Runs one step of at most [`STEP_RECORDS`], unless another thread is running one.
    pub fn try_step(&self) -> Result<()> {
        self.lock.try_lock().map_or(Ok(()), |progress| {
            self.step_and_notify(progress, STEP_RECORDS).map(drop)
        })
    }

    /// Runs a step, then wakes the readers in other processes, which see dispatched messages only.
    fn step_and_notify(&self, mut progress: MutexGuard<'_, State>, max: usize) -> Result<bool> {
        let before = self.dispatched();
        let done = self.step_locked(&mut progress, max);
        drop(progress);
        if self.dispatched() != before {
            self.shared_condition.notify(&News(&self.log.state));
        }
        done
    }

    /// Runs steps until everything below `position` is dispatched.
    pub fn catch_up(&self, position: u64) -> Result<()> {
        while self.dispatched() < position && self.step()? {}
        Ok(())
    }

    /// Calls `act` while dispatch is paused, with its position and the store time of its last
    /// record in ms (0 before the first since opening).
    pub fn hold<T>(&self, act: impl FnOnce(u64, i64) -> T) -> T {
        let progress = self.lock.lock();
        act(self.dispatched(), progress.stored_ms)
    }

    /// Position of the last record of the log, if all of it is dispatched; `None` if unknown.
    pub fn last_record(&self) -> Option<u64> {
        self.lock.lock().last
    }

    /// Whether damage was met since the last call: offsets of messages in it may be in no queue.
    pub fn take_hole(&self) -> bool {
        std::mem::take(&mut self.lock.lock().met_hole)
    }

    /// Makes the next [`Dispatcher::take_hole`] return true.
    pub fn note_hole(&self) {
        self.lock.lock().met_hole = true;
    }

    /// Runs `work` while dispatch is paused. It may change queues, index and log files: afterwards
    /// the walk maps its current file again.
    pub fn pause<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut progress = self.lock.lock();
        self.put_keys(&mut progress.keys)?;
        let done = work();
        let position = progress.walk.position();
        progress.walk = SoundWalk::new(&self.log, position..position, Depth::Structure);
        done
    }

    fn step_locked(&self, progress: &mut State, max: usize) -> Result<bool> {
        if let Some(reason) = progress.failed.clone() {
            let appended = true;
            return Err(Error::Failed { reason, appended });
        }
        let done = self.work(progress, max);
        if let Err(error) = &done
            && error.ends_writing()
        {
            progress.failed = Some(error.to_string());
        }
        done
    }

    fn work(&self, progress: &mut State, max: usize) -> Result<bool> {
        // Another process may publish more meanwhile, in files that are not open here.
        let joined = self.log.join()?;
        let published = self.log.readable_end().min(joined);
        if progress.walk.position() >= published {
            return self.finish(progress);
        }
        progress.walk.extend(published);
        let is_long = published - progress.walk.position() > GROUPED_BACKLOG
            && progress.finder.len() >= GROUPED_QUEUES
            // Readers in other processes see only what is dispatched, so they would wait for a long
            // batch.
            && !self.log.state.is_shared();
        let (mut left, records) = match is_long && max >= GROUPED_RECORDS {
            true => (GROUPED_RECORDS, GROUPED_RECORDS),
            false => (STEP_RECORDS, BATCH_RECORDS),
        };
        while left > 0 {
            let batch = left.min(records);
            left -= batch;
            let done = self.batch(progress, batch)?;
            pass(Point::Dispatched);
            if progress.finder.take_added() {
                self.log.state.next_catalogue();
            }
            self.log
                .state
                .set(Mark::Dispatched, progress.walk.position());
            self.show_stored(progress);
            self.queues.limit_maps();
            if done {
                break;
            }
        }
        Ok(true)
    }

    /// Puts keys that did not fit in the last step. Returns whether there was anything to do.
    fn finish(&self, progress: &mut State) -> Result<bool> {
        let end = progress.walk.position();
        if progress.keys.is_empty() && self.dispatched() >= end {
            return Ok(false);
        }
        self.put_keys(&mut progress.keys)?;
        self.log.state.set(Mark::Dispatched, end);
        self.show_stored(progress);
        Ok(true)
    }

    /// Notes the store time of the last dispatched record.
    fn show_stored(&self, progress: &mut State) {
        progress.stored_ms = progress.walked_ms;
        if self.log.state.is_shared() && progress.stored_ms > 0 {
            // In a shared store no sender of this process knows the last record.
            let stored_ms = &self.log.stored_ms;
            stored_ms.fetch_max(progress.stored_ms, Ordering::AcqRel);
        }
    }

    /// Dispatches some records. Returns whether the published end was reached.
    fn batch(&self, progress: &mut State, records: usize) -> Result<bool> {
        let begin = progress.walk.position();
        progress.finder.limit();
        let walked = self.walk(progress, records);
        let put = self.put_entries(progress);
        let done = put.and(walked).inspect_err(|_| {
            // The next step walks the batch again. Entries that were put stay as they are.
            progress.walk.move_to(begin);
            progress.keys.retain(|key| key.position < begin);
        })?;
        self.put_keys(&mut progress.keys)?;
        Ok(done)
    }

    /// Collects the entries and keys of some records. Returns whether the published end was
    /// reached.
    fn walk(&self, progress: &mut State, records: usize) -> Result<bool> {
        for number in 0..records {
            if number >= BATCH_RECORDS && progress.finder.is_full() {
                // Each queue of the batch needs a map, and a process may have a limited number of
                // maps.
                return Ok(false);
            }
            match progress.walk.next()? {
                Some(Sound::Record(record, place)) => {
                    let (finder, entries) = (&mut progress.finder, &mut progress.entries);
                    let keys = &mut progress.keys;
                    if !self.record(finder, entries, keys, &record, place.position)? {
                        progress.met_hole = true;
                        continue;
                    }
                    progress.walked_ms = record.store_timestamp();
                    progress.last = Some(place.position);
                }
                // Another process has published an end that is not the end of a record.
                Some(Sound::Hole(hole)) if self.log.state.is_shared() && !hole.is_followed => {
                    let start = hole.range.start;
                    let path = self.log.path_at(start);
                    return Err(Error::corrupt(path, start, hole.flaw.to_string()));
                }
                // Published bytes were damaged while the store was open.
                Some(Sound::Hole(hole)) => {
                    progress.met_hole = true;
                    self.report.add(self.log.damage(hole.range, hole.flaw));
                }
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Collects the entry and the keys of a record. Returns false if it is damaged. Only a record
    /// of a new queue, and one that is in no queue, are checked here; see
    /// [`Dispatcher::put_some`].
    #[inline]
    fn record(
        &self,
        finder: &mut Finder,
        entries: &mut Vec<PendingEntry>,
        keys: &mut Vec<PendingKey>,
        record: &Record<'_>,
        position: u64,
    ) -> Result<bool> {
        let known = Known::read(record.raw_properties());
        let is_sound = || record.check(position).is_ok();
        let topic = finder.topic(&self.topics, record.topic(), is_sound);
        let claim = topic.zip(queue_and_offset(record));
        let number = claim.and_then(|(topic, (queue, _))| finder.number(topic, queue));
        if number.is_none() {
            let is_listed = claim
                .is_some_and(|(topic, (queue, _))| finder.is_listed(topic, queue, &self.queues));
            if !is_listed && self.is_damaged(record, position) {
                return Ok(false);
            }
        }
        if let Some((topic, (queue, offset))) = claim {
            entries.push(PendingEntry {
                queue: match number {
                    Some(number) => number,
                    None => finder.queue(topic, queue, &self.queues)?,
                },
                offset,
                entry: QueueEntry::of(record, &known, position, &self.queues.store.delays),
            });
        }
        if self.index.is_some() && is_indexed(record) {
            let time = record.store_timestamp();
            let topic = topic.and_then(|topic| finder.hash(topic));
            let topic = topic.unwrap_or_else(|| TopicHash::new(record.topic()));
            for key in known.index_keys() {
                let hash = topic.of(key);
                keys.push(PendingKey {
                    hash,
                    position,
                    time,
                });
            }
        }
        Ok(true)
    }

    /// Whether a record is damaged. If so, it is reported.
    #[cold]
    fn is_damaged(&self, record: &Record<'_>, position: u64) -> bool {
        let Err(flaw) = record.check(position) else {
            return false;
        };
        let end = position + u64::from(record.layout().total_len);
        self.report.add(self.log.damage(position..end, flaw));
        true
    }

    /// Puts the entries of a batch: those of a short one in log order, those of a long one queue by
    /// queue.
    fn put_entries(&self, progress: &mut State) -> Result<()> {
        let State {
            finder,
            entries,
            grouping,
            met_hole,
            ..
        } = progress;
        let done = if entries.len() <= BATCH_RECORDS {
            self.put_some(finder, met_hole, entries.iter())
        } else {
            let order = grouping.order(finder.len(), entries.iter().map(|it| it.queue));
            order.chunks(BATCH_RECORDS).try_for_each(|some| {
                let some = some.iter().filter_map(|index| entries.get(*index as usize));
                self.put_some(finder, met_hole, some)
            })
        };
        entries.clear();
        done
    }

    /// Puts some entries, in order. Loads the ends of their queues first.
    ///
    /// The offsets of a queue follow one another, unless a record was damaged. So only a record
    /// whose offset does not follow is checked. If its offset is damaged, its entry would replace
    /// that of another message, or be too far after the end.
    #[inline]
    fn put_some<'a>(
        &self,
        finder: &mut Finder,
        met_hole: &mut bool,
        entries: impl Iterator<Item = &'a PendingEntry> + Clone,
    ) -> Result<()> {
        let mut last = usize::MAX;
        let mut touched = 0;
        for pending in entries.clone() {
            if pending.queue != last {
                last = pending.queue;
                touched ^= finder.touch(last, pending.offset);
            }
        }
        std::hint::black_box(touched);
        for pending in entries {
            let follows = pending.offset == finder.end(pending.queue);
            if !follows && self.is_lost(&pending.entry)? {
                *met_hole = true;
                continue;
            }
            finder.put(pending.queue, pending.offset, pending.entry)?;
        }
        Ok(())
    }

    /// Whether the record of an entry is damaged. If so, it is reported.
    #[cold]
    fn is_lost(&self, entry: &QueueEntry) -> Result<bool> {
        match self.log.checked_record_at(entry.position)? {
            Lookup::Record(_) => Ok(false),
            Lookup::Flawed(flaw) => {
                let bytes = entry.position..entry.end();
                self.report.add(self.log.damage(bytes, flaw));
                Ok(true)
            }
        }
    }

    /// Puts the keys of a batch. Loads their slots first: these loads overlap, so the puts find the
    /// slots in the cache.
    fn put_keys(&self, keys: &mut Vec<PendingKey>) -> Result<()> {
        let Some(index) = self.index.as_ref().filter(|_| !keys.is_empty()) else {
            return Ok(());
        };
        let mut put = 0;
        let mut put_some = |keys: &[PendingKey]| {
            let file = index.current()?;
            let mut touched = 0;
            for key in keys {
                touched ^= file.touch(key.hash)?;
            }
            std::hint::black_box(touched);
            let triples = keys.iter().map(|key| (key.hash, key.position, key.time));
            let (count, result) = index.put_all(triples);
            put += count;
            result
        };
        let done = keys.chunks(BATCH_KEYS).try_for_each(&mut put_some);
        // Keys that could not be put stay for the next attempt.
        keys.drain(..put);
        done
    }
}
