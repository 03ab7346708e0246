//! What a verification finds, and a repair starts from.

use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::engine::{Damage, Verification};
use std::ops::Range;
use std::sync::Arc;

/// A stretch of the log that holds no record.
#[derive(Clone, Debug)]
pub struct Hole {
    /// First byte to the next record, or to the end of the log.
    pub range: Range<u64>,
    /// What is wrong with the first byte's record.
    pub reason: String,
    /// Store time of the record before, else of the one behind; 0 where there is neither.
    pub store_ms: i64,
    /// Messages that queue entries say lay here.
    pub lost: Vec<(String, u32, u64)>,
}

impl Hole {
    /// A hole of which nothing but the bytes is known.
    pub fn unnamed(range: Range<u64>) -> Hole {
        Hole {
            range,
            reason: String::new(),
            store_ms: 0,
            lost: Vec::new(),
        }
    }
}

/// A queue entry that does not lead to its record.
#[derive(Clone, Debug)]
pub struct BadEntry {
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// Number of the entry.
    pub number: u64,
    /// Where its record lies, if there is one.
    pub record: Option<u64>,
    /// Where it leads.
    pub position: u64,
    /// The message that is lost with it.
    pub lost: Option<(String, u32, u64)>,
}

/// All that a look at a store finds: what a report says, and what a repair starts from.
#[derive(Debug, Default)]
pub struct Inspection {
    /// For the report.
    pub found: Verification,
    /// Holes of the log, in order.
    pub holes: Vec<Hole>,
    /// Records that fill holes.
    pub bridges: Vec<Range<u64>>,
    /// Queue entries that lead nowhere, and into no hole.
    pub entries: Vec<BadEntry>,
    /// Positions of records that no queue entry leads to.
    pub strays: Vec<u64>,
    /// Name of the first index file that is damaged or leads into a hole.
    pub index_from: Option<u64>,
    /// Damaged tables.
    pub tables: Vec<Damage>,
    /// Store time of the last whole record, 0 without one.
    pub last_store_ms: i64,
    /// Whether the caller ended it.
    pub stopped: bool,
}

impl Inspection {
    /// The hole that a position lies in.
    pub fn hole_at(&mut self, position: u64) -> Option<&mut Hole> {
        let next = self.holes.partition_point(|h| h.range.start <= position);
        let hole = next.checked_sub(1).and_then(|n| self.holes.get_mut(n));
        hole.filter(|hole| hole.range.contains(&position))
    }

    /// Adds a damaged place of a file of entries, joined with the one before where they touch.
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
