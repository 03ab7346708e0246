//! Figures: what opening did, and counters of a store.

use crate::meter::{Flushes, Gets, Puts, Rates, WriterStats};
use std::time::Duration;

/// What opening found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the store had been closed properly.
    pub clean: bool,
    /// Position from which the log was walked.
    pub walked_from: u64,
    /// End of the log.
    pub end: u64,
    /// Bytes after the end that opening erased, or ignored in a read-only store.
    pub truncated_bytes: u64,
    /// Records checked. A record that is read for both the log and the index counts twice.
    pub records_checked: u64,
    /// Queue entries added or corrected, also those of queues that were opened later, on first use.
    pub queue_entries_rebuilt: u64,
    /// Index entries added.
    pub index_entries_rebuilt: u64,
    /// Records whose whole-record checksum was stale.
    pub stale_checksums: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Counters of a store since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Messages appended.
    pub messages_sent: u64,
    /// Bytes appended to the log.
    pub bytes_sent: u64,
    /// Appends that failed.
    pub sends_failed: u64,
    /// Those that failed because the log was busy.
    pub busy: u64,
    /// Position after the last message that readers may see.
    pub published: u64,
    /// Position up to which queues and index are complete.
    pub dispatched: u64,
    /// Position up to which the log is durable.
    pub durable: u64,
    /// First position of the log.
    pub min_position: u64,
    /// Known damaged places.
    pub damaged: u64,
    /// Records found whose whole-record checksum was stale.
    pub stale_checksums: u64,
    /// Bytes of deleted log files that are still mapped. The disk gets them back when the last
    /// message, cursor or buffer in them is dropped.
    pub retired_bytes_mapped: u64,
    /// Records that opening checked.
    pub recovered_records: u64,
    /// Bytes after the end that opening erased.
    pub truncated_bytes: u64,
    /// Bytes of all files of the log. In a commit log this includes reserved space; in a partition
    /// log it is the bytes of the batches in all segments.
    pub log_bytes: u64,
    /// Bytes that can still be written to the file system; `None` if unknown.
    pub disk_free: Option<u64>,
    /// How long the append in progress has taken so far; zero if there is none.
    pub append_held: Duration,
    /// Messages read and delivered.
    pub gets: Gets,
    /// How long puts take.
    pub puts: Puts,
    /// How long flushes take.
    pub flushes: Flushes,
    /// Messages and bytes per second.
    pub rates: Rates,
    /// What the live writer shows of itself, if it is another process.
    pub writer: Option<WriterStats>,
}
