//! Holes: bytes of a segment that are not a whole batch, and how recovery tells what made them.
//!
//! | where, and what follows | what it is | recovery |
//! |---|---|---|
//! | above the recovery point, no whole batch follows | the torn tail of a crash | cuts it off |
//! | above it, whole batches follow, and a sector is missing | left by a power loss | ends there |
//! | above it, whole batches follow, no sector is missing | damage | keeps and reports it |
//! | below the recovery point | damage | keeps and reports it |
//!
//! A power loss may keep some of the sectors that were not synced and lose others. What follows a
//! lost sector was not durable either. [`lacks_sector`] distinguishes a lost sector from bytes that
//! were stored and damaged later.
//!
//! If the recovery points are not known, nobody knows what was durable. Then every hole that
//! batches follow is damage.

use crate::disk::Disk;
use crate::engine::partition_log::segments::names::partition_of;
use crate::engine::partition_log::segments::sectors::lacks_sector;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind};
use crate::error::Result;
use crate::record::kafka::HEAD_LEN;
use std::ops::Range;

/// Bytes that are not a whole batch.
#[derive(Debug)]
pub struct Hole {
    /// From where a batch should begin to the next batch. If none follows, to the end of the batch
    /// that its header states, or else of the last byte that is not zero, and at least of a header.
    pub bytes: Range<u64>,
    /// The first offset that was in it.
    pub first: u64,
    /// The offset after it, if the header of a damaged batch states it.
    pub after: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

/// Adds a hole. It replaces the last ones that begin in it: their lengths were damaged.
pub fn add(holes: &mut Vec<Hole>, hole: Hole) {
    // They are in order.
    while holes
        .pop_if(|it| it.bytes.start >= hole.bytes.start)
        .is_some()
    {}
    holes.push(hole);
}

/// Adds a hole that no whole batch follows in a segment of `len` bytes. The last byte that is not
/// zero ends at `data_end`.
pub fn add_last(holes: &mut Vec<Hole>, mut hole: Hole, data_end: u64, len: u64) {
    // The last hole ends where its header says, and only zeros follow.
    let is_known = |it: &Hole| it.bytes.start == hole.bytes.start && data_end <= it.bytes.end;
    if !holes.last().is_some_and(is_known) {
        let head_end = hole.bytes.start + HEAD_LEN as u64;
        hole.bytes.end = data_end.max(head_end).min(len);
        add(holes, hole);
    }
}

impl Hole {
    /// A hole of these bytes. `first` and `after`: the first offset that was in it, and the one
    /// after it, if that is known.
    pub fn new(
        bytes: Range<u64>,
        (first, after): (u64, Option<u64>),
        reason: impl ToString,
    ) -> Hole {
        Hole {
            bytes,
            first,
            after,
            reason: reason.to_string(),
        }
    }

    /// [`lacks_sector`] of the batch that begins here.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn lacks_sector(&self, disk: &dyn Disk, segment: &Segment) -> Result<bool> {
        lacks_sector(disk, segment, self.bytes.clone(), self.first)
    }

    /// Reports the hole. `next`: the first offset that exists after it; `None` if offsets may leave
    /// gaps, so that it does not tell what was lost.
    pub fn report(&self, report: &Report, segment: &Segment, next: Option<u64>) {
        let bytes = self.bytes.clone();
        let damage = Damage::new(DamageKind::Log, &segment.path, bytes, &self.reason);
        let folder = segment.path.parent().and_then(|folder| folder.file_name());
        let folder = folder.and_then(|name| name.to_str());
        let partition = folder.and_then(partition_of);
        // What the batch states may be wrong.
        let after = [self.after, next].into_iter().flatten().min();
        let (Some((topic, queue)), Some(after)) = (partition, after) else {
            return report.add(damage);
        };
        let lost = (self.first..after).map(|offset| (topic.to_owned(), queue, offset));
        report.add_losing(damage, lost);
    }
}
