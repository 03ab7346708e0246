//! One entry of a consume queue, and a map that holds entries.
//!
//! ```text
//! at  width  field
//! 0   i64    position of the record in the log
//! 8   i32    size of the record
//! 12  i64    tag code: hash of the tag, 0 without; for a delayed message the time of its delivery
//! ```
//!
//! An entry of position 0 and size 0x7FFFFFFF is a filler: no message has that offset.

use crate::mapped::Region;
use crate::num::index;
use crate::record::layout::{be_u32, be_u64};
use std::sync::Arc;

/// Bytes of an entry.
pub const ENTRY_LEN: u64 = 20;
const _: () = assert!(ENTRY_LEN == 8 + 4 + 8);
/// Size that marks a filler.
pub const FILLER_SIZE: u32 = 0x7FFF_FFFF;

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

    /// Whether the entry says that no message has this offset.
    #[inline]
    pub fn is_filler(&self) -> bool {
        self.size == FILLER_SIZE && self.position == 0
    }

    /// Position behind the record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.position.saturating_add(u64::from(self.size))
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; index(ENTRY_LEN)] {
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

    /// Whether the entry leads to a record that may lie below `end`.
    #[inline]
    pub fn is_message(&self, end: u64) -> bool {
        self.size > 0
            && self.size < FILLER_SIZE
            && self.position < end
            && self.position + u64::from(self.size) <= end
    }
}

/// A map with entries of a queue.
#[derive(Clone, Debug)]
pub struct EntryMap {
    pub(super) region: Arc<Region>,
    pub(super) base: usize,
    /// Number of its first entry.
    pub first: u64,
    /// Number behind its last entry.
    pub end: u64,
}

impl EntryMap {
    /// Entry `number`, which lies in `first..end`; one of size 0 where nothing was stored.
    #[inline]
    pub fn entry(&self, number: u64) -> QueueEntry {
        QueueEntry::from_bytes(self.region.words(self.byte_of(number)))
    }

    #[inline]
    pub(super) fn byte_of(&self, number: u64) -> usize {
        self.base + index((number - self.first) * ENTRY_LEN)
    }
}
