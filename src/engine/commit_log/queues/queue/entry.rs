//! One entry of a ConsumeQueue, and a map that holds entries.
//!
//! ```text
//! at  width  field
//! 0   i64    position of the record in the log
//! 8   i32    size of the record
//! 12  i64    tag code: hash of the tag, 0 if none; the delivery time of a delayed message
//! ```
//!
//! An entry of position 0 and size 0x7FFFFFFF is a filler: no message has that offset. An entry
//! with the tag code 0x4C6F73744C6F7374, which no tag or time has, also counts as a filler. A
//! repair writes it for a lost message; it points to the record that fills the hole.

use crate::error::{At, Op, Result};
use crate::num::{index, low_u32};
use crate::options::DelayLevels;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::layout::{be_u32, be_u64};
use crate::record::rocketmq::properties::{self, Known, SCHEDULE_TOPIC};
use crate::region::Region;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Bytes of an entry.
pub const ENTRY_LEN: u64 = 20;
const _: () = assert!(ENTRY_LEN == 8 + 4 + 8);
const AT_SIZE: usize = 8;
const AT_TAGS: usize = AT_SIZE + 4;
/// Queue offsets are below this; a larger one in a record is damage.
pub const OFFSET_MAX: u64 = 1 << 56;
/// Queue ids in records and directories are below this. It exceeds the number of queues that a
/// topic can be given ([`TOPIC_QUEUES_MAX`](crate::options::TOPIC_QUEUES_MAX)), because another
/// system may have given more.
pub const QUEUE_IDS_MAX: u32 = 1 << 20;
/// Size that marks a filler.
pub const FILLER_SIZE: u32 = 0x7FFF_FFFF;

/// Tag code of the entry of a lost message.
const LOST_CODE: i64 = 0x4C6F_7374_4C6F_7374;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Position of the record.
    pub position: u64,
    /// Size of the record.
    pub size: u32,
    /// Hash of the tag, or delivery time.
    pub tags_code: i64,
}

impl QueueEntry {
    /// No message has this offset.
    pub const FILLER: QueueEntry = QueueEntry {
        position: 0,
        size: FILLER_SIZE,
        tags_code: 0,
    };

    /// The entry of the record at `position` with the properties `known`, in a store with these
    /// delay levels.
    #[inline]
    pub fn of(
        record: &Record<'_>,
        known: &Known<'_>,
        position: u64,
        delays: &DelayLevels,
    ) -> QueueEntry {
        QueueEntry {
            position,
            size: record.layout().total_len,
            tags_code: tags_code(record, known, delays),
        }
    }

    /// The entry of a lost message; `bridge` is the record that fills its place.
    pub fn lost(bridge: &Range<u64>) -> QueueEntry {
        QueueEntry {
            position: bridge.start,
            size: low_u32(bridge.end - bridge.start),
            tags_code: LOST_CODE,
        }
    }

    /// Whether no message has this offset.
    #[inline]
    pub fn is_filler(&self) -> bool {
        self.size == FILLER_SIZE && self.position == 0 || self.tags_code == LOST_CODE
    }

    /// Position after the record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.position.saturating_add(u64::from(self.size))
    }

    #[inline]
    pub fn to_bytes(self) -> [u8; index(ENTRY_LEN)] {
        let mut bytes = [0; index(ENTRY_LEN)];
        bytes[..8].copy_from_slice(&self.position.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    #[inline]
    fn from_bytes(bytes: [u8; index(ENTRY_LEN)]) -> QueueEntry {
        QueueEntry {
            position: be_u64(&bytes, 0),
            size: be_u32(&bytes, 8),
            tags_code: be_u64(&bytes, 12).cast_signed(),
        }
    }

    /// Whether the entry points to a record that may exist below `end`.
    #[inline]
    pub fn is_message(&self, end: u64) -> bool {
        self.size > 0
            && self.size < FILLER_SIZE
            && self.position < end
            && self.position + u64::from(self.size) <= end
    }
}

/// Queue and offset of a record; `None` if it belongs to no queue, or names an impossible one.
#[inline]
pub fn queue_and_offset(record: &Record<'_>) -> Option<(u32, u64)> {
    if !record.is_queued() {
        return None;
    }
    let queue = u32::try_from(record.queue_id()).ok();
    let offset = u64::try_from(record.queue_offset()).ok();
    let queue = queue.filter(|queue| *queue < QUEUE_IDS_MAX)?;
    Some((queue, offset.filter(|offset| *offset < OFFSET_MAX)?))
}

/// The tag code of an entry: the hash of the tag, or the delivery time of a delayed message.
#[inline]
fn tags_code(record: &Record<'_>, known: &Known<'_>, delays: &DelayLevels) -> i64 {
    if let Some(delay) = known.delay
        && record.topic() == SCHEDULE_TOPIC.as_bytes()
    {
        let level = std::str::from_utf8(delay)
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        if let Some(level) = level.filter(|level| *level > 0) {
            let delay = delays.of(usize::try_from(level).unwrap_or(usize::MAX));
            return record
                .store_timestamp()
                .saturating_add(delay.unwrap_or(1000));
        }
    }
    properties::tags_code(known.tags)
}

/// A map with entries of a queue.
#[derive(Clone, Debug)]
pub struct EntryMap {
    pub region: Arc<Region>,
    pub base: usize,
    /// Number of its first entry.
    pub first: u64,
    /// Number after its last entry.
    pub end: u64,
}

impl EntryMap {
    /// Entry `number`, which must be in `first..end`. Its size is 0 if it was not stored, or not
    /// completely.
    #[inline]
    pub fn entry(&self, number: u64) -> Result<QueueEntry> {
        let entry = self.load(self.byte_of(number));
        entry.at(Op::Read, self.region.path())
    }

    #[inline]
    fn load(&self, at: usize) -> io::Result<QueueEntry> {
        // The size is stored last, so it is loaded first: if it is there, so is the rest.
        let size = self.region.words::<4>(at + AT_SIZE)?;
        fence(Ordering::Acquire);
        let mut bytes = self.region.words::<{ index(ENTRY_LEN) }>(at)?;
        bytes[AT_SIZE..AT_TAGS].copy_from_slice(&size);
        Ok(QueueEntry::from_bytes(bytes))
    }

    /// Stores an entry that other processes may be reading. They see all of it or a size of 0,
    /// unless it replaces another entry.
    #[inline]
    pub fn store(&self, number: u64, entry: QueueEntry) -> Result<()> {
        let (at, bytes) = (self.byte_of(number), entry.to_bytes());
        let set = |at, bytes| self.region.set_words(at, bytes);
        set(at, &bytes[..AT_SIZE])
            .and_then(|()| set(at + AT_TAGS, &bytes[AT_TAGS..]))
            .and_then(|()| set(at + AT_SIZE, &bytes[AT_SIZE..AT_TAGS]))
            .at(Op::Store, self.region.path())
    }

    /// Loads the place of entry `number` into the processor's cache. A hint.
    #[inline]
    pub fn prefetch(&self, number: u64) {
        if number >= self.first && number < self.end {
            self.region.prefetch(self.byte_of(number), index(ENTRY_LEN));
        }
    }

    #[inline]
    pub fn byte_of(&self, number: u64) -> usize {
        self.base + index((number - self.first) * ENTRY_LEN)
    }
}
