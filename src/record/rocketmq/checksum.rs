//! The checksums of a record.

use super::layout::{CRC_LEN, CRC_PROPERTY};
use crate::num::low_u8;

/// As [`crc32fast::hash`], which would detect the processor's features at each call.
#[inline]
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    thread_local! {
        static EMPTY: crc32fast::Hasher = crc32fast::Hasher::new();
    }
    let mut hasher = EMPTY.with(Clone::clone);
    hasher.update(bytes);
    hasher.finalize()
}

/// Completes the checksum of a record with fixed fields of this length. `tail_crc`: that of all
/// bytes after these, if it is known.
pub(super) fn seal(record: &mut [u8], fixed_len: usize, tail_crc: Option<u32>) {
    let covered = record.len().saturating_sub(CRC_LEN);
    let (Some(head), Some(fixed)) = (record.get(..covered), record.get(..fixed_len)) else {
        return;
    };
    let crc = match tail_crc {
        None => checksum(head),
        Some(tail_crc) => {
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(fixed);
            let tail_len = (covered - fixed.len()) as u64;
            hasher.combine(&crc32fast::Hasher::new_with_initial_len(tail_crc, tail_len));
            hasher.finalize()
        }
    };
    let digits_at = covered + CRC_PROPERTY.len() + 1;
    if let Some(digits) = record.get_mut(digits_at..digits_at + 10) {
        digits.copy_from_slice(&decimal_backwards(crc & 0x7FFF_FFFF));
    }
}

/// Ten decimal digits, the lowest first. Eight of them are computed together: each multiplication
/// halves the size of the groups of digits.
#[inline]
fn decimal_backwards(value: u32) -> [u8; 10] {
    let (top, eight) = (value / 100_000_000, value % 100_000_000);
    // Each lane is divided by a multiplication that is exact for its possible values.
    let fours = u64::from(eight / 10_000) | u64::from(eight % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let twos = ((fours - 100 * hundreds) << 16) | hundreds;
    let tens = ((twos * 103) >> 10) & 0x000F_000F_000F_000F;
    let ones = ((twos - 10 * tens) << 8) | tens;
    let mut digits = [b'0'; 10];
    digits[..8].copy_from_slice(&(ones | 0x3030_3030_3030_3030).to_be_bytes());
    digits[8] += low_u8((top % 10) as usize);
    digits[9] += low_u8((top / 10) as usize);
    digits
}
