//! Segments: the files that hold the batches of a partition.

use std::path::PathBuf;
use std::sync::Arc;

/// A segment holds offsets up to this far from its base.
const SPAN_MAX: u64 = i32::MAX as u64;

/// The segments of a partition, in order.
pub type Segments = Arc<[Arc<Segment>]>;

/// A segment of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// No offset in it is lower.
    pub base: u64,
    /// Its log file.
    pub path: PathBuf,
    /// Length of the log file when it was listed.
    pub len: u64,
}

impl Segment {
    /// Whether an offset is in the range of the segment.
    pub fn can_hold(&self, offset: u64) -> bool {
        (self.base..=self.base.saturating_add(SPAN_MAX)).contains(&offset)
    }
}
