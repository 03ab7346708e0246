//! Rebuilds a batch in format 2 from some of the records of another, as compaction does.
//!
//! The batch keeps what consumers and producers rely on: the first offset, the last offset, the
//! epoch of the leader, the fields of the producer, and how its records are packed. The records
//! keep offset and time.

use super::compress::Codec;
use super::entry::Entry;
use super::header::{HEAD_LEN, Header};
use super::pack::pack;
use super::varint::{Writer, signed, size};
use crate::num::short;
use crate::plant::{Bug, planted};
use crate::record::common::Flaw;
use std::io;

/// Bit of the attributes: the base of the times is the delete horizon.
const HORIZON: u16 = 0x40;
/// First byte that the checksum covers.
const ATTRIBUTES: usize = 21;
/// Where the epoch of the leader is.
const LEADER_EPOCH: std::ops::Range<usize> = 12..16;
/// Where id, epoch and sequence of the producer are.
const PRODUCER: std::ops::Range<usize> = 43..57;

/// A batch that is being rebuilt.
#[derive(Debug)]
pub struct Rebuilt {
    header: Header,
    codec: Codec,
    leader_epoch: [u8; 4],
    producer: [u8; 14],
    horizon: Option<i64>,
    first_offset: Option<u64>,
    base_timestamp: i64,
    max_timestamp: i64,
    count: u32,
    records: Vec<u8>,
}

impl Rebuilt {
    /// Begins with no records. `original` are the bytes of the batch, `header` is its header.
    /// `horizon` is the delete horizon of the result.
    ///
    /// # Errors
    ///
    /// The [`Flaw`] of a codec that does not exist.
    pub fn new(original: &[u8], header: &Header, horizon: Option<i64>) -> Result<Rebuilt, Flaw> {
        // The formats 0 and 1 have neither a leader's epoch nor a producer.
        let (leader_epoch, producer) = match header.magic {
            2 => (part(original, LEADER_EPOCH), part(original, PRODUCER)),
            _ => ([0; 4], [0xFF; 14]),
        };
        Ok(Rebuilt {
            header: *header,
            codec: header.codec()?,
            leader_epoch,
            producer,
            horizon,
            first_offset: (header.magic == 2).then(|| header.first_offset()),
            base_timestamp: horizon.unwrap_or(-1),
            max_timestamp: -1,
            count: 0,
            records: Vec::with_capacity(original.len()),
        })
    }

    /// Adds a record of the original. Records come in the order of their offsets.
    pub fn push(&mut self, entry: &Entry<'_>) {
        if self.count == 0 && self.horizon.is_none() {
            self.base_timestamp = entry.timestamp;
        }
        let first = *self.first_offset.get_or_insert(entry.offset);
        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(entry.timestamp);
        let timestamp = entry.timestamp.wrapping_sub(self.base_timestamp);
        let offset = entry.offset.saturating_sub(first).cast_signed();
        let headers = entry.headers;
        let part = |part: Option<&[u8]>| match part {
            None => 1,
            Some(bytes) => size(signed(bytes.len())) + bytes.len(),
        };
        let len = 1
            + size(timestamp)
            + size(offset)
            + part(entry.key)
            + part(entry.value)
            + size(headers.count.into())
            + headers.bytes.len();
        let start = self.records.len();
        self.records.resize(start + size(signed(len)) + len, 0);
        let mut to = Writer::new(self.records.get_mut(start..).unwrap_or_default());
        to.number(signed(len));
        to.number(0);
        to.number(timestamp);
        to.number(offset);
        to.nullable(entry.key);
        to.nullable(entry.value);
        to.number(headers.count.into());
        to.put(headers.bytes);
        debug_assert!(to.is_full(), "a record is as long as its parts");
    }

    /// Appends the batch to `to`, and returns its largest time. Without records it is a header
    /// alone, which keeps the offsets and the sequence of the producer.
    ///
    /// # Errors
    ///
    /// An error of the library that packs, which has no reason to fail in memory.
    pub fn finish(self, to: &mut Vec<u8>) -> io::Result<i64> {
        let start = to.len();
        to.resize(start + HEAD_LEN, 0);
        let mut attributes = self.header.kind_bits();
        if self.count > 0 {
            attributes |= self.codec.bits();
            let mut packed = Vec::new();
            let len = pack(self.codec, &self.records, &mut packed, 0)?;
            to.extend_from_slice(packed.get(..len).unwrap_or_default());
            if self.horizon.is_some() {
                attributes |= HORIZON;
            }
        }
        let batch = to.get_mut(start..).unwrap_or_default();
        self.put_header(batch, attributes);
        let crc = crc32c::crc32c(batch.get(ATTRIBUTES..).unwrap_or_default());
        if let Some(place) = batch.get_mut(17..21) {
            place.copy_from_slice(&crc.to_be_bytes());
        }
        Ok(self.times().1)
    }

    /// The base of the times, and the largest.
    fn times(&self) -> (i64, i64) {
        match self.count {
            0 => (-1, self.header.max_timestamp),
            _ if self.header.has_append_time() => (self.base_timestamp, self.header.max_timestamp),
            _ => (self.base_timestamp, self.max_timestamp),
        }
    }

    fn put_header(&self, batch: &mut [u8], attributes: u16) {
        let header = &self.header;
        let first = self.first_offset.unwrap_or(header.last_offset());
        let mut last_delta = header.last_offset().saturating_sub(first);
        if planted(Bug::WrongCompactedOffset) {
            last_delta = u64::from(self.count.saturating_sub(1));
        }
        let (base_timestamp, max_timestamp) = self.times();
        let len = short(batch.len()) - 12;
        let mut rest = batch;
        let mut put = |bytes: &[u8]| {
            if let Some((to, after)) = std::mem::take(&mut rest).split_at_mut_checked(bytes.len()) {
                to.copy_from_slice(bytes);
                rest = after;
            }
        };
        put(&first.to_be_bytes());
        put(&len.to_be_bytes());
        put(&self.leader_epoch);
        put(&[2]);
        put(&[0; 4]);
        put(&attributes.to_be_bytes());
        put(&crate::num::low_u32(last_delta).to_be_bytes());
        put(&base_timestamp.to_be_bytes());
        put(&max_timestamp.to_be_bytes());
        put(&self.producer);
        put(&self.count.to_be_bytes());
    }
}

/// The epoch of the producer in the bytes of a batch of format 2.
pub fn producer_epoch(batch: &[u8]) -> i16 {
    i16::from_be_bytes(part(batch, 51..53))
}

/// The sequence of the first record in the bytes of a batch of format 2; -1 if it has none.
pub fn base_sequence(batch: &[u8]) -> i32 {
    i32::from_be_bytes(part(batch, 53..57))
}

fn part<const N: usize>(bytes: &[u8], at: std::ops::Range<usize>) -> [u8; N] {
    let found = bytes.get(at).and_then(|bytes| bytes.first_chunk());
    found.copied().unwrap_or([0; N])
}
