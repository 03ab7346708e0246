//! What the checksum of a damaged batch proves.
//!
//! In format 2 it covers the bytes after it, but neither offset, length nor format. If only these
//! are damaged, it proves where the batch ends, and that all of it was stored: no crash has cut it
//! short.

use super::reader::Reader;
use crate::error::Result;
use crate::num::be_u32;
use crate::record::kafka::HEAD_LEN;
use crate::record::kafka::header::{
    AT_LAST_DELTA, BATCH_LEN_MAX, CRC_FROM, LEN_AT, LEN_END, MAGIC_END,
};
use std::ops::Range;

/// How many zeros after the last other byte are tried as part of the batch.
const ZEROS_TRIED: u64 = 512;

/// A batch of which all bytes were stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it ends.
    pub end: u64,
    /// Number of its offsets.
    pub offsets: u64,
}

/// The batch that begins with these bytes of a segment, if its checksum proves that all of it was
/// stored. It ends where its header says, or with these bytes, or a few zeros later.
///
/// # Errors
///
/// Those of reading.
pub fn proven(reader: &Reader, bytes: Range<u64>) -> Result<Option<Stored>> {
    let head = reader.bytes(bytes.start, HEAD_LEN)?;
    if head.len() < HEAD_LEN {
        return Ok(None);
    }
    let len = u64::from(be_u32(&head, LEN_AT)) + LEN_END as u64;
    let offsets = u64::from(be_u32(&head, AT_LAST_DELTA)) + 1;
    let (least, most) = (bytes.start + HEAD_LEN as u64, BATCH_LEN_MAX as u64);
    let is_possible = |end: &u64| {
        (least..=bytes.start + most).contains(end)
            && (*end <= reader.segment.len || *end == bytes.end)
    };
    let stated = (bytes.start + len).min(bytes.end);
    let mut ends = vec![stated];
    ends.extend(bytes.end..=bytes.end + ZEROS_TRIED);
    let (mut sum, mut at) = (0, bytes.start + CRC_FROM as u64);
    for end in ends.into_iter().filter(is_possible) {
        let stored = at..end.min(bytes.end);
        let Some(next) = reader.sum(sum, stored)? else {
            return Ok(None);
        };
        sum = next;
        for _ in at.max(bytes.end)..end {
            sum = crc32c::crc32c_append(sum, &[0]);
        }
        at = end;
        if sum == be_u32(&head, MAGIC_END) {
            return Ok(Some(Stored { end, offsets }));
        }
    }
    Ok(None)
}
