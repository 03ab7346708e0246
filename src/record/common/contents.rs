//! What tells the rows of a batch from others, in whatever order and cut they come.
//!
//! A batch that is run again is ordered and cut as it comes, so each row has a checksum of its own,
//! and the sum of them is that of the batch. It covers what the row itself says: topic, queue,
//! body, key, tag, headers and time. What staging adds, as the time of a row that names none, it
//! leaves out.

/// What the rows of a batch have in common with those of a retry, however they are ordered and cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Rows.
    pub rows: u64,
    /// Sum over the rows of a checksum of each.
    pub sum: u64,
}

impl Contents {
    /// Counts more rows in.
    pub fn add(&mut self, other: Contents) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}
