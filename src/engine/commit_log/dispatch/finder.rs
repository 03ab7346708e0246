//! Finds the queues of records, and caches what recent records needed.
//!
//! With many topics, consecutive records belong to different topics, and the processor's cache
//! holds nothing about the next one. So the data of a topic is contiguous, the data of a queue is
//! on one cache line, and no reference counts are touched.

use crate::engine::Topics;
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::entry::queue_and_offset;
use crate::engine::commit_log::queues::queue::{
    ConsumeQueue, EntryMap, QueueEntry, is_directory_name,
};
use crate::engine::commit_log::queues::table::QueueTable;
use crate::engine::topic::Topic;
use crate::error::Result;
use crate::num::short;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::{Known, TopicHash};
use indexmap::IndexMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// Maximum number of cached maps.
const SLOTS_MAX: usize = 16_384;

/// Finds the queue of a record.
#[derive(Debug, Default)]
pub struct Finder {
    topics: IndexMap<Name, FoundTopic, foldhash::fast::RandomState>,
    /// Numbers of the queues' slots, by the number of the topic in `topics`.
    numbers: QueueTable<Option<u32>>,
    slots: Vec<Slot>,
    last: usize,
    /// Whether a queue was added that readers in other processes may not know yet.
    has_added: bool,
}

/// A topic's name; short ones need no allocation.
type Name = SmallVec<[u8; 24]>;

#[derive(Debug)]
struct FoundTopic {
    hash: TopicHash,
    topic: Arc<Topic>,
}

/// A queue, and the map for its next entries.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    queue: Arc<ConsumeQueue>,
    map: Option<EntryMap>,
}

impl Finder {
    /// The number of the topic of this name; `None` if the name is damaged: it is not UTF-8, would
    /// be a path, or is new in a record that is not sound. No queue is created for it.
    #[inline]
    pub fn topic(
        &mut self,
        topics: &Topics,
        name: &[u8],
        is_sound: impl FnOnce() -> bool,
    ) -> Option<usize> {
        let last = self.topics.get_index(self.last);
        if last.is_some_and(|(last, _)| last.as_slice() == name) {
            return Some(self.last);
        }
        self.last = match self.topics.get_index_of(name) {
            Some(number) => number,
            None if is_sound() => self.add_topic(topics, name)?,
            None => return None,
        };
        Some(self.last)
    }

    #[cold]
    fn add_topic(&mut self, topics: &Topics, name: &[u8]) -> Option<usize> {
        let text = std::str::from_utf8(name).ok();
        let (topic, _) = topics.get_or_add(text.filter(|text| is_directory_name(text))?, 1);
        let hash = TopicHash::new(name);
        let (number, _) = self
            .topics
            .insert_full(name.into(), FoundTopic { hash, topic });
        Some(number)
    }

    /// Hash for the keys of a topic.
    #[inline]
    pub fn hash(&self, topic: usize) -> Option<TopicHash> {
        self.topics.get_index(topic).map(|(_, found)| found.hash)
    }

    /// The number of a queue, if it has one.
    #[inline]
    pub fn number(&self, topic: usize, queue: u32) -> Option<usize> {
        let number = self.numbers.get(short(topic), queue);
        number.copied().flatten().map(|number| number as usize)
    }

    /// Whether a queue exists that may have no number.
    #[cold]
    pub fn is_listed(&self, topic: usize, queue: u32, queues: &Queues) -> bool {
        let found = self.topics.get_index(topic);
        found.is_some_and(|(_, found)| queues.has(&found.topic, queue))
    }

    /// The next offset of a queue.
    #[inline]
    pub fn end(&self, queue: usize) -> u64 {
        self.slots.get(queue).map_or(0, |slot| slot.queue.max())
    }

    /// The number of a queue, which gets one. It is valid until the next call of
    /// [`Finder::limit`].
    #[inline]
    pub fn queue(&mut self, topic: usize, queue: u32, queues: &Queues) -> Result<usize> {
        match self.number(topic, queue) {
            Some(number) => Ok(number),
            None => self.add_queue(topic, queue, queues),
        }
    }

    #[cold]
    fn add_queue(&mut self, topic: usize, queue: u32, queues: &Queues) -> Result<usize> {
        let number = self.slots.len();
        if let Some((_, found)) = self.topics.get_index(topic) {
            let queue = queues.get_or_add(&found.topic, queue)?;
            *self.numbers.place(short(topic), queue.id) = Some(short(number));
            self.has_added |= queue.max() == queue.min();
            self.slots.push(Slot { queue, map: None });
        }
        Ok(number)
    }

    /// Whether an empty queue was added since the last call.
    pub fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.has_added)
    }

    /// How many queues have a number. All numbers are below it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether [`Finder::limit`] would drop the cached maps.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.slots.len() >= SLOTS_MAX
    }

    /// Drops the cached maps if there are too many. Numbers of queues change.
    pub fn limit(&mut self) {
        if self.is_full() {
            self.numbers.clear();
            self.slots.clear();
        }
    }

    /// Loads the end of a queue, and the place of entry `offset`, into the processor's cache.
    /// Returns a value that depends on what was loaded.
    #[inline]
    pub fn touch(&self, queue: usize, offset: u64) -> u64 {
        let Some(slot) = self.slots.get(queue) else {
            return 0;
        };
        if let Some(map) = &slot.map {
            map.prefetch(offset);
        }
        slot.queue.max()
    }

    /// Puts an entry into a queue; see [`ConsumeQueue::put`].
    #[inline]
    pub fn put(&mut self, queue: usize, offset: u64, entry: QueueEntry) -> Result<()> {
        let Some(slot) = self.slots.get_mut(queue) else {
            return Ok(());
        };
        slot.queue.put_with(offset, entry, &mut slot.map).map(drop)
    }

    /// Topic, queue, offset and entry of a record; `None` if it belongs to no queue.
    pub fn find(
        &mut self,
        topics: &Topics,
        queues: &Queues,
        record: &Record<'_>,
        known: &Known<'_>,
        position: u64,
    ) -> Result<Option<Claim>> {
        let Some((queue, offset)) = queue_and_offset(record) else {
            return Ok(None);
        };
        let Some(topic) = self.topic(topics, record.topic(), || true) else {
            return Ok(None);
        };
        self.limit();
        let queue = self.queue(topic, queue, queues)?;
        let found = self.topics.get_index(topic).zip(self.slots.get(queue));
        Ok(found.map(|((_, found), slot)| Claim {
            topic: Arc::clone(&found.topic),
            queue: Arc::clone(&slot.queue),
            offset,
            entry: QueueEntry::of(record, known, position, &queues.store.delays),
        }))
    }
}

/// The place that a record claims, and the entry for it.
pub struct Claim {
    /// Its topic.
    pub topic: Arc<Topic>,
    /// Its queue.
    pub queue: Arc<ConsumeQueue>,
    /// Its offset.
    pub offset: u64,
    /// Its entry.
    pub entry: QueueEntry,
}
