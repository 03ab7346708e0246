//! Dispatch: builds queue entries and index entries from the log, in log order.
//!
//! Dispatch runs in *steps*, which any thread may run under the dispatch lock. A thread of the
//! engine runs them while there is work. A reader that asks for a message that is not yet
//! dispatched runs steps until it is. A sender helps when the backlog is large. So a message can be
//! read as soon as it was sent, without waiting for a timer.

use super::index::{Index, is_indexed};
use super::log::Log;
use super::log::sound::{Depth, Sound, SoundWalk};
use super::queues::Queues;
use super::queues::queue::entry::queue_and_offset;
use super::queues::queue::{ConsumeQueue, EntryMap, QueueEntry, is_directory_name};
use super::queues::row::QueueRow;
use crate::engine::Topics;
use crate::engine::directory::page::{Mark, News};
use crate::engine::report::Report;
use crate::engine::service::shared_condition::SharedCondition;
use crate::engine::topic::Topic;
use crate::error::{Error, Result};
use crate::plant::{Point, pass};
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::{Known, TopicHash};
use crate::sync::{Mutex, MutexGuard};
use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of records per step.
const STEP_RECORDS: usize = 4096;
/// Records whose index slots are loaded before the keys of the first are put.
const INDEX_BATCH: usize = 64;

/// Builds queues and index.
#[derive(Debug)]
pub struct Dispatcher {
    log: Arc<Log>,
    topics: Arc<Topics>,
    queues: Arc<Queues>,
    index: Option<Arc<Index>>,
    report: Arc<Report>,
    lock: CachePadded<Mutex<Progress>>,
    shared_condition: SharedCondition,
}

#[derive(Debug)]
struct Progress {
    walk: SoundWalk,
    finder: Finder,
    keys: Vec<PendingKey>,
    /// Store time of the last dispatched record in ms; 0 before the first.
    stored_ms: i64,
    /// Store time of the last record walked, whose keys may not be put yet.
    walked_ms: i64,
    /// Why dispatch has stopped for good. Retrying could hide the failure: after a failed sync the
    /// next one may succeed without writing the lost pages.
    failed: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct PendingKey {
    hash: u32,
    position: u64,
    time: i64,
}

impl Dispatcher {
    /// A dispatcher that continues at the dispatched mark.
    pub fn new(
        log: &Arc<Log>,
        topics: &Arc<Topics>,
        queues: &Arc<Queues>,
        index: Option<&Arc<Index>>,
        report: &Arc<Report>,
    ) -> Dispatcher {
        let position = log.state.get(Mark::Dispatched);
        let progress = Progress {
            walk: SoundWalk::new(log, position..position, Depth::Structure),
            finder: Finder::default(),
            keys: Vec::with_capacity(INDEX_BATCH * 2),
            stored_ms: 0,
            walked_ms: 0,
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

    /// Whether readers in other processes wait for messages to be dispatched. A hint.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.shared_condition.is_followed()
    }

    /// Runs one step. Returns whether there was anything to do.
    pub fn step(&self) -> Result<bool> {
        let progress = self.lock.lock();
        self.step_and_ring(progress)
    }

    /// Runs one step, unless another thread is running one.
    pub fn try_step(&self) -> Result<()> {
        self.lock
            .try_lock()
            .map_or(Ok(()), |progress| self.step_and_ring(progress).map(drop))
    }

    /// Runs a step, then wakes the readers in other processes, which see dispatched messages only.
    fn step_and_ring(&self, mut progress: MutexGuard<'_, Progress>) -> Result<bool> {
        let before = self.dispatched();
        let done = self.step_locked(&mut progress);
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

    /// Calls `look` while dispatch is paused, with its position and the store time of its last
    /// record in ms (0 before the first since opening).
    pub fn hold<T>(&self, look: impl FnOnce(u64, i64) -> T) -> T {
        let progress = self.lock.lock();
        look(self.dispatched(), progress.stored_ms)
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

    fn step_locked(&self, progress: &mut Progress) -> Result<bool> {
        if let Some(reason) = progress.failed.clone() {
            let appended = true;
            return Err(Error::Failed { reason, appended });
        }
        let done = self.work(progress);
        if let Err(error) = &done
            && error.ends_writing()
        {
            progress.failed = Some(error.to_string());
        }
        done
    }

    fn work(&self, progress: &mut Progress) -> Result<bool> {
        // Another process may publish more meanwhile, in files that are not open here.
        let joined = self.log.join()?;
        let published = self.log.readable_end().min(joined);
        if progress.walk.position() >= published {
            return self.finish(progress);
        }
        progress.walk.extend(published);
        let mut left = STEP_RECORDS;
        while left > 0 {
            let batch = left.min(INDEX_BATCH);
            left -= batch;
            let done = self.batch(progress, batch)?;
            pass(Point::Dispatched);
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
    fn finish(&self, progress: &mut Progress) -> Result<bool> {
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
    fn show_stored(&self, progress: &mut Progress) {
        progress.stored_ms = progress.walked_ms;
        if self.log.state.is_shared() && progress.stored_ms > 0 {
            // In a shared store no sender of this process knows the last record.
            let stored_ms = &self.log.stored_ms;
            stored_ms.fetch_max(progress.stored_ms, Ordering::AcqRel);
        }
    }

    /// Dispatches some records. Returns whether the published end was reached.
    fn batch(&self, progress: &mut Progress, records: usize) -> Result<bool> {
        for _ in 0..records {
            match progress.walk.next()? {
                Some(Sound::Record(record, place)) => {
                    let (finder, keys) = (&mut progress.finder, &mut progress.keys);
                    if let Err(error) = self.record(finder, keys, &record, place.position) {
                        progress.walk.move_to(place.position);
                        return Err(error);
                    }
                    progress.walked_ms = record.store_timestamp();
                }
                // Another process has shown an end that is not that of a record.
                Some(Sound::Hole(hole)) if self.log.state.is_shared() && !hole.is_followed => {
                    let start = hole.range.start;
                    progress.walk.move_to(start);
                    let path = self.log.path_at(start);
                    return Err(Error::corrupt(path, start, hole.flaw.to_string()));
                }
                // Published bytes were damaged while the store was open.
                Some(Sound::Hole(hole)) => self.report.add(self.log.damage(hole.range, hole.flaw)),
                None => {
                    self.put_keys(&mut progress.keys)?;
                    return Ok(true);
                }
            }
        }
        self.put_keys(&mut progress.keys)?;
        Ok(false)
    }

    #[inline]
    fn record(
        &self,
        finder: &mut Finder,
        keys: &mut Vec<PendingKey>,
        record: &Record<'_>,
        position: u64,
    ) -> Result<()> {
        let known = Known::read(record.raw_properties());
        if let Some((queue, offset, entry)) =
            finder.find(&self.topics, &self.queues, record, &known, position)
        {
            queue.put(offset, entry)?;
        }
        if self.index.is_some() && is_indexed(record) {
            let time = record.store_timestamp();
            let topic = finder.topic_hash(&self.topics, record.topic());
            for key in known.index_keys() {
                let hash = topic.of(key);
                keys.push(PendingKey {
                    hash,
                    position,
                    time,
                });
            }
        }
        Ok(())
    }

    /// Puts the keys of a batch. Loads their slots first: these loads overlap, so the puts find the
    /// slots in the cache.
    fn put_keys(&self, keys: &mut Vec<PendingKey>) -> Result<()> {
        let Some(index) = self.index.as_ref().filter(|_| !keys.is_empty()) else {
            return Ok(());
        };
        let file = index.current()?;
        let mut touched = 0;
        for key in keys.iter() {
            touched ^= file.touch(key.hash)?;
        }
        std::hint::black_box(touched);
        let triples = keys.iter().map(|key| (key.hash, key.position, key.time));
        let (put, result) = index.put_all(triples);
        // Keys that could not be put stay for the next attempt.
        keys.drain(..put);
        result
    }
}

/// Finds the queue of a record, and caches what recent records needed.
///
/// With many topics each record belongs to another one, and nothing about it is in the processor's
/// cache. So the data for one topic is stored together, by number, and no reference counts are
/// touched.
#[derive(Debug, Default)]
pub struct Finder {
    numbers: HashMap<Name, usize, foldhash::fast::RandomState>,
    found: Vec<Found>,
    last: usize,
    slots: usize,
}

/// A topic's name; short ones need no allocation.
type Name = SmallVec<[u8; 24]>;

#[derive(Debug)]
struct Found {
    name: Name,
    hash: TopicHash,
    topic: Arc<Topic>,
    queues: QueueRow<QueueSlot>,
}

/// A queue, and the map for its next entries.
#[derive(Debug)]
pub struct QueueSlot {
    queue: Arc<ConsumeQueue>,
    map: Option<EntryMap>,
}

impl QueueSlot {
    /// The queue.
    pub fn queue(&self) -> &Arc<ConsumeQueue> {
        &self.queue
    }

    /// Puts an entry; see [`ConsumeQueue::put`].
    #[inline]
    pub fn put(&mut self, offset: u64, entry: QueueEntry) -> Result<bool> {
        self.queue.put_with(offset, entry, &mut self.map)
    }
}

/// Maximum number of cached maps.
const SLOTS_MAX: usize = 16_384;

impl Finder {
    /// Queue, offset and entry of a record; `None` if it belongs to no queue.
    #[inline]
    pub fn find(
        &mut self,
        topics: &Topics,
        queues: &Queues,
        record: &Record<'_>,
        known: &Known<'_>,
        position: u64,
    ) -> Option<(&mut QueueSlot, u64, QueueEntry)> {
        let (queue, offset) = queue_and_offset(record)?;
        let entry = QueueEntry::of(record, known, position, &queues.store.delays);
        let number = self.enter(topics, record.topic())?;
        let found = self.found.get(number)?;
        if found.queues.get(queue).is_none() {
            let queue = queues.get_or_add(&found.topic, queue);
            self.add_slot(number, QueueSlot { queue, map: None });
        }
        let slot = self.found.get_mut(number)?.queues.get_mut(queue)?;
        Some((slot, offset, entry))
    }

    /// The topic of the last record found.
    pub fn last_topic(&self) -> Option<Arc<Topic>> {
        let found = self.found.get(self.last);
        found.map(|found| Arc::clone(&found.topic))
    }

    #[cold]
    fn add_slot(&mut self, number: usize, slot: QueueSlot) {
        if self.slots >= SLOTS_MAX {
            self.found.iter_mut().for_each(|found| found.queues.clear());
            self.slots = 0;
        }
        let Some(found) = self.found.get_mut(number) else {
            return;
        };
        found.queues.get_or_insert_with(slot.queue.id, || slot);
        self.slots += 1;
    }

    /// Hash for the keys of a topic.
    #[inline]
    pub fn topic_hash(&mut self, topics: &Topics, name: &[u8]) -> TopicHash {
        let number = self.enter(topics, name);
        match number.and_then(|number| self.found.get(number)) {
            Some(found) => found.hash,
            None => TopicHash::new(name),
        }
    }

    /// Makes the topic of this name the current one and returns its number.
    #[inline]
    fn enter(&mut self, topics: &Topics, name: &[u8]) -> Option<usize> {
        let last = self.found.get(self.last);
        if last.is_some_and(|last| last.name.as_slice() == name) {
            return Some(self.last);
        }
        self.last = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.add_topic(topics, name)?,
        };
        Some(self.last)
    }

    /// A name that is not UTF-8, or that would be a path, is damage. No queue is created for it.
    #[cold]
    fn add_topic(&mut self, topics: &Topics, name: &[u8]) -> Option<usize> {
        let text = std::str::from_utf8(name)
            .ok()
            .filter(|text| is_directory_name(text))?;
        let number = self.found.len();
        self.found.push(Found {
            name: name.into(),
            hash: TopicHash::new(name),
            topic: topics.get_or_add(text, 1).0,
            queues: QueueRow::default(),
        });
        self.numbers.insert(name.into(), number);
        Some(number)
    }
}

#[cfg(test)]
mod test;
