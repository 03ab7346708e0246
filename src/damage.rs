//! Damage: what a store reports of places that it cannot read.

use std::path::PathBuf;

/// A place in the store that is damaged, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// First damaged byte: a position of the log in a log file, a byte of the file elsewhere.
    pub position: u64,
    /// Bytes that are not readable.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
    /// Messages known to be lost: topic, queue, offset.
    pub lost: Vec<(String, u32, u64)>,
}
