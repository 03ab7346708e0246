//! A record that is read in place, in its batch. The memory begins with facts that the batch itself
//! does not contain:
//!
//! | byte | field |
//! |---:|---|
//! | 0 | `u64` the byte of the segment file at which the batches begin |
//! | 8 | `u32` partition |
//! | 12 | `u32` length of the topic |
//! | 16 | topic, batches of format 2 |

use super::apart::{Apart, FIXED_LEN, Home};
use super::entry::{Delta, Entry, Headers};
use super::header::{HEAD_LEN, Header};
use super::varint::Reader;
use crate::num::{be_u32, be_u64, short};

const AT_QUEUE: usize = 8;
const AT_TOPIC_LEN: usize = 12;
const AT_TOPIC: usize = 16;

/// The bytes before the batches. They begin at byte 0 of a segment until [`set_position`] says
/// otherwise.
pub fn preface(topic: &str, queue: u32) -> Vec<u8> {
    let mut bytes = vec![0; AT_QUEUE];
    bytes.extend_from_slice(&queue.to_be_bytes());
    bytes.extend_from_slice(&short(topic.len()).to_be_bytes());
    bytes.extend_from_slice(topic.as_bytes());
    bytes
}

/// Stores where in the segment file the batches after a [`preface`] begin.
pub fn set_position(preface: &mut [u8], position: u64) {
    if let Some(to) = preface.first_chunk_mut() {
        *to = position.to_be_bytes();
    }
}

/// The places of the parts of one record, counted from the first byte of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InBatch {
    /// Bytes of the record [`Apart`] from its batch.
    pub(super) total_len: u32,
    /// Where its batch begins.
    batch_at: u32,
    /// Its offset, from the batch's.
    offset: u32,
    /// Where it begins, after its length.
    at: u32,
    /// Where it ends.
    pub(super) end: u32,
    pub(super) value_at: u32,
    pub(super) value_len: u32,
}

impl InBatch {
    /// The places of a record that ends at `end`. Its batch begins at `batch_at`, after a
    /// [`preface`] with a topic of this length.
    #[inline]
    pub(super) fn of(delta: &Delta<'_>, topic_len: u32, batch_at: usize, end: usize) -> InBatch {
        let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        let value_len = len(delta.value);
        let parts = FIXED_LEN + len(delta.key) + delta.headers.bytes.len() + value_len;
        let at = end - delta.own.len();
        InBatch {
            total_len: short(parts) + topic_len,
            batch_at: short(batch_at),
            offset: delta.offset,
            at: short(at),
            end: short(end),
            value_at: short(at + delta.value_end - value_len),
            value_len: short(value_len),
        }
    }

    /// Bytes of the record without its length.
    #[inline]
    pub fn own_len(&self) -> u32 {
        self.end - self.at
    }

    #[inline]
    fn delta<'a>(&self, bytes: &'a [u8]) -> Delta<'a> {
        let own = bytes.get(self.at as usize..self.end as usize);
        // It could be read when the places were determined.
        own.and_then(Delta::parse).unwrap_or_default()
    }

    /// Its time, from the batch's base.
    #[inline]
    fn time(&self, bytes: &[u8]) -> i64 {
        let own = bytes.get(self.at as usize..).unwrap_or_default();
        let mut reader = Reader::new(own);
        let _attributes = reader.byte();
        reader.varlong().unwrap_or_default()
    }

    #[inline]
    fn batch<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.batch_at as usize;
        bytes.get(at..at + HEAD_LEN).unwrap_or_default()
    }

    #[inline]
    pub(super) fn topic<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let len = be_u32(bytes, AT_TOPIC_LEN) as usize;
        bytes.get(AT_TOPIC..AT_TOPIC + len).unwrap_or_default()
    }

    #[inline]
    pub(super) fn queue(&self, bytes: &[u8]) -> u32 {
        be_u32(bytes, AT_QUEUE)
    }

    #[inline]
    pub(super) fn offset(&self, bytes: &[u8]) -> u64 {
        be_u64(bytes, self.batch_at as usize).wrapping_add(self.offset.into())
    }

    #[inline]
    pub(super) fn position(&self, bytes: &[u8]) -> u64 {
        let begin = AT_TOPIC as u64 + u64::from(be_u32(bytes, AT_TOPIC_LEN));
        be_u64(bytes, 0)
            .wrapping_add(u64::from(self.batch_at))
            .wrapping_sub(begin)
    }

    #[inline]
    pub(super) fn timestamp(&self, bytes: &[u8]) -> i64 {
        Header::timestamp_in(self.batch(bytes), self.time(bytes))
    }

    #[inline]
    pub(super) fn has_append_time(&self, bytes: &[u8]) -> bool {
        Header::has_append_time_in(self.batch(bytes))
    }

    #[inline]
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.delta(bytes).key
    }

    #[inline]
    pub(super) fn is_null(&self, bytes: &[u8]) -> bool {
        self.value_len == 0 && self.delta(bytes).value.is_none()
    }

    #[inline]
    pub(super) fn headers<'a>(&self, bytes: &'a [u8]) -> Headers<'a> {
        self.delta(bytes).headers
    }

    /// The record apart from its batch.
    pub(super) fn apart(&self, bytes: &[u8]) -> Vec<u8> {
        let topic = String::from_utf8_lossy(self.topic(bytes));
        let home = Home {
            topic: &topic,
            queue: self.queue(bytes),
            position: self.position(bytes),
        };
        let delta = self.delta(bytes);
        let entry = Entry {
            offset: self.offset(bytes),
            timestamp: self.timestamp(bytes),
            key: delta.key,
            value: delta.value,
            headers: delta.headers,
        };
        let layout = Apart::of(&home, self.has_append_time(bytes), &entry);
        let mut apart = Vec::new();
        // Its parts lie in memory that is much smaller than the longest record.
        if let Ok(layout) = layout {
            apart.resize(layout.total_len as usize, 0);
            layout.write(&mut apart, &home, &entry);
        }
        apart
    }
}
