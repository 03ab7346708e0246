//! The header of a batch, which precedes its records.
//!
//! | byte | field | format 2 | formats 0 and 1 |
//! |---:|---|---|---|
//! | 0 | `i64` offset | of the first record, as appended | of the last record |
//! | 8 | `i32` length | bytes after this field | the same |
//! | 12 | | `i32` leader epoch | `u32` CRC-32 from byte 16 |
//! | 16 | `i8` magic | 2 | 0 or 1 |
//! | 17 | | `u32` CRC-32C from byte 21 | `i8` attributes |
//! | 18 | | | `i64` timestamp, in format 1 |
//! | 21 | `i16` attributes | | |
//! | 23 | `i32` delta of the last offset | | |
//! | 27 | `i64` base timestamp | | |
//! | 35 | `i64` largest timestamp | | |
//! | 43 | `i64`, `i16`, `i32` producer id, epoch, sequence | | |
//! | 57 | `i32` number of records | | |
//! | 61 | records | | |
//!
//! In formats 0 and 1 each message stands alone. One whose attributes name a codec holds several.

use super::compress::Codec;
use super::varint::Reader;
use crate::num::be_u64;
use crate::record::common::Flaw;
use crate::record::common::check::BODY_LEN_MAX;

/// Bytes before the records of a batch in format 2, the longest header.
pub const HEAD_LEN: usize = 61;
/// Where a batch states its length.
pub const LEN_AT: usize = 8;
/// Bytes before those that the length of a batch counts.
pub const LEN_END: usize = LEN_AT + 4;
/// Bytes after which the format of a batch is known.
pub const MAGIC_END: usize = 17;
/// Maximum length of a batch. A longer one is treated as damage.
pub const BATCH_LEN_MAX: usize = BODY_LEN_MAX;

/// First byte that the checksum of format 2 covers.
pub const CRC_FROM: usize = 21;
/// Places of fields of format 2.
const AT_ATTRIBUTES: usize = 21;
/// Where a batch states how far its last offset is from its first.
pub const AT_LAST_DELTA: usize = 23;
/// Where a batch states how many records it has.
pub const AT_RECORDS: usize = HEAD_LEN - 4;
const AT_BASE_TIMESTAMP: usize = 27;
const AT_MAX_TIMESTAMP: usize = 35;
/// First byte that the checksum of formats 0 and 1 covers.
const OLD_CRC_FROM: usize = 16;
/// Least value of the length field: a message of format 0 with null key and value.
const LEN_MIN: i32 = 14;

/// Bits of the attributes.
mod bit {
    pub const CODEC: u16 = 0x7;
    pub const APPEND_TIME: u16 = 0x8;
    pub const TRANSACTIONAL: u16 = 0x10;
    pub const CONTROL: u16 = 0x20;
    pub const HORIZON: u16 = 0x40;
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format: 0, 1 or 2.
    pub magic: u8,
    /// Bytes of the whole batch.
    pub len: u32,
    /// The checksum in the header.
    pub crc: u32,
    attributes: u16,
    /// In format 2 the offset of the first record, in the others of the last.
    offset: u64,
    last_offset: u64,
    /// The time that the deltas of the records count from.
    pub base_timestamp: i64,
    /// The largest timestamp; that of every record if it is the time of the append; -1 if the
    /// records have none.
    pub max_timestamp: i64,
    /// The producer; -1 if it is not known.
    pub producer_id: i64,
    /// The epoch of the leader that appended the batch, which no checksum covers; -1 if it is not
    /// known.
    pub leader_epoch: i32,
    /// Number of records; `None` in the old formats, which do not state it.
    pub record_count: Option<u32>,
}

impl Header {
    /// Parses the header at the start of `bytes`, which may be fewer than [`HEAD_LEN`] at the end
    /// of a file.
    ///
    /// Checks everything that does not need the rest of the batch.
    ///
    /// # Errors
    ///
    /// The [`Flaw`] of bytes that are not a header.
    pub fn parse(bytes: &[u8]) -> Result<Header, Flaw> {
        let mut reader = Reader::new(bytes);
        let (Some(offset), Some(len)) = (reader.i64(), reader.i32()) else {
            return Err(Flaw::Length(bytes.len() as i64));
        };
        if len < LEN_MIN {
            let zeros = bytes.iter().take(MAGIC_END).all(|byte| *byte == 0);
            return Err(match zeros {
                true => Flaw::Empty,
                false => Flaw::Length(len.into()),
            });
        }
        let total = len.cast_unsigned().saturating_add(12);
        if total as usize > BATCH_LEN_MAX {
            return Err(Flaw::Length(total.into()));
        }
        let offset = u64::try_from(offset).map_err(|_| Flaw::Field("offset"))?;
        let short = Flaw::Length(total.into());
        let least = match bytes.get(OLD_CRC_FROM) {
            Some(0) => 26,
            Some(1) => 34,
            Some(2) => HEAD_LEN,
            Some(magic) => return Err(Flaw::Magic((*magic).into())),
            None => return Err(short),
        };
        if (total as usize) < least {
            return Err(short);
        }
        let parsed = match least {
            HEAD_LEN => parse_new(reader, offset, total),
            _ => parse_old(reader, offset, total),
        };
        parsed.ok_or(short)?
    }

    /// Offset of the last record as appended; no record of the batch has a higher one.
    #[inline]
    pub fn last_offset(&self) -> u64 {
        self.last_offset
    }

    /// A lower bound of the offsets in the batch: in format 2 that of the first record as
    /// appended.
    #[inline]
    pub fn first_offset(&self) -> u64 {
        match (self.magic, self.attributes & bit::CODEC) {
            (2, _) | (_, 0) => self.offset,
            _ => 0,
        }
    }

    /// How the records are packed.
    ///
    /// # Errors
    ///
    /// [`Flaw::Field`] for a codec that does not exist in this format.
    pub fn codec(&self) -> Result<Codec, Flaw> {
        match self.attributes & bit::CODEC {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 if self.magic == 2 => Ok(Codec::Zstd),
            _ => Err(Flaw::Field("codec")),
        }
    }

    /// Whether every record has the time of its append, which is [`Header::max_timestamp`].
    #[inline]
    pub fn has_append_time(&self) -> bool {
        self.attributes & bit::APPEND_TIME != 0
    }

    /// [`Header::has_append_time`] of the header with these bytes, in format 2.
    #[inline]
    pub(super) fn has_append_time_in(bytes: &[u8]) -> bool {
        let attributes = bytes.get(AT_ATTRIBUTES + 1).copied();
        u16::from(attributes.unwrap_or_default()) & bit::APPEND_TIME != 0
    }

    /// The time of a record that states `delta`, in a batch whose header has these bytes, in format
    /// 2.
    #[inline]
    pub(super) fn timestamp_in(bytes: &[u8], delta: i64) -> i64 {
        match Header::has_append_time_in(bytes) {
            true => be_u64(bytes, AT_MAX_TIMESTAMP).cast_signed(),
            false => be_u64(bytes, AT_BASE_TIMESTAMP)
                .cast_signed()
                .wrapping_add(delta),
        }
    }

    /// Whether the records are part of a transaction.
    #[inline]
    pub fn is_transactional(&self) -> bool {
        self.magic == 2 && self.attributes & bit::TRANSACTIONAL != 0
    }

    /// Whether the batch holds a control record, which is not a message.
    #[inline]
    pub fn is_control(&self) -> bool {
        self.magic == 2 && self.attributes & bit::CONTROL != 0
    }

    /// When compaction may remove the tombstones of the batch; `None` if that is not decided.
    #[inline]
    pub fn delete_horizon(&self) -> Option<i64> {
        let is_set = self.magic == 2 && self.attributes & bit::HORIZON != 0;
        is_set.then_some(self.base_timestamp)
    }

    /// The attributes without codec and delete horizon.
    #[inline]
    pub(super) fn kind_bits(&self) -> u16 {
        self.attributes & (bit::APPEND_TIME | bit::TRANSACTIONAL | bit::CONTROL)
    }

    /// Whether the bytes of the whole batch have the checksum that the header states.
    pub fn has_crc_of(&self, bytes: &[u8]) -> bool {
        let from = |start| bytes.get(start..).unwrap_or_default();
        self.crc
            == match self.magic {
                2 => crc32c::crc32c(from(CRC_FROM)),
                _ => crc32fast::hash(from(OLD_CRC_FROM)),
            }
    }

    /// As [`Header::has_crc_of`], for a batch of these bytes followed by zeros. The number of zeros
    /// hardly matters for its duration.
    pub fn has_crc_with_zeros(&self, bytes: &[u8]) -> bool {
        let from = match self.magic {
            2 => CRC_FROM,
            _ => OLD_CRC_FROM,
        };
        let Some(checked) = bytes.get(from..) else {
            return false;
        };
        let zeros = (self.len as usize).saturating_sub(bytes.len());
        // A checksum begins and ends with all bits inverted. In between it is linear.
        self.crc
            == !match self.magic {
                2 => crc32c::crc32c_combine(!crc32c::crc32c(checked), 0, zeros),
                _ => {
                    let mut crc = crc32fast::Hasher::new_with_initial(!crc32fast::hash(checked));
                    crc.combine(&crc32fast::Hasher::new_with_initial_len(0, zeros as u64));
                    crc.finalize()
                }
            }
    }
}

/// The header in format 2; `None` if there are not enough bytes.
fn parse_new(mut reader: Reader<'_>, offset: u64, len: u32) -> Option<Result<Header, Flaw>> {
    let leader_epoch = reader.i32()?;
    let magic = reader.byte()?;
    let crc = reader.u32()?;
    let attributes = reader.i16()?.cast_unsigned();
    let last_delta = reader.i32()?;
    let (base_timestamp, max_timestamp) = (reader.i64()?, reader.i64()?);
    let producer_id = reader.i64()?;
    let (_epoch, _sequence) = (reader.i16()?, reader.i32()?);
    let record_count = reader.i32()?;
    let last = u64::try_from(last_delta)
        .ok()
        .and_then(|delta| offset.checked_add(delta));
    let last = last.filter(|last| i64::try_from(*last).is_ok());
    Some(match (last, u32::try_from(record_count)) {
        (None, _) => Err(Flaw::Field("last offset")),
        (_, Err(_)) => Err(Flaw::Field("number of records")),
        (Some(last_offset), Ok(count)) => Ok(Header {
            magic,
            len,
            crc,
            attributes,
            offset,
            last_offset,
            base_timestamp,
            max_timestamp,
            producer_id,
            leader_epoch,
            record_count: Some(count),
        }),
    })
}

/// The header of a message in format 0 or 1; `None` if there are not enough bytes.
fn parse_old(mut reader: Reader<'_>, offset: u64, len: u32) -> Option<Result<Header, Flaw>> {
    let crc = reader.u32()?;
    let magic = reader.byte()?;
    let attributes = u16::from(reader.byte()?);
    let timestamp = match magic {
        0 => -1,
        _ => reader.i64()?,
    };
    // Bit 3 has no meaning in format 0.
    let known = match magic {
        0 => attributes & bit::CODEC,
        _ => attributes,
    };
    Some(Ok(Header {
        magic,
        len,
        crc,
        attributes: known,
        offset,
        last_offset: offset,
        base_timestamp: timestamp,
        max_timestamp: timestamp,
        producer_id: -1,
        leader_epoch: -1,
        record_count: None,
    }))
}
