//! What compaction does with messages without a key, and what it did.

/// What a compaction does with messages without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyless {
    /// Drops them.
    Drop,
    /// Leaves a partition that has one as it is, and reports that.
    Refuse,
}

/// Counts of a compaction, over all its passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Partitions that were compacted.
    pub partitions: u64,
    /// Bytes of the segments that were replaced.
    pub bytes_read: u64,
    /// Bytes of those that replace them.
    pub bytes_written: u64,
    /// Messages in the segments that were replaced, without control records.
    pub messages_read: u64,
    /// Messages that were kept.
    pub messages_written: u64,
    /// Whether nothing is left that could be dropped.
    pub is_complete: bool,
}

impl Compacted {
    /// Adds the counts of another compaction.
    pub fn add(&mut self, other: &Compacted) {
        self.partitions += other.partitions;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.messages_read += other.messages_read;
        self.messages_written += other.messages_written;
    }
}
