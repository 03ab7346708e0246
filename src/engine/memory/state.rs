//! The tables of the memory engine, and the chunks that hold its records.

use super::NAME;
use crate::engine::{Appended, Place, Rows, Topic, Topics};
use crate::error::{At, Error, Op, Result};
use crate::record::{Batch, Layout, Message, Row};
use crate::region::Region;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a chunk; a longer append gets a chunk of its own length.
const CHUNK_LEN: usize = 1 << 20;

/// All that is stored. A position is an index into `log`.
#[derive(Debug, Default)]
pub(super) struct State {
    log: Vec<Entry>,
    chunks: Vec<Arc<Region>>,
    /// Bytes used in the last chunk.
    used: usize,
    /// Indexed by [`Topic::id`].
    topics: Vec<TopicTables>,
    store_timestamp: i64,
    bytes: u64,
}

/// Where a record is stored.
#[derive(Clone, Copy, Debug)]
struct Entry {
    chunk: usize,
    start: usize,
    layout: Layout,
}

#[derive(Debug, Default)]
struct TopicTables {
    /// Positions by offset, of each queue.
    queues: BTreeMap<u32, Vec<u64>>,
    /// Positions by key, in ascending order.
    keys: HashMap<Box<[u8]>, Vec<u64>, foldhash::fast::RandomState>,
}

impl State {
    /// Appends all rows of the parts. On return all are there, or none.
    ///
    /// The store time is `now`, or the previous store time if the clock was set back.
    pub(super) fn append(
        &mut self,
        parts: &mut [(&Topic, &mut Batch)],
        now: i64,
        indexed: bool,
    ) -> Result<Appended> {
        let len = parts.iter().map(|(_, batch)| batch.encoded_len()).sum();
        let chunk = self.make_room(len)?;
        let store_timestamp = self.store_timestamp.max(now);
        self.store_timestamp = store_timestamp;
        let count = parts.iter().map(|(_, batch)| batch.len()).sum();
        let mut rows = Vec::with_capacity(count);
        for (topic, batch) in parts {
            self.append_part(topic, batch, &chunk, indexed, &mut rows);
        }
        chunk.publish(self.used);
        Ok(Appended {
            rows: rows.into(),
            store_timestamp,
            end: self.log.len() as u64,
            durable: true,
            ..Appended::default()
        })
    }

    /// Appends rows of one topic to a chunk that has room for them.
    fn append_part(
        &mut self,
        topic: &Topic,
        batch: &mut Batch,
        chunk: &Region,
        indexed: bool,
        rows: &mut Vec<Place>,
    ) {
        let store_timestamp = self.store_timestamp;
        let mut tables = std::mem::take(self.tables(topic.id));
        for index in 0..batch.len() {
            let Some(number) = batch.queue(index) else {
                unreachable!("the index counts the rows")
            };
            let position = self.log.len() as u64;
            let queue = tables.queues.entry(number).or_default();
            let offset = queue.len() as u64;
            let bytes = batch.seal(index, offset, position, store_timestamp);
            let record = self.store(chunk, bytes);
            queue.push(position);
            if indexed {
                tables.index(&record, position);
            }
            rows.push(Place {
                position,
                queue: number,
                offset,
            });
        }
        *self.tables(topic.id) = tables;
    }

    /// Returns a chunk with room for `len` bytes. Fails before changing anything.
    fn make_room(&mut self, len: usize) -> Result<Arc<Region>> {
        if let Some(chunk) = self.chunks.last()
            && len <= chunk.len() - self.used
        {
            return Ok(Arc::clone(chunk));
        }
        if u32::try_from(len).is_err() {
            return Err(Error::TooLarge {
                what: "batch, encoded,".to_owned(),
                size: len as u64,
                limit: u64::from(u32::MAX),
            });
        }
        let name = Path::new(NAME);
        let chunk = Region::anonymous(len.max(CHUNK_LEN), name).at(Op::Allocate, name)?;
        let chunk = Arc::new(chunk);
        self.chunks.push(Arc::clone(&chunk));
        self.used = 0;
        Ok(chunk)
    }

    /// Copies a record into `chunk`, which has room for it, and adds it to the log.
    fn store<'a>(&mut self, chunk: &Region, bytes: &'a [u8]) -> Row<'a> {
        let Ok(record) = Row::parse(bytes) else {
            unreachable!("a batch encodes nothing that does not read back as a record")
        };
        let Ok(()) = chunk.write(self.used, bytes) else {
            unreachable!("memory without a file does not fault")
        };
        self.log.push(Entry {
            chunk: self.chunks.len() - 1,
            start: self.used,
            layout: record.layout(),
        });
        self.used += bytes.len();
        self.bytes += bytes.len() as u64;
        record
    }

    fn tables(&mut self, topic: u32) -> &mut TopicTables {
        let index = topic as usize;
        if self.topics.len() <= index {
            self.topics.resize_with(index + 1, TopicTables::default);
        }
        let Some(tables) = self.topics.get_mut(index) else {
            unreachable!("the tables were made longer than the index")
        };
        tables
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Queues that hold messages, in order.
    pub(super) fn queues(&self, topic: u32) -> impl Iterator<Item = u32> {
        let tables = self.topics.get(topic as usize);
        tables.into_iter().flat_map(|t| t.queues.keys().copied())
    }

    /// Positions of the messages of a queue, by offset.
    pub(super) fn queue(&self, topic: u32, queue: u32) -> Option<&[u64]> {
        let queue = self.topics.get(topic as usize)?.queues.get(&queue)?;
        Some(queue)
    }

    /// Position of the message at a queue offset.
    pub(super) fn position_of(&self, topic: u32, queue: u32, offset: u64) -> Option<u64> {
        let offset = usize::try_from(offset).ok()?;
        self.queue(topic, queue)?.get(offset).copied()
    }

    /// Bytes of the record at a queue offset.
    pub(super) fn size_of(&self, topic: u32, queue: u32, offset: u64) -> Option<u64> {
        let (_, entry) = self.place(self.position_of(topic, queue, offset)?)?;
        Some(u64::from(entry.layout.total_len()))
    }

    /// Positions of the messages with a key, oldest first, from the index.
    pub(super) fn with_key(&self, topic: u32, key: &str) -> &[u64] {
        let tables = self.topics.get(topic as usize);
        let found = tables.and_then(|tables| tables.keys.get(key.as_bytes()));
        found.map_or(&[], Vec::as_slice)
    }

    /// As [`State::with_key`], but reads every message: for stores without an index.
    pub(super) fn search_key(&self, topic: u32, key: &str) -> Vec<u64> {
        let tables = self.topics.get(topic as usize).into_iter();
        let positions = tables.flat_map(|t| t.queues.values().flatten().copied());
        let has_key = |position: &u64| {
            self.record(*position)
                .is_some_and(|record| index_keys(&record).any(|found| found == key.as_bytes()))
        };
        let mut found: Vec<u64> = positions.filter(has_key).collect();
        found.sort_unstable();
        found
    }

    fn place(&self, position: u64) -> Option<(&Arc<Region>, &Entry)> {
        let entry = self.log.get(usize::try_from(position).ok()?)?;
        Some((self.chunks.get(entry.chunk)?, entry))
    }

    /// The record at a position.
    pub(super) fn record(&self, position: u64) -> Option<Row<'_>> {
        let (chunk, entry) = self.place(position)?;
        let bytes = chunk.slice_again(entry.start, entry.layout.total_len() as usize)?;
        Row::with_layout(bytes, entry.layout).ok()
    }

    /// The message at a position.
    pub(super) fn message(&self, position: u64) -> Option<Message> {
        let (chunk, entry) = self.place(position)?;
        let chunk = Arc::clone(chunk);
        Some(Message::with_layout(chunk, entry.start, entry.layout))
    }

    /// Adds the record at a position to `rows`.
    pub(super) fn push_row(&self, position: u64, rows: &mut Rows) {
        if let Some((chunk, entry)) = self.place(position) {
            rows.push(chunk, entry.start, entry.layout);
        }
    }

    /// Whether the message at a position was stored before `time`.
    pub(super) fn stored_before(&self, position: u64, time: i64) -> bool {
        self.record(position)
            .is_some_and(|record| record.store_timestamp() < time)
    }

    /// Counts the queue entries and index entries that point to their record.
    pub(super) fn count_entries(&self, topics: &Topics) -> (u64, u64) {
        let mut counts = (0, 0);
        for (topic, tables) in topics.all().iter().zip(&self.topics) {
            for (queue, positions) in &tables.queues {
                let fits = |(offset, position): (usize, &u64)| {
                    self.record(*position).is_some_and(|record| {
                        record.topic() == topic.name.as_bytes()
                            && i64::from(record.queue_id()) == i64::from(*queue)
                            && record.queue_offset() == offset as i64
                    })
                };
                let entries = positions.iter().enumerate();
                counts.0 += entries.filter(|entry| fits(*entry)).count() as u64;
            }
            for (key, positions) in &tables.keys {
                let fits = |position: &&u64| {
                    self.record(**position)
                        .is_some_and(|record| index_keys(&record).any(|found| found == &**key))
                };
                counts.1 += positions.iter().filter(fits).count() as u64;
            }
        }
        counts
    }
}

impl TopicTables {
    fn index(&mut self, record: &Row<'_>, position: u64) {
        for key in index_keys(record) {
            let positions = match self.keys.get_mut(key) {
                Some(positions) => positions,
                None => self.keys.entry(key.into()).or_default(),
            };
            // A message that repeats a key is indexed once.
            if positions.last() != Some(&position) {
                positions.push(position);
            }
        }
    }
}

fn index_keys<'a>(record: &Row<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    record.known().index_keys()
}
