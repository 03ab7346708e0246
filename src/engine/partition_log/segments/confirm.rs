//! Whether an entry of a time index can be trusted.

use super::index::TimeEntry;
use super::reader::Reader;
use super::walk::{Step, Walk};
use crate::disk::Disk;
use crate::error::Result;

/// Compares an entry of the time index with its batch. Returns the position of a batch at or before
/// that one; `None` if they do not agree.
pub fn confirm(disk: &dyn Disk, reader: &mut Reader, entry: TimeEntry) -> Result<Option<u64>> {
    let begin = reader.seek(disk, entry.offset)?;
    let mut walk = Walk::new(Reader::open(disk, &reader.segment)?, begin);
    loop {
        match walk.next(disk)? {
            Step::Batch(found) if found.header.last_offset() < entry.offset => {}
            Step::Batch(found) => {
                let agrees = found.header.max_timestamp == entry.timestamp;
                return Ok(agrees.then_some(begin));
            }
            Step::Damage(..) => {}
            Step::End => return Ok(None),
        }
    }
}
