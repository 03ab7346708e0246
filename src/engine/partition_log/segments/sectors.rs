//! Sectors of a log file that a power loss took.
//!
//! A log file is written once, from start to end, and holds zeros before. So a missing sector has
//! zeros from the first byte on that was to be stored in it. Batches are stored whole, so that byte
//! is the first of the hole or of the sector. Any other sector was stored. If a message contains a
//! sector of zeros, the checksum of its batch may [prove](super::proof) that it was stored. It does
//! not cover the first bytes of a batch, and proves nothing about a sector that begins there. A
//! sector of which a batch has only its [last zeros](super::last_zeros) is not missing.

use super::last_zeros::{BEGIN_LEN, last_zeros};
use super::proof::proven;
use super::reader::Reader;
use super::segment::Segment;
use crate::disk::Disk;
use crate::error::Result;
use crate::num::index;
use crate::record::kafka::header::CRC_FROM;
use std::ops::Range;
use std::sync::Arc;

/// The fewest bytes that a disk stores as a whole.
const SECTOR: u64 = 512;
/// Bytes read at once.
const CHUNK: u64 = 128 * SECTOR;
/// Bytes of the first offset in a batch.
const OFFSET_LEN: u64 = 8;

/// Whether a sector is missing in `bytes` of a segment, which are not a whole batch. A batch with
/// the offset `first` was to be stored where they begin.
///
/// # Errors
///
/// Those of reading.
pub fn lacks_sector(
    disk: &dyn Disk,
    segment: &Segment,
    mut bytes: Range<u64>,
    mut first: u64,
) -> Result<bool> {
    while let Some(zeros) = zero_sector(disk, segment, bytes.clone(), first)? {
        let reader = Reader::open(disk, &Arc::new(segment.clone()))?;
        let begin = reader.bytes(bytes.start, BEGIN_LEN)?;
        if bytes.end.saturating_sub(zeros) <= last_zeros(&begin) as u64 {
            return Ok(false);
        }
        let covered = bytes.start + CRC_FROM as u64;
        match proven(&reader, bytes.clone())? {
            Some(batch) if (covered..batch.end).contains(&zeros) => {
                bytes.start = batch.end.min(bytes.end);
                first = first.saturating_add(batch.offsets);
            }
            _ => return Ok(true),
        }
    }
    Ok(false)
}

/// Where the first sector of these bytes is that is missing, or zeros of a message.
fn zero_sector(
    disk: &dyn Disk,
    segment: &Segment,
    bytes: Range<u64>,
    first: u64,
) -> Result<Option<u64>> {
    let end = bytes.end.min(segment.len);
    // The last sector is read to its end.
    let read_end = end.next_multiple_of(SECTOR).min(segment.len);
    let mut at = bytes.start;
    let mut buffer = vec![0; index(read_end.saturating_sub(at).min(CHUNK))];
    while at < end {
        let until = ((at / CHUNK + 1) * CHUNK).min(read_end);
        let chunk = buffer.get_mut(..index(until - at)).unwrap_or_default();
        let have = disk.read_at(&segment.path, at, chunk)?;
        let mut rest = chunk.get(..have).unwrap_or_default();
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(until);
            let (sector, others) = rest.split_at(index(next - at).min(rest.len()));
            let is_zero = sector.iter().all(|byte| *byte == 0);
            let is_begin = at == bytes.start;
            if is_zero && !(is_begin && begins_with_zeros(first, next - at)) {
                return Ok(Some(at));
            }
            (at, rest) = (next, others);
            if at == until {
                break;
            }
        }
    }
    Ok(None)
}

/// Whether the first `len` bytes of a batch with the offset `first` are zeros anyway: offsets begin
/// with zeros.
fn begins_with_zeros(first: u64, len: u64) -> bool {
    let offset = first.to_be_bytes();
    let begin = offset.get(..index(len.min(OFFSET_LEN + 1)));
    begin.is_some_and(|begin| begin.iter().all(|byte| *byte == 0))
}
