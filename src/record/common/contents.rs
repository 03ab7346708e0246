//! A fingerprint of the rows of a batch that does not depend on their order and division.
//!
//! A batch that runs again may have another order and division. So each row has a checksum, and the
//! sum of these is that of the batch. It covers what the row states: topic, queue, body, key, tag,
//! headers and time. It excludes what staging adds, such as the time of a row that has none.

/// What the rows of a batch have in common with those of a retry, in any order and division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of rows.
    pub rows: u64,
    /// Sum of the checksums of the rows.
    pub sum: u64,
}

impl Contents {
    /// Adds more rows.
    pub fn add(&mut self, other: Contents) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}
