//! Conversions between integer widths, each with the reason why it loses nothing.

const _: () = assert!(
    size_of::<usize>() == 8,
    "positions are 64 bits wide and are used as indexes: Forebay needs a 64-bit machine"
);

/// A position or length as an index; both are 64 bits wide.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn index(value: u64) -> usize {
    value as usize
}

/// A length or place in a record or a file of at most 2 GiB, which fits a `u32`. Larger values
/// give the largest `u32`.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn short(value: usize) -> u32 {
    if value > u32::MAX as usize {
        u32::MAX
    } else {
        value as u32
    }
}

/// The low 32 bits, for fields whose format stores no more.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low_u32(value: u64) -> u32 {
    value as u32
}

/// The low 16 bits, for fields whose format stores no more.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low_u16(value: u32) -> u16 {
    value as u16
}

/// The low 8 bits, for fields whose format stores no more.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low_u8(value: usize) -> u8 {
    value as u8
}

/// Reads a big-endian `u32`. Returns zero after the end, which callers rule out by checking
/// lengths.
#[inline]
pub(crate) fn be_u32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4).and_then(|b| b.first_chunk::<4>()) {
        Some(b) => u32::from_be_bytes(*b),
        None => 0,
    }
}

/// Reads a big-endian `u64`, as [`be_u32`].
#[inline]
pub(crate) fn be_u64(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8).and_then(|b| b.first_chunk::<8>()) {
        Some(b) => u64::from_be_bytes(*b),
        None => 0,
    }
}
