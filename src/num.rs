//! Conversions between widths of integers, in one place, each with the reason that nothing is lost.

const _: () = assert!(
    size_of::<usize>() == 8,
    "positions are 64 bits wide and index maps: the machine has to be a 64-bit one"
);

/// A position or length as an index: both are 64 bits wide.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn index(value: u64) -> usize {
    value as usize
}

/// A length or place within a record or a file of at most 2 GiB, which a `u32` holds; the largest
/// `u32` for what is longer, which no record and no file is.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn short(value: usize) -> u32 {
    if value > u32::MAX as usize {
        u32::MAX
    } else {
        value as u32
    }
}

/// The low half, for fields that keep no more by their format.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low_u32(value: u64) -> u32 {
    value as u32
}

/// The low 16 bits, for fields that keep no more by their format.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low_u16(value: u32) -> u16 {
    value as u16
}

/// The low 8 bits, for fields that keep no more by their format.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low_u8(value: usize) -> u8 {
    value as u8
}
