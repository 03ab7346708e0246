//! The end of a batch whose length is damaged.
//!
//! The checksum of a batch covers what follows it, not the length before it. So the batch ends
//! where another one begins and the checksum of the bytes up to there fits. A batch within a
//! message is not taken for the next one, because the checksum does not fit there.

use super::reader::{Here, Reader};
use crate::error::Result;
use crate::num::{be_u32, index};
use crate::record::kafka::HEAD_LEN;
use crate::record::kafka::header::{CRC_FROM, MAGIC_END};
use std::ops::Range;

/// Bytes that are searched for the end of one batch.
const SEARCH_MAX: u64 = 16 << 20;
/// Bytes whose checksum is computed at once.
const CHUNK: u64 = 1 << 20;
/// The format whose batches end like this.
const FORMAT: u8 = 2;

impl Reader {
    /// The end of the batch that begins with `bytes`, if only its length is wrong and another batch
    /// follows it within `bytes` or at their end. `left`: how many bytes may be searched for it.
    pub fn true_end(&mut self, bytes: Range<u64>, left: &mut u64) -> Result<Option<u64>> {
        let head = self.bytes(bytes.start, HEAD_LEN)?;
        if head.len() < HEAD_LEN || head.get(MAGIC_END - 1) != Some(&FORMAT) {
            return Ok(None);
        }
        let stated = be_u32(&head, MAGIC_END);
        let end = bytes
            .end
            .min(bytes.start.saturating_add(SEARCH_MAX.min(*left)));
        let (mut sum, mut summed) = (0, bytes.start + CRC_FROM as u64);
        let mut at = bytes.start + HEAD_LEN as u64;
        while at <= end {
            if let Here::Batch(_) = self.here(at)? {
                let Some(next) = self.sum(sum, summed..at)? else {
                    return Ok(None);
                };
                (sum, summed) = (next, at);
                if sum == stated {
                    break;
                }
            }
            at += self.zeros(at).max(1);
        }
        *left -= (*left).min(at - bytes.start);
        Ok(Some(at).filter(|at| *at <= end))
    }

    /// Continues a checksum with these bytes; `None` if the file ends before.
    pub(super) fn sum(&self, mut sum: u32, bytes: Range<u64>) -> Result<Option<u32>> {
        let mut at = bytes.start;
        while at < bytes.end {
            let chunk = self.bytes(at, index((bytes.end - at).min(CHUNK)))?;
            if chunk.is_empty() {
                return Ok(None);
            }
            sum = crc32c::crc32c_append(sum, &chunk);
            at += chunk.len() as u64;
        }
        Ok(Some(sum))
    }
}
