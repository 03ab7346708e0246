//! One record of a batch, and how format 2 stores it:
//!
//! | field | type |
//! |---|---|
//! | length of what follows | varint |
//! | attributes, unused | `i8` |
//! | timestamp, from the batch's base | varlong |
//! | offset, from the batch's base | varint |
//! | key, value | varint (-1: null), bytes |
//! | number of headers | varint |
//! | per header: name; value | varint, UTF-8; varint (-1: null), bytes |

use super::varint::Reader;
use crate::record::common::Flaw;

/// One record as a batch states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Offset in the partition.
    pub offset: u64,
    /// When it was made, or appended, in ms; -1 in format 0.
    pub timestamp: i64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
}

/// The headers of a record, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    /// How many there are.
    pub count: u32,
    /// Their bytes.
    pub bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Names and values. Ends early if the bytes are damaged.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let mut reader = Reader::new(self.bytes);
        let pairs = (0..self.count).map(move |_| next_header(&mut reader));
        pairs.map_while(|pair| pair)
    }
}

#[inline]
fn next_header<'a>(reader: &mut Reader<'a>) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    Some((reader.nullable()??, reader.nullable()?))
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionMarker {
    /// Its records are not to be read.
    Abort,
    /// Its records count.
    Commit,
}

impl TransactionMarker {
    /// What a control record with this key says; `None` if it ends no transaction.
    pub fn of_key(key: Option<&[u8]>) -> Option<TransactionMarker> {
        let mut reader = Reader::new(key?);
        let _version = reader.i16()?;
        match reader.i16()? {
            0 => Some(TransactionMarker::Abort),
            1 => Some(TransactionMarker::Commit),
            _ => None,
        }
    }
}

/// A record of format 2, whose offset and time count from those of its batch.
#[derive(Clone, Copy, Default)]
pub(super) struct Delta<'a> {
    /// All its bytes, without its length.
    pub(super) own: &'a [u8],
    /// Where in these its value ends.
    pub(super) value_end: usize,
    pub(super) offset: u32,
    pub(super) timestamp: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Headers<'a>,
}

impl<'a> Delta<'a> {
    /// Reads the next record.
    #[inline(always)]
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Delta<'a>, Flaw> {
        let len = reader.varint().and_then(|len| usize::try_from(len).ok());
        let own = len.and_then(|len| reader.take(len));
        let own = own.ok_or(Flaw::Field("length of a record"))?;
        Delta::parse(own).ok_or(Flaw::Field("record"))
    }

    /// The record with these bytes, its length not among them.
    #[inline(always)]
    pub(super) fn parse(own: &'a [u8]) -> Option<Delta<'a>> {
        let mut reader = Reader::new(own);
        let _attributes = reader.byte()?;
        let timestamp = reader.varlong()?;
        let offset = u32::try_from(reader.varint()?).ok()?;
        let (key, value) = (reader.nullable()?, reader.nullable()?);
        let value_end = own.len() - reader.rest().len();
        let headers = Headers {
            count: u32::try_from(reader.varint()?).ok()?,
            bytes: reader.rest(),
        };
        for _ in 0..headers.count {
            next_header(&mut reader)?;
        }
        reader.rest().is_empty().then_some(Delta {
            own,
            value_end,
            offset,
            timestamp,
            key,
            value,
            headers,
        })
    }
}
