//! Room after the batches of a complete segment. A writer creates a file at its full length and
//! cuts it when the segment is completed. If it dies before that, zeros are left, which hold no
//! message.

use super::reader::Reader;
use super::segment::Segment;
use super::walk::{Step, Walk};
use crate::disk::Disk;
use crate::error::Result;
use crate::record::Flaw;
use std::ops::Range;
use std::sync::Arc;

/// Whether the damage that a walk has just met is such room: zeros up to the end of the segment,
/// after the last offset before the next segment, which begins at `next_base`.
pub fn is_room(walk: &Walk, bytes: &Range<u64>, flaw: &Flaw, next_base: u64) -> bool {
    matches!(flaw, Flaw::Empty) && bytes.end >= walk.reader.len && walk.next_offset == next_base
}

/// Where the batches of a complete segment end, if room follows them.
///
/// # Errors
///
/// Those of reading.
pub fn find_room(disk: &dyn Disk, segment: &Arc<Segment>, next_base: u64) -> Result<Option<u64>> {
    let mut reader = Reader::open(disk, segment)?;
    let begin = reader.seek_end(disk)?;
    let mut walk = Walk::new(reader, begin);
    loop {
        match walk.next(disk)? {
            Step::Damage(bytes, flaw) if is_room(&walk, &bytes, &flaw, next_base) => {
                return Ok(Some(bytes.start));
            }
            Step::Batch(_) | Step::Damage(..) => {}
            Step::End => return Ok(None),
        }
    }
}
