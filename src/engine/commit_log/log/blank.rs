//! The BLANK that closes a log file if the next record does not fit.

use crate::num::low_u32;
use crate::record::rocketmq::layout::{AT_MAGIC, BLANK_LEN, MAGIC_BLANK, be_u32};

/// Whether bytes are the BLANK for the last `left` bytes of a file.
pub fn is_blank(bytes: &[u8], left: usize) -> bool {
    bytes.len() >= BLANK_LEN
        && be_u32(bytes, AT_MAGIC) == MAGIC_BLANK
        && be_u32(bytes, 0) as usize == left
}

/// The BLANK for the last `left` bytes of a file.
pub fn blank(left: u64) -> [u8; BLANK_LEN] {
    let mut bytes = [0; BLANK_LEN];
    let (size, magic) = bytes.split_at_mut(AT_MAGIC);
    size.copy_from_slice(&low_u32(left).to_be_bytes());
    magic.copy_from_slice(&MAGIC_BLANK.to_be_bytes());
    bytes
}
