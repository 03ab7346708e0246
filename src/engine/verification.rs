//! What a verification found, in whole or in parts, and what a repair did.

use crate::damage::Damage;
use std::ops::Range;
use std::path::PathBuf;

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Intact records of the log.
    pub records: u64,
    /// Queue entries that point to their record.
    pub queue_entries: u64,
    /// Index entries that point to a record with their key.
    pub index_entries: u64,
    /// Records whose whole-record checksum is stale.
    pub stale_checksums: u64,
    /// All damage.
    pub damage: Vec<Damage>,
}

/// A part of a store that can be verified separately; see [`crate::Files::stretches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Positions of the log. A record may begin at the first.
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
        /// Number of its entries when it was listed.
        entries: u64,
    },
}

/// Bytes of the log that hold no record, what is wrong with the first of them, and the messages
/// that were stored there.
pub type FoundHole = (Range<u64>, String, Vec<(String, u32, u64)>);

/// What the verification of a part found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What is intact, and damage other than holes.
    pub found: Verification,
    /// For a part of the log, the holes that begin in it. For other parts, the holes that their
    /// entries point into.
    pub holes: Vec<FoundHole>,
    /// Store time of the last intact record, in ms.
    pub last_store_ms: i64,
}

/// What a repair did in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairStep {
    /// The file.
    pub path: PathBuf,
    /// First byte: a position of the log if it is a log file, otherwise a byte of the file.
    pub position: u64,
    /// Number of bytes that are no longer used, or that were written again.
    pub length: u64,
    /// What was done.
    pub what: String,
    /// Copy of the previous bytes; `None` if they were zeros or can be rebuilt from the log.
    pub saved: Option<PathBuf>,
    /// Messages known to be lost: topic, queue, offset.
    pub lost: Vec<(String, u32, u64)>,
}

impl RepairStep {
    /// A damaged file that was written again as a whole.
    pub(crate) fn of_file(damage: &Damage, what: &str, saved: Option<PathBuf>) -> RepairStep {
        RepairStep {
            path: damage.path.clone(),
            position: 0,
            length: damage.length,
            what: what.to_owned(),
            saved,
            lost: Vec::new(),
        }
    }
}

/// What a repair did, and what it could not repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// What was done, in order.
    pub steps: Vec<RepairStep>,
    /// Damage that remains.
    pub left: Vec<Damage>,
}
