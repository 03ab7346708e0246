//! Reading messages by offset, position, id, key and time.

use super::Store;
use crate::engine::{COPIED_MAX, Check, Cursor, Filter, Point, Rows};
use crate::error::{Error, Result};
use crate::record::Message;
use std::ops::{Range, RangeInclusive};

/// Entries that a filtered read examines, unless more messages are requested.
const READ_EXAMINED_MIN: u64 = 800;

/// Entries that a read examines between two calls of `go_on`.
const STRETCH: u64 = 4096;

/// The result of a read; see [`Store::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadStatus {
    /// At least one message.
    Found,
    /// There were messages, but none passed the filter.
    NoMatchedMessage,
    /// The topic or the queue does not exist.
    NoMatchedLogicQueue,
    /// The queue has never held a message.
    NoMessageInQueue,
    /// The offset is before the first message.
    OffsetTooSmall,
    /// The offset is the next to be written.
    OffsetOverflowOne,
    /// The offset is after the next to be written.
    OffsetOverflowBadly,
    /// The entries at the offset point to no message: they are fillers or damaged.
    OffsetFoundNull,
    /// The messages at the offset have just been deleted.
    MessageWasRemoving,
}

/// The messages of one read, and where to continue.
#[derive(Clone, Debug)]
pub struct ReadBatch {
    /// The result.
    pub status: ReadStatus,
    /// The messages in offset order.
    pub messages: Vec<Message>,
    /// Where the next read begins.
    pub next_offset: u64,
    /// First offset of the queue.
    pub min_offset: u64,
    /// Next offset to be written.
    pub max_offset: u64,
}

impl ReadBatch {
    /// A batch without messages, of a queue with these bounds.
    fn empty(status: ReadStatus, next_offset: u64, bounds: Range<u64>) -> ReadBatch {
        ReadBatch {
            status,
            messages: Vec::new(),
            next_offset,
            min_offset: bounds.start,
            max_offset: bounds.end,
        }
    }
}

impl Store {
    /// The message at a queue offset.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`] with the
    /// bounds, [`Error::Corrupt`] if the message is lost.
    pub fn get(&self, topic: &str, queue: u32, offset: i64) -> Result<Message> {
        let engine = self.engine()?;
        let topic = self.topic(topic)?;
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            return Err(topic.unknown_queue(queue));
        };
        let message = engine.get_within(&topic, queue, offset, bounds)?;
        self.count_read(1);
        Ok(message)
    }

    /// The message whose record begins at `position`.
    pub fn message_at(&self, position: u64) -> Result<Message> {
        let message = self.engine()?.message_at(position)?;
        self.count_read(1);
        Ok(message)
    }

    /// The message with this id: 32 or 56 hex digits; in a partition log `topic-queue@offset`.
    pub fn message_by_id(&self, id: &str) -> Result<Message> {
        let message = self.engine()?.message_with_id(id)?;
        self.count_read(1);
        Ok(message)
    }

    /// Messages of a topic with exactly this key, stored in `begin..=end` (ms), newest first. Of a
    /// partition log, whose records are copied, those of the newest 64 MiB, but at least one.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        begin: i64,
        end: i64,
        max_messages: usize,
    ) -> Result<Vec<Message>> {
        self.query_while(
            (topic, key.as_bytes()),
            begin..=end,
            max_messages,
            &mut || true,
        )
    }

    /// Offset of the first message of a queue stored at or after `time_ms`.
    ///
    /// Before the first message, the first offset; after the last message, the next offset to be
    /// written.
    pub fn offset_at(&self, topic: &str, queue: u32, time_ms: i64) -> Result<u64> {
        let topic = self.topic(topic)?;
        let engine = self.engine()?;
        match engine.bounds(&topic, queue)? {
            Some(_) => engine.offset_at(&topic, queue, Point::Time(time_ms)),
            None => Err(topic.unknown_queue(queue)),
        }
    }

    /// Reads up to `max_messages` messages of a queue from `offset` on, and at most `max_bytes` of
    /// records; but always at least one message, if there is one. Of a partition log, whose records
    /// are copied, a read returns at most about 64 MiB.
    ///
    /// With a filter, examines at most `max(800, max_messages)` entries; `next_offset` tells where
    /// to continue.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if `max_messages` is 0, because no status could tell that read from
    /// one that found nothing.
    pub fn read(
        &self,
        topic: &str,
        queue: u32,
        offset: i64,
        max_messages: usize,
        max_bytes: Option<u64>,
        filter: &Filter,
    ) -> Result<ReadBatch> {
        let (place, most) = ((topic, queue, offset), (max_messages, max_bytes));
        self.read_while(place, most, filter, &mut || true)
    }

    /// As [`Store::query`], for a topic and key. Without an index, calls `go_on` now and then; once
    /// it returns false, the search ends with the messages found so far.
    ///
    /// # Errors
    ///
    /// As [`Store::query`].
    pub fn query_while(
        &self,
        (topic, key): (&str, &[u8]),
        times: RangeInclusive<i64>,
        max_messages: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Message>> {
        let topic = self.topic(topic)?;
        let (begin, end) = times.into_inner();
        let engine = self.engine()?;
        let found = engine.query(&topic, key, begin, end, max_messages, go_on)?;
        self.count_read(found.len());
        Ok(found)
    }

    /// As [`Store::read`], for a topic, queue and offset, and maximum numbers of messages and
    /// bytes. Calls `go_on` after every few thousand entries; if it returns false, the read ends
    /// with the messages found so far.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub fn read_while(
        &self,
        (topic, queue, offset): (&str, u32, i64),
        (max_messages, max_bytes): (usize, Option<u64>),
        filter: &Filter,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<ReadBatch> {
        let engine = self.engine()?;
        if max_messages == 0 {
            let rule = "be at least 1";
            return Err(Error::must("max_messages", 0, rule));
        }
        let nothing =
            |status, next_offset, bounds| Ok(ReadBatch::empty(status, next_offset, bounds));
        let topic = match self.topic(topic) {
            Ok(topic) => topic,
            Err(Error::UnknownTopic { .. }) => {
                return nothing(ReadStatus::NoMatchedLogicQueue, 0, 0..0);
            }
            Err(error) => return Err(error),
        };
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            return nothing(ReadStatus::NoMatchedLogicQueue, 0, 0..0);
        };
        let start = match start_of_read(offset, bounds.start, bounds.end) {
            Ok(start) => start,
            Err((status, next_offset)) => return nothing(status, next_offset, bounds),
        };
        let examined = READ_EXAMINED_MIN.max(max_messages as u64);
        let end = match filter.is_empty() {
            true => bounds.end,
            false => bounds.end.min(start.saturating_add(examined)),
        };
        let mut read = Collected::new(max_messages, max_bytes);
        let mut next_offset = start;
        loop {
            let until = end.min(next_offset + STRETCH);
            let range = next_offset..until;
            let mut cursor = engine.cursor(&topic, queue, range, filter, Check::Full)?;
            next_offset = read.collect(&mut *cursor, go_on)?;
            if read.is_full || next_offset < until || until == end || !go_on() {
                break;
            }
        }
        let messages = read.messages;
        self.count_read(messages.len());
        let bounds = match messages.is_empty() {
            true => engine.bounds(&topic, queue)?.unwrap_or(bounds),
            false => bounds,
        };
        let status = match (messages.is_empty(), filter.is_empty()) {
            (false, _) => ReadStatus::Found,
            (true, _) if start < bounds.start => ReadStatus::MessageWasRemoving,
            (true, false) => ReadStatus::NoMatchedMessage,
            (true, true) => ReadStatus::OffsetFoundNull,
        };
        Ok(ReadBatch {
            status,
            messages,
            next_offset: next_offset.max(bounds.start),
            min_offset: bounds.start,
            max_offset: bounds.end,
        })
    }

    /// Counts messages that were read.
    pub(crate) fn count_read(&self, messages: usize) {
        self.shared.meters.gets.read(messages);
    }
}

/// Where a read at `offset` of a queue with these bounds begins, or why there is nothing to read
/// and where the next read begins.
fn start_of_read(offset: i64, min: u64, max: u64) -> Result<u64, (ReadStatus, u64)> {
    match u64::try_from(offset) {
        _ if max == 0 => Err((ReadStatus::NoMessageInQueue, 0)),
        Ok(start) if start > max => Err((ReadStatus::OffsetOverflowBadly, max)),
        Ok(start) if start == max => Err((ReadStatus::OffsetOverflowOne, max)),
        Ok(start) if start >= min => Ok(start),
        _ => Err((ReadStatus::OffsetTooSmall, min)),
    }
}

/// Messages that a read has collected.
struct Collected {
    messages: Vec<Message>,
    bytes: u64,
    copied: u64,
    max_messages: usize,
    max_bytes: Option<u64>,
    is_full: bool,
    rows: Rows,
}

impl Collected {
    fn new(max_messages: usize, max_bytes: Option<u64>) -> Collected {
        Collected {
            messages: Vec::new(),
            bytes: 0,
            copied: 0,
            max_messages,
            max_bytes,
            is_full: false,
            rows: Rows::default(),
        }
    }

    /// Adds the messages of a cursor, up to both limits but at least one, unless `go_on` returns
    /// false first. Returns where the next read begins.
    fn collect(&mut self, cursor: &mut dyn Cursor, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        let rows = &mut self.rows;
        while self.messages.len() < self.max_messages && self.copied < COPIED_MAX {
            let left = self.max_messages - self.messages.len();
            rows.clear();
            let has_more = cursor.step(left.min(1024), rows)?;
            if rows.rows.is_empty() {
                if has_more && go_on() {
                    continue;
                }
                return Ok(cursor.offset());
            }
            self.copied += rows.copied;
            for row in &rows.rows {
                self.bytes += u64::from(row.layout.total_len());
                let is_above = self.max_bytes.is_some_and(|limit| self.bytes > limit);
                if is_above && !self.messages.is_empty() {
                    self.is_full = true;
                    let record = rows.record(row);
                    return Ok(record.map_or(0, |record| record.queue_offset() as u64));
                }
                self.messages.extend(rows.message(row));
            }
        }
        self.is_full = true;
        Ok(cursor.offset())
    }
}
