//! What a verification finds, and what a repair starts from.

use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::engine::{Damage, Verification};
use std::ops::Range;
use std::sync::Arc;

/// A hole of the log, with what was lost in it.
#[derive(Clone, Debug)]
pub struct LostRange {
    /// From the first byte to the next record, or to the end of the log.
    pub range: Range<u64>,
    /// What is wrong at the first byte.
    pub reason: String,
    /// Store time of the record before it, else of the one after it; 0 if there is neither.
    pub store_ms: i64,
    /// Messages that were here, according to queue entries.
    pub lost: Vec<(String, u32, u64)>,
}

impl LostRange {
    /// A hole of which only the range is known.
    pub fn unnamed(range: Range<u64>) -> LostRange {
        LostRange {
            range,
            reason: String::new(),
            store_ms: 0,
            lost: Vec::new(),
        }
    }
}

/// A queue entry that does not point to its record.
#[derive(Clone, Debug)]
pub struct BadEntry {
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// Number of the entry.
    pub number: u64,
    /// Position of its record, if there is one.
    pub record: Option<u64>,
    /// Position that it points to.
    pub position: u64,
    /// The lost message, if its record does not exist.
    pub lost: Option<(String, u32, u64)>,
}

/// The results of an inspection: for the report, and for a repair.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The part for the report.
    pub found: Verification,
    /// Holes of the log, in order.
    pub holes: Vec<LostRange>,
    /// Records that fill holes.
    pub bridges: Vec<Range<u64>>,
    /// Queue entries that point neither to their record nor into a hole.
    pub entries: Vec<BadEntry>,
    /// Positions of records that no queue entry points to.
    pub strays: Vec<u64>,
    /// Name of the first index file that is damaged or points into a hole.
    pub index_from: Option<u64>,
    /// Damaged tables.
    pub tables: Vec<Damage>,
    /// Store time of the last sound record; 0 if there is none.
    pub last_store_ms: i64,
    /// Whether the caller stopped the check.
    pub stopped: bool,
}

impl Inspection {
    /// The hole that contains a position.
    pub fn hole_at(&mut self, position: u64) -> Option<&mut LostRange> {
        let next = self.holes.partition_point(|h| h.range.start <= position);
        let hole = next.checked_sub(1).and_then(|n| self.holes.get_mut(n));
        hole.filter(|hole| hole.range.contains(&position))
    }

    /// Adds damage of a queue or index file. Merges it with the previous one if they are adjacent.
    pub fn add_entry(&mut self, damage: Damage) {
        if let Some(last) = self.found.damage.last_mut()
            && last.path == damage.path
            && last.reason == damage.reason
            && last.position + last.length == damage.position
        {
            last.length += damage.length;
            last.lost.extend(damage.lost);
        } else {
            self.found.damage.push(damage);
        }
    }
}
