//! Whether all bytes of batches were stored, even if some were damaged later.
//!
//! Before a batch is stored, its place holds zeros. A process that dies while it stores leaves
//! zeros at the end, and a power loss zeros in whole sectors. So all of a batch was stored if its
//! length leads to another batch or to the end of what the file holds, no sector of it is missing,
//! and it does not end with many zeros. If its length is damaged, its checksum may prove the end.

use crate::disk::Disk;
use crate::engine::partition_log::segments::last_zeros::{BEGIN_LEN, is_packed, last_zeros};
use crate::engine::partition_log::segments::names::{self, State};
use crate::engine::partition_log::segments::proof::{Stored, proven};
use crate::engine::partition_log::segments::reader::{Here, Reader};
use crate::engine::partition_log::segments::sectors::lacks_sector;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::Result;
use crate::num::{be_u32, be_u64};
use crate::record::kafka::HEAD_LEN;
use crate::record::kafka::header::{AT_LAST_DELTA, AT_RECORDS, BATCH_LEN_MAX, LEN_AT, LEN_END};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A damaged batch that ends with more zeros counts as torn. An empty value and no headers at its
/// end have no more. Those of the codec come after them.
const ZEROS_MAX: usize = 3;
/// Bytes of the shortest record.
const RECORD_LEN: u64 = 7;
/// How many times longer the records of a packed batch may be, for a guess at their number.
const PACKED: u64 = 1024;
/// Bytes of the offset with which a batch begins.
const OFFSET_LEN: usize = 8;

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
        end = proven(reader, bytes)?.map(|batch| batch.end);
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
    let begin = reader.bytes(position, BEGIN_LEN)?;
    if begin.len() < HEAD_LEN {
        return Ok(None);
    }
    let len = be_u32(&begin, LEN_AT) as usize + LEN_END;
    let end = position + len as u64;
    if !(HEAD_LEN..=BATCH_LEN_MAX).contains(&len) || end > reader.segment.len {
        return Ok(None);
    }
    let want = ZEROS_MAX + 1;
    let last = reader.bytes(end - (last_zeros(&begin) + want) as u64, want)?;
    let is_stored = last.len() == want && last.iter().any(|byte| *byte != 0);
    Ok(is_stored.then_some(end))
}

/// Counts the damaged batches at the start of these bytes, up to the first that may lack a part.
/// Returns where the last of them ends, and how many offsets they have. The caller checks that no
/// sector is missing. `first`: the first offset. `is_own`: a length counts, too; in a foreign
/// segment only the checksum does. `left`: how many bytes may be read for it.
///
/// # Errors
///
/// Those of reading.
pub fn run(
    reader: &Reader,
    (bytes, first): (&Range<u64>, u64),
    is_own: bool,
    left: &mut u64,
) -> Result<Option<Stored>> {
    let mut run: Option<Stored> = None;
    loop {
        let start = run.map_or(bytes.start, |it| it.end);
        let before = run.map_or(0, |it| it.offsets);
        let rest = start..bytes.end;
        let proof = match left.checked_sub(rest.end.saturating_sub(start)) {
            Some(after) => {
                *left = after;
                proven(reader, rest.clone())?
            }
            None => None,
        };
        let next = match proof {
            None if is_own => last(reader, &rest, first.saturating_add(before))?,
            next => next,
        };
        let Some(next) = next.filter(|_| !rest.is_empty()) else {
            return Ok(run);
        };
        run = Some(Stored {
            end: next.end,
            offsets: before.saturating_add(next.offsets),
        });
    }
}

/// The damaged batch with which these bytes at the end of a segment begin, if another batch, or the
/// end of these bytes and a few zeros, follows where its length says that it ends. It must not end
/// with more zeros than a batch may. If no sector of it is missing, all of it was stored.
/// `first`: its first offset.
fn last(reader: &Reader, bytes: &Range<u64>, first: u64) -> Result<Option<Stored>> {
    let Some(end) = stated_end(reader, bytes.start)? else {
        return Ok(None);
    };
    let begin = reader.bytes(bytes.start, BEGIN_LEN)?;
    let (delta, count) = (be_u32(&begin, AT_LAST_DELTA), be_u32(&begin, AT_RECORDS));
    // One of them may be damaged.
    let (count, delta) = (u64::from(count).max(1), u64::from(delta) + 1);
    let (fewer, more) = (count.min(delta), count.max(delta));
    let next = reader.bytes(end, OFFSET_LEN)?;
    if next.len() == OFFSET_LEN {
        let after = be_u64(&next, 0);
        let known = [more, fewer].into_iter();
        let mut known = known.filter(|it| first.saturating_add(*it) == after);
        if let Some(offsets) = known.next() {
            return Ok(Some(Stored { end, offsets }));
        }
    }
    // Offsets that are never given do no harm. An offset that is given again does.
    let len = end - bytes.start - HEAD_LEN as u64;
    let most = len.saturating_mul(if is_packed(&begin) { PACKED } else { 1 }) / RECORD_LEN;
    let offsets = if more <= most { more } else { fewer };
    let zeros = ZEROS_MAX + last_zeros(&begin);
    let ends = bytes.end..=bytes.end + zeros as u64;
    // No part of the next batch may be there.
    let is_last = ends.contains(&end) || next == [0; OFFSET_LEN];
    Ok(is_last.then_some(Stored { end, offsets }))
}
