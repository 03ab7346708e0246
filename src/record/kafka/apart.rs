//! One record in memory, apart from its batch, whose bytes may be packed. This form is never
//! written to a log; a pickled message contains it.
//!
//! | byte | field |
//! |---:|---|
//! | 0 | `u32` length of all |
//! | 4 | `u32` magic |
//! | 8 | `i64` offset |
//! | 16 | `i64` position: the byte of the segment file at which the batch begins |
//! | 24 | `i64` timestamp |
//! | 32 | `i32` partition |
//! | 36 | `u8` flags |
//! | 37 | `u8` 0 |
//! | 38 | `u16` length of the topic |
//! | 40 | `u32` length of the key |
//! | 44 | `u32` length of the value |
//! | 48 | `u32` length of the headers |
//! | 52 | `u32` number of headers |
//! | 56 | topic, key, headers as a batch of format 2 stores them, value |

use super::entry::{Entry, Headers};
use crate::num::{be_u32, be_u64, short};
use crate::record::common::Flaw;

/// Bytes 4 to 8.
pub const MAGIC: u32 = u32::from_be_bytes(*b"FKR1");

const AT_MAGIC: usize = 4;
const AT_OFFSET: usize = 8;
const AT_POSITION: usize = 16;
const AT_TIMESTAMP: usize = 24;
const AT_QUEUE: usize = 32;
const AT_FLAGS: usize = 36;
const AT_TOPIC_LEN: usize = 38;
const AT_KEY_LEN: usize = 40;
const AT_VALUE_LEN: usize = 44;
const AT_HEADERS_LEN: usize = 48;
const AT_HEADERS: usize = 52;
/// Bytes before the topic.
pub(super) const FIXED_LEN: usize = 56;

/// Bits of the flags.
mod flag {
    /// The timestamp is that of the append.
    pub const APPEND_TIME: u8 = 1;
    /// There is no key.
    pub const NULL_KEY: u8 = 2;
    /// There is no value.
    pub const NULL_VALUE: u8 = 4;
    pub const ALL: u8 = 7;
}

/// The places of the parts of one record apart from its batch, relative to its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    pub(crate) total_len: u32,
    topic_len: u16,
    flags: u8,
    pub(super) key_len: u32,
    pub(super) headers_len: u32,
    pub(crate) value_len: u32,
}

impl Apart {
    /// The parts of the record at the start of `bytes`; more bytes may follow it.
    ///
    /// # Errors
    ///
    /// The first [`Flaw`] found: the magic, or lengths that do not add up.
    pub fn parse(bytes: &[u8]) -> Result<Apart, Flaw> {
        if bytes.len() < FIXED_LEN || be_u32(bytes, AT_MAGIC) != MAGIC {
            return Err(Flaw::Magic(be_u32(bytes, AT_MAGIC)));
        }
        let layout = Apart {
            total_len: be_u32(bytes, 0),
            topic_len: bytes
                .get(AT_TOPIC_LEN..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |len| u16::from_be_bytes(*len)),
            flags: bytes.get(AT_FLAGS).copied().unwrap_or_default(),
            key_len: be_u32(bytes, AT_KEY_LEN),
            headers_len: be_u32(bytes, AT_HEADERS_LEN),
            value_len: be_u32(bytes, AT_VALUE_LEN),
        };
        let parts = [
            FIXED_LEN as u64,
            layout.topic_len.into(),
            layout.key_len.into(),
            layout.headers_len.into(),
            layout.value_len.into(),
        ];
        let is_null = |bit, len| layout.flags & bit != 0 && len > 0;
        let total = u64::from(layout.total_len);
        if parts.iter().sum::<u64>() != total || bytes.len() < layout.total_len as usize {
            return Err(Flaw::Length(i64::from(layout.total_len)));
        }
        if layout.flags & !flag::ALL != 0
            || is_null(flag::NULL_KEY, layout.key_len)
            || is_null(flag::NULL_VALUE, layout.value_len)
        {
            return Err(Flaw::Field("flags"));
        }
        Ok(layout)
    }

    /// The places that the parts of a record get.
    ///
    /// # Errors
    ///
    /// [`Flaw::Length`] if its parts are too long for one record.
    #[inline]
    pub fn of(home: &Home<'_>, has_append_time: bool, entry: &Entry<'_>) -> Result<Apart, Flaw> {
        let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let parts = [
            FIXED_LEN,
            home.topic.len(),
            len(entry.key),
            entry.headers.bytes.len(),
            len(entry.value),
        ];
        let total: usize = parts.iter().sum();
        let too_long = Flaw::Length(total as i64);
        let flag_if = |is_set, bit| if is_set { bit } else { 0 };
        Ok(Apart {
            total_len: i32::try_from(total).map_err(|_| too_long)?.cast_unsigned(),
            topic_len: u16::try_from(home.topic.len()).map_err(|_| too_long)?,
            flags: flag_if(has_append_time, flag::APPEND_TIME)
                | flag_if(entry.key.is_none(), flag::NULL_KEY)
                | flag_if(entry.value.is_none(), flag::NULL_VALUE),
            key_len: short(len(entry.key)),
            headers_len: short(entry.headers.bytes.len()),
            value_len: short(len(entry.value)),
        })
    }

    /// The topic of the record with these bytes.
    #[inline]
    pub(super) fn topic<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        part(bytes, FIXED_LEN, self.topic_len.into())
    }

    #[inline]
    pub(super) fn queue(&self, bytes: &[u8]) -> u32 {
        be_u32(bytes, AT_QUEUE)
    }

    #[inline]
    pub(super) fn offset(&self, bytes: &[u8]) -> u64 {
        be_u64(bytes, AT_OFFSET)
    }

    #[inline]
    pub(super) fn position(&self, bytes: &[u8]) -> u64 {
        be_u64(bytes, AT_POSITION)
    }

    #[inline]
    pub(super) fn timestamp(&self, bytes: &[u8]) -> i64 {
        be_u64(bytes, AT_TIMESTAMP).cast_signed()
    }

    #[inline]
    pub(super) fn has_append_time(&self) -> bool {
        self.flags & flag::APPEND_TIME != 0
    }

    #[inline]
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let key = part(bytes, self.key_at(), self.key_len);
        (self.flags & flag::NULL_KEY == 0).then_some(key)
    }

    #[inline]
    pub(super) fn is_null(&self) -> bool {
        self.flags & flag::NULL_VALUE != 0
    }

    #[inline]
    pub(super) fn headers<'a>(&self, bytes: &'a [u8]) -> Headers<'a> {
        Headers {
            count: be_u32(bytes, AT_HEADERS),
            bytes: part(
                bytes,
                self.key_at() + self.key_len as usize,
                self.headers_len,
            ),
        }
    }

    #[inline]
    fn key_at(&self) -> usize {
        FIXED_LEN + usize::from(self.topic_len)
    }

    /// Writes the record with this layout to `to`, which is as long as it.
    #[inline]
    pub fn write(&self, mut to: &mut [u8], home: &Home<'_>, entry: &Entry<'_>) {
        let mut fixed = [0; FIXED_LEN];
        fixed[..AT_MAGIC].copy_from_slice(&self.total_len.to_be_bytes());
        fixed[AT_MAGIC..AT_OFFSET].copy_from_slice(&MAGIC.to_be_bytes());
        fixed[AT_OFFSET..AT_POSITION].copy_from_slice(&entry.offset.to_be_bytes());
        fixed[AT_POSITION..AT_TIMESTAMP].copy_from_slice(&home.position.to_be_bytes());
        fixed[AT_TIMESTAMP..AT_QUEUE].copy_from_slice(&entry.timestamp.to_be_bytes());
        fixed[AT_QUEUE..AT_FLAGS].copy_from_slice(&home.queue.to_be_bytes());
        fixed[AT_FLAGS] = self.flags;
        fixed[AT_TOPIC_LEN..AT_KEY_LEN].copy_from_slice(&self.topic_len.to_be_bytes());
        fixed[AT_KEY_LEN..AT_VALUE_LEN].copy_from_slice(&self.key_len.to_be_bytes());
        fixed[AT_VALUE_LEN..AT_HEADERS_LEN].copy_from_slice(&self.value_len.to_be_bytes());
        fixed[AT_HEADERS_LEN..AT_HEADERS].copy_from_slice(&self.headers_len.to_be_bytes());
        fixed[AT_HEADERS..].copy_from_slice(&entry.headers.count.to_be_bytes());
        let parts = [
            &fixed,
            home.topic.as_bytes(),
            entry.key.unwrap_or_default(),
            entry.headers.bytes,
            entry.value.unwrap_or_default(),
        ];
        for part in parts {
            let Some((place, rest)) = to.split_at_mut_checked(part.len()) else {
                return;
            };
            place.copy_from_slice(part);
            to = rest;
        }
    }
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub queue: u32,
    /// The byte of the segment file at which the batch begins.
    pub position: u64,
}

#[inline]
fn part(bytes: &[u8], at: usize, len: u32) -> &[u8] {
    bytes.get(at..at + len as usize).unwrap_or_default()
}
