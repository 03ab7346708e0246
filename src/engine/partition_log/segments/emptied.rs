//! Log files that have lost all that was in them.
//!
//! A log file without data is empty, or has only zeros that take no space. A replacement that keeps
//! no message has no data either, but has both indexes, without entries, beside it.

use super::index::{OffsetIndex, TimeIndex};
use super::names::beside;
use super::segment::Segment;
use crate::disk::Disk;
use crate::error::Result;

/// Whether the log file of a segment has data.
///
/// # Errors
///
/// Those of reading.
pub fn has_data(disk: &dyn Disk, segment: &Segment) -> Result<bool> {
    Ok(disk.next_data(&segment.path, 0)?.is_some())
}

/// Whether a complete segment had messages, as far as its indexes tell: one of them has entries, or
/// both are missing.
///
/// # Errors
///
/// Those of reading.
pub fn had_messages(disk: &dyn Disk, segment: &Segment) -> Result<bool> {
    if let Some(offsets) = OffsetIndex::open(disk, segment)?
        && offsets.len() > 0
    {
        return Ok(true);
    }
    if let Some(times) = TimeIndex::open(disk, segment)?
        && times.len() > 0
    {
        return Ok(true);
    }
    for ending in [".index", ".timeindex"] {
        if disk.stat(&beside(&segment.path, ending))?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}
