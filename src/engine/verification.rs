//! What a verification finds, whole or in parts, and what a repair does.

use crate::damage::Damage;
use std::ops::Range;
use std::path::PathBuf;

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Records of the log that are whole.
    pub records: u64,
    /// Queue entries that lead to their record.
    pub queue_entries: u64,
    /// Index entries that lead to a record with their key.
    pub index_entries: u64,
    /// Records whose whole-record checksum is stale.
    pub stale_checksums: u64,
    /// All that is damaged.
    pub damage: Vec<Damage>,
}

/// A part of a store that can be verified by itself; see [`crate::Files::stretches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Positions of the log, from one on where a record may begin.
    Log(Range<u64>),
    /// Entries of a queue.
    Queue {
        /// Its topic.
        topic: String,
        /// Its number.
        queue: u32,
        /// Numbers of the entries.
        numbers: Range<u64>,
    },
    /// An index file.
    Index {
        /// Its name as a number.
        name: u64,
        /// How many entries it had when it was listed.
        entries: u64,
    },
}

/// Bytes of the log that hold no record, what is wrong with the first, and the messages that lay
/// there.
pub type FoundHole = (Range<u64>, String, Vec<(String, u32, u64)>);

/// What the verification of a part found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What is whole, and damage other than holes.
    pub found: Verification,
    /// Holes that begin in a part of the log; for other parts those that its entries lead into.
    pub holes: Vec<FoundHole>,
    /// Store time of the last whole record, in ms.
    pub last_store_ms: i64,
}

/// What a repair did in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairStep {
    /// The file.
    pub path: PathBuf,
    /// First byte: a position of the log in a log file, a byte of the file elsewhere.
    pub position: u64,
    /// Bytes that are of no use any more, or were written again.
    pub length: u64,
    /// What was done.
    pub what: String,
    /// Where the bytes are kept that were there before; `None` where nothing but zeros was there,
    /// or what can be built again from the log.
    pub saved: Option<PathBuf>,
    /// Messages known to be lost: topic, queue, offset.
    pub lost: Vec<(String, u32, u64)>,
}

/// What a repair did, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// What was done, in order.
    pub steps: Vec<RepairStep>,
    /// What is damaged as before.
    pub left: Vec<Damage>,
}
