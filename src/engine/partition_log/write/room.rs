//! Cuts complete segments to their batches if their files still have the room that a writer
//! reserved: a broker takes the zeros for damage.

use super::ends::Ends;
use super::rules::Rules;
use crate::disk::Disk;
use crate::engine::partition_log::segments::room::find_room;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::Result;
use std::sync::Arc;

/// Segment lengths in options are usually multiples of this, and lengths of cut segments seldom
/// are.
const LENGTH_STEP: u64 = 1 << 10;

/// Cuts the complete segments of a partition whose lengths suggest that they have room. Durable on
/// return. The caller has the partition for itself.
///
/// # Errors
///
/// Those of the disk.
pub fn cut_room(disk: &dyn Disk, ends: &Ends, rules: &Rules) -> Result<()> {
    let is_long = |len: u64| len >= rules.segment_bytes || len.is_multiple_of(LENGTH_STEP);
    for (segment, len) in with_room(disk, ends, is_long)? {
        let by = Segment {
            len,
            ..Segment::clone(&segment)
        };
        ends.replace(segment.base..segment.base + 1, &by, || {
            disk.set_len(&segment.path, len)?;
            disk.sync_file(&segment.path)
        })?;
    }
    Ok(())
}

/// The complete segments that have room, and where it begins. Reads only those whose length
/// `may_have` room.
///
/// # Errors
///
/// Those of reading.
pub fn with_room(
    disk: &dyn Disk,
    ends: &Ends,
    may_have: impl Fn(u64) -> bool,
) -> Result<Vec<(Arc<Segment>, u64)>> {
    let (segments, next) = ends.complete();
    let nexts = segments.iter().skip(1).map(|it| it.base).chain([next]);
    let mut found = Vec::new();
    for (segment, next) in segments.iter().zip(nexts) {
        if segment.len > 0
            && may_have(segment.len)
            && let Some(len) = find_room(disk, segment, next)?
        {
            found.push((Arc::clone(segment), len));
        }
    }
    Ok(found)
}
