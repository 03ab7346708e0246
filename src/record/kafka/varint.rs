//! Reads and writes numbers and runs of bytes: big-endian integers, and integers of variable
//! length.
//!
//! A number of variable length is in zigzag form (`0, -1, 1, -2 ...` are `0, 1, 2, 3 ...`), in
//! groups of 7 bits, the lowest first. The highest bit of a byte says that another group follows.

use crate::num::{index, low_u8};

/// Bytes that are read from the front. Every method returns `None` if they do not suffice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the start.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The bytes that are not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// One byte.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// A signed number of 2 bytes.
    #[inline]
    pub fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// A signed number of 4 bytes.
    #[inline]
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned number of 4 bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A signed number of 8 bytes.
    #[inline]
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A number of variable length, at most 5 bytes.
    #[inline(always)]
    pub fn varint(&mut self) -> Option<i32> {
        let bits = self.groups(5)?.to_be_bytes();
        let bits = u32::from_be_bytes(*bits.last_chunk::<4>()?);
        Some((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }

    /// A number of variable length, at most 10 bytes.
    #[inline(always)]
    pub fn varlong(&mut self) -> Option<i64> {
        let bits = self.groups(10)?;
        Some((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }

    #[inline(always)]
    fn groups(&mut self, len_max: u32) -> Option<u64> {
        // Most numbers have one or two bytes.
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Some((*first).into())
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.rest = rest;
                Some(u64::from(first & 0x7F) | u64::from(*second) << 7)
            }
            _ => self.all_groups(len_max),
        }
    }

    fn all_groups(&mut self, len_max: u32) -> Option<u64> {
        let mut bits = 0;
        for number in 0..len_max {
            let byte = self.byte()?;
            bits |= u64::from(byte & 0x7F) << (7 * number);
            if byte & 0x80 == 0 {
                return Some(bits);
            }
        }
        None
    }

    /// Bytes after their length of variable length; `Some(None)` is null.
    #[inline(always)]
    pub fn nullable(&mut self) -> Option<Option<&'a [u8]>> {
        let len = self.varint()?;
        self.nullable_of(len)
    }

    /// Bytes after their length of 4 bytes; `Some(None)` is null.
    #[inline]
    pub fn nullable_i32(&mut self) -> Option<Option<&'a [u8]>> {
        let len = self.i32()?;
        self.nullable_of(len)
    }

    #[inline(always)]
    fn nullable_of(&mut self, len: i32) -> Option<Option<&'a [u8]>> {
        match len {
            -1 => Some(None),
            _ => self.take(usize::try_from(len).ok()?).map(Some),
        }
    }
}

/// A length as a signed number. Bytes in memory are never so many that it would be negative.
#[inline]
pub fn signed(len: usize) -> i64 {
    (len as u64).cast_signed()
}

/// Zigzag form: 0, -1, 1, -2 ... are 0, 1, 2, 3 ...
#[inline]
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// Bytes of a number of variable length.
#[inline(always)]
pub fn size(number: i64) -> usize {
    // Most numbers have one or two bytes.
    match zigzag(number) {
        ..0x80 => 1,
        0x80..0x4000 => 2,
        bits => (64 - bits.leading_zeros()).div_ceil(7) as usize,
    }
}

/// Whether a number of variable length has at most two bytes.
#[inline(always)]
pub fn is_short(number: i64) -> bool {
    zigzag(number) < 0x4000
}

/// Bytes of a number that [`is_short`].
#[inline(always)]
pub fn short_size(number: i64) -> usize {
    1 + usize::from(zigzag(number) >= 0x80)
}

/// Up to 8 bytes of short numbers, which are written at once: that takes less time than to write
/// each by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Short {
    bytes: u64,
    len: usize,
}

impl Short {
    /// Memory that is needed to write them, whatever their length.
    pub const ROOM: usize = size_of::<u64>();

    /// A number that [`is_short`].
    #[inline(always)]
    pub fn of(number: i64) -> Short {
        debug_assert!(is_short(number), "{number} is not short");
        let bits = zigzag(number);
        let group_follows = u64::from(bits >= 0x80) << 7;
        Short {
            bytes: bits & 0x7F | group_follows | bits >> 7 << 8,
            len: short_size(number),
        }
    }

    /// These numbers, and others after them.
    #[inline(always)]
    pub fn and(self, others: Short) -> Short {
        debug_assert!(self.len + others.len < Short::ROOM, "no memory for numbers");
        Short {
            bytes: self.bytes | others.bytes << (8 * self.len),
            len: self.len + others.len,
        }
    }

    /// Bytes of the numbers.
    #[inline(always)]
    pub fn size(self) -> usize {
        self.len
    }
}

/// Memory that is written from the front. Its length is that of all bytes to be written.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// Writes to `memory` from the start.
    #[inline]
    pub fn new(memory: &'a mut [u8]) -> Writer<'a> {
        Writer { rest: memory }
    }

    /// Whether all of the memory is written.
    pub fn is_full(&self) -> bool {
        self.rest.is_empty()
    }

    /// Writes bytes, for which there must be memory.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.rest.len(), "no memory for bytes");
        if let Some((to, rest)) = std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()) {
            to.copy_from_slice(bytes);
            self.rest = rest;
        }
    }

    /// Writes a number of variable length. That of a `i32` is the same as that of an `i64`.
    #[inline(always)]
    pub fn number(&mut self, number: i64) {
        let bits = zigzag(number);
        let group = |bits: u64| low_u8(index(bits & 0x7F));
        // Most numbers have one or two bytes.
        match bits {
            ..0x80 => self.put(&[group(bits)]),
            0x80..0x4000 => self.put(&[group(bits) | 0x80, group(bits >> 7)]),
            _ => self.all_groups(bits),
        }
    }

    fn all_groups(&mut self, mut bits: u64) {
        while bits >= 0x80 {
            self.put(&[low_u8(index(bits & 0x7F)) | 0x80]);
            bits >>= 7;
        }
        self.put(&[low_u8(index(bits))]);
    }

    /// Writes short numbers, for which there must be [`Short::ROOM`]. The bytes after them, which
    /// are to be written next, may have any contents.
    #[inline(always)]
    pub fn short(&mut self, numbers: Short) {
        debug_assert!(Short::ROOM <= self.rest.len(), "no memory for numbers");
        if let Some(to) = self.rest.first_chunk_mut() {
            *to = numbers.bytes.to_le_bytes();
        }
        let rest = std::mem::take(&mut self.rest);
        self.rest = rest.get_mut(numbers.len..).unwrap_or_default();
    }

    /// Bytes that are not written yet.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Writes bytes after their length of variable length; null has the length -1.
    #[inline(always)]
    pub fn nullable(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.number(-1),
            Some(bytes) => {
                self.number(signed(bytes.len()));
                self.put(bytes);
            }
        }
    }
}
