//! Whether all bytes of an atomic batch were stored, even if some were damaged later.
//!
//! Before a batch is stored, its place holds zeros. A process that dies while it stores leaves
//! zeros at the end, and a power loss zeros in whole sectors. So all of a batch was stored if its
//! length leads to another batch or to the end of what the file holds, no sector of it is missing,
//! and it does not end with many zeros. If its length is damaged, its checksum may prove the end.

use crate::disk::Disk;
use crate::engine::partition_log::segments::names::{self, State};
use crate::engine::partition_log::segments::proof::proven;
use crate::engine::partition_log::segments::reader::{Here, Reader};
use crate::engine::partition_log::segments::sectors::lacks_sector;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::Result;
use crate::num::be_u32;
use crate::record::kafka::HEAD_LEN;
use crate::record::kafka::header::{BATCH_LEN_MAX, LEN_AT, LEN_END};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A damaged batch that ends with more zeros counts as torn. An empty value and no headers at its
/// end have no more.
const LAST_ZEROS: usize = 3;

/// Whether all batches with these offsets were stored in a partition.
///
/// # Errors
///
/// Those of reading.
pub fn are_stored(disk: &dyn Disk, folder: &Path, offsets: &Range<u64>) -> Result<bool> {
    let mut files = names::log_files(disk, folder)?;
    files.retain(|file| file.state == State::Used && file.base < offsets.end);
    let first = files.partition_point(|file| file.base <= offsets.start);
    let mut next = offsets.start;
    let mut files = files.into_iter().skip(first.saturating_sub(1)).peekable();
    while let Some(file) = files.next() {
        let segment = Segment {
            base: file.base,
            path: folder.join(format!("{:020}.log", file.base)),
            len: file.len,
        };
        let end = files.peek().map_or(offsets.end, |later| later.base);
        match batches(disk, &Arc::new(segment), next..end)? {
            true => next = end,
            false => return Ok(false),
        }
    }
    Ok(next == offsets.end)
}

/// Whether the batches with these offsets, the last ones of a segment, were stored.
fn batches(disk: &dyn Disk, segment: &Arc<Segment>, offsets: Range<u64>) -> Result<bool> {
    let mut reader = Reader::open(disk, segment)?;
    let mut position = reader.seek(disk, offsets.start)?;
    let mut before = 0;
    while let Here::Batch(header) = reader.here(position)?
        && (before..offsets.start).contains(&header.last_offset())
    {
        position += u64::from(header.len);
        before = header.last_offset() + 1;
    }
    let data_end = reader.data_end(disk, position)?;
    let (mut next, mut left) = (offsets.start, 2 * reader.len);
    while next < offsets.end {
        if let Here::Batch(header) = reader.here(position)?
            && header.first_offset() == next
            && reader.is_whole(position, &header)?
        {
            position += u64::from(header.len);
            next = header.last_offset() + 1;
            continue;
        }
        let damaged = position..data_end;
        let Some(end) = end_of(disk, &mut reader, (damaged, next), &mut left)? else {
            return Ok(false);
        };
        next = match reader.here(end)? {
            Here::Batch(later) if (next + 1..=offsets.end).contains(&later.first_offset()) => {
                later.first_offset()
            }
            _ if end >= data_end => offsets.end,
            _ => return Ok(false),
        };
        position = end;
    }
    Ok(next == offsets.end)
}

/// Where the damaged batch ends that begins with these bytes, if all of it was stored; `None` if
/// some of it may not have been. `left`: how many bytes may be searched for it.
fn end_of(
    disk: &dyn Disk,
    reader: &mut Reader,
    (bytes, first): (Range<u64>, u64),
    left: &mut u64,
) -> Result<Option<u64>> {
    let position = bytes.start;
    let mut end = reader.true_end(bytes.clone(), left)?;
    if end.is_none() {
        end = proven(disk, &reader.segment, bytes)?.map(|batch| batch.end);
    }
    if end.is_none() {
        end = stated_end(reader, position)?;
    }
    let Some(end) = end else {
        return Ok(None);
    };
    let is_torn = lacks_sector(disk, &reader.segment, position..end, first)?;
    Ok(Some(end).filter(|_| !is_torn))
}

/// Where a batch ends by its length, if it does not end with more zeros than a batch may.
fn stated_end(reader: &Reader, position: u64) -> Result<Option<u64>> {
    let head = reader.bytes(position, LEN_END)?;
    if head.len() < LEN_END {
        return Ok(None);
    }
    let len = be_u32(&head, LEN_AT) as usize + LEN_END;
    let end = position + len as u64;
    if !(HEAD_LEN..=BATCH_LEN_MAX).contains(&len) || end > reader.len {
        return Ok(None);
    }
    let last = reader.bytes(end - LAST_ZEROS as u64 - 1, LAST_ZEROS + 1)?;
    Ok(last.iter().any(|byte| *byte != 0).then_some(end))
}
