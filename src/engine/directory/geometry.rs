//! Sizes of a store's files.

use std::ops::RangeInclusive;

/// Sizes of a store's files, fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a commit log file.
    pub log_file_len: u64,
    /// Entries of a queue file.
    pub queue_file_entries: u64,
    /// Slots of an index file.
    pub index_slots: u32,
    /// Entries of an index file.
    pub index_entries: u32,
}

impl Geometry {
    /// Allowed bytes of a commit log file. RocketMQ accepts any Java `int`; a file without room for
    /// one record and its BLANK cannot be a log.
    pub const LOG_FILE_LEN: RangeInclusive<u64> = 128..=1 << 31;
    /// Allowed entries of a queue file, whose length is a Java `int`.
    pub const QUEUE_FILE_ENTRIES: RangeInclusive<u64> = 1..=(1 << 31) / 20;
    /// Allowed slots of an index file.
    pub const INDEX_SLOTS: RangeInclusive<u32> = 1..=1 << 28;
    /// Allowed entries of an index file; the first one is never used.
    pub const INDEX_ENTRIES: RangeInclusive<u32> = 2..=80_000_000;

    /// Whether all sizes are allowed.
    pub(super) fn is_within_bounds(&self) -> bool {
        Geometry::LOG_FILE_LEN.contains(&self.log_file_len)
            && Geometry::QUEUE_FILE_ENTRIES.contains(&self.queue_file_entries)
            && Geometry::INDEX_SLOTS.contains(&self.index_slots)
            && Geometry::INDEX_ENTRIES.contains(&self.index_entries)
    }
}
