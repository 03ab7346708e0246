//! The zeros with which every batch of some codecs ends. A log file holds zeros before a batch is
//! stored, so where these bytes were not stored, nothing is missing.

use crate::record::kafka::HEAD_LEN;
use crate::record::kafka::header::AT_LAST_DELTA;

/// The bytes with which an lz4 frame begins.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
/// Zeros with which it ends.
const LZ4_END: usize = 4;
/// The codec in the last byte of a batch's attributes, and its number for lz4.
const CODEC: (u8, u8) = (0x7, 3);

/// How many bytes from the begin of a batch on tell how it ends.
pub const BEGIN_LEN: usize = HEAD_LEN + LZ4_MAGIC.len();

/// The last byte of the attributes in the header of a batch, which has the codec.
fn attributes(begin: &[u8]) -> u8 {
    let attributes = begin.get(AT_LAST_DELTA - 1);
    attributes.copied().unwrap_or_default()
}

/// Whether a batch that begins with these bytes is packed.
pub fn is_packed(begin: &[u8]) -> bool {
    attributes(begin) & CODEC.0 != 0
}

/// The number of zeros at the end of a batch that begins with these bytes. Its attributes or its
/// records may be damaged, so either of them is enough to tell the codec.
pub fn last_zeros(begin: &[u8]) -> usize {
    let (mask, lz4) = CODEC;
    let is_lz4 =
        attributes(begin) & mask == lz4 || begin.get(HEAD_LEN..).is_some_and(|it| it == LZ4_MAGIC);
    if is_lz4 { LZ4_END } else { 0 }
}
