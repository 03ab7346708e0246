//! When partitions are compacted, and how.

use crate::cleanup::{CleanupPolicy, Compaction};
use std::time::Duration;

/// The options of compaction as numbers.
#[derive(Clone, Debug)]
pub struct CompactRules {
    /// Which topics are compacted.
    pub policy: CleanupPolicy,
    /// A partition is compacted when this part of what could be compacted is dirty.
    pub dirty_ratio: f64,
    /// How long tombstones stay, in ms.
    pub delete_retention_ms: i64,
    /// How long a message is not compacted, in ms.
    pub min_lag_ms: u64,
    /// How long a message may wait until it is compacted, in ms.
    pub max_lag_ms: u64,
    /// Bytes of the offset map.
    pub dedupe_buffer_size: u64,
    /// Bytes that compaction in the background reads in a second.
    pub bytes_per_second: Option<u64>,
    /// Time between two checks whether something is to be compacted.
    pub backoff: Duration,
}

impl CompactRules {
    /// The rules for a store with these options.
    pub fn new(options: &Compaction) -> CompactRules {
        let days = |days: u64| days * 24 * 3600 * 1000;
        let retention = options.delete_retention_ms.unwrap_or(days(1));
        CompactRules {
            policy: options.cleanup_policy.clone(),
            dirty_ratio: options.min_cleanable_dirty_ratio.unwrap_or(0.5),
            delete_retention_ms: i64::try_from(retention).unwrap_or(i64::MAX),
            min_lag_ms: options.min_compaction_lag_ms.unwrap_or(0),
            max_lag_ms: options.max_compaction_lag_ms.unwrap_or(i64::MAX as u64),
            dedupe_buffer_size: options.log_cleaner_dedupe_buffer_size.unwrap_or(128 << 20),
            bytes_per_second: options.log_cleaner_io_max_bytes_per_second,
            backoff: Duration::from_millis(options.log_cleaner_backoff_ms.unwrap_or(15_000)),
        }
    }
}
