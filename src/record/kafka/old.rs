//! Messages in formats 0 and 1, which brokers since 4.0 read and no longer accept.
//!
//! A message stands alone, or it is a *wrapper*, whose value is a compressed set of messages. The
//! inner offsets are absolute in format 0. In format 1 they count from 0, and the wrapper's offset
//! is that of the last one; some producers wrote wrappers of offset 0, which hold 0, 1, 2 ...

use super::compress::Lz4Header;
use super::entry::{Entry, Headers};
use super::header::{HEAD_LEN, Header, LEN_END, MAGIC_END};
use super::varint::Reader;
use crate::record::common::Flaw;

/// Messages in format 0 or 1, one after another.
#[derive(Debug)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    at: usize,
    magic: u8,
    /// Added to the offset of each.
    base: u64,
    /// The time of all of them, if it is that of their append.
    append_time: Option<i64>,
    /// The lowest offset that the next may have.
    next: u64,
    check: bool,
}

impl Messages {
    /// The messages in one entry of a log, whose own checksum is verified before.
    pub(super) fn open(header: &Header, bytes: Vec<u8>, check: bool) -> Result<Messages, Flaw> {
        let codec = header.codec()?;
        let append_time = header.has_append_time().then_some(header.max_timestamp);
        let mut messages = Messages {
            bytes,
            at: 0,
            magic: header.magic,
            base: 0,
            append_time,
            next: 0,
            check: false,
        };
        if codec == super::Codec::None {
            return Ok(messages);
        }
        let (_, value) = parts(header, &messages.bytes)?;
        let packed = value.ok_or(Flaw::Field("wrapper without messages"))?;
        let rule = match header.magic {
            0 => Lz4Header::Ignored,
            _ => Lz4Header::Checked,
        };
        messages.bytes = codec.unpack(packed, rule)?;
        messages.check = check;
        let last = messages.last_offset()?;
        if header.magic == 1 && header.last_offset() != 0 {
            let base = header.last_offset().checked_sub(last);
            messages.base = base.ok_or(Flaw::Field("offset in a wrapper"))?;
        }
        Ok(messages)
    }

    /// Begins again with the first message.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
        self.next = 0;
    }

    /// Offset of the last complete message.
    fn last_offset(&self) -> Result<u64, Flaw> {
        let (mut at, mut last) = (0, None);
        while let Some(header) = self.header_at(at)? {
            last = Some(header.last_offset());
            at += header.len as usize;
        }
        last.ok_or(Flaw::Field("wrapper without messages"))
    }

    /// The header of the message at a byte; `None` if it is not complete.
    fn header_at(&self, at: usize) -> Result<Option<Header>, Flaw> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let len = Reader::new(rest.get(8..).unwrap_or_default()).i32();
        let is_cut = |len: i32| usize::try_from(len).is_ok_and(|len| rest.len() - LEN_END < len);
        if rest.len() < MAGIC_END || len.is_none_or(is_cut) {
            return Ok(None);
        }
        let header = Header::parse(rest.get(..HEAD_LEN.min(rest.len())).unwrap_or_default())?;
        match header.magic == self.magic {
            true => Ok(Some(header)),
            false => Err(Flaw::Magic(header.magic.into())),
        }
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Result<Option<Entry<'_>>, Flaw> {
        let start = self.at;
        let Some(header) = self.header_at(start)? else {
            return Ok(None);
        };
        self.at += header.len as usize;
        let own = self.bytes.get(start..self.at).unwrap_or_default();
        if self.check && !header.has_crc_of(own) {
            return Err(Flaw::BodyChecksum);
        }
        if header.codec()? != super::Codec::None {
            return Err(Flaw::Field("wrapper in a wrapper"));
        }
        let offset = self.base.checked_add(header.last_offset());
        let offset = offset.filter(|offset| *offset >= self.next && *offset < i64::MAX as u64);
        let offset = offset.ok_or(Flaw::Field("offset in a wrapper"))?;
        self.next = offset + 1;
        let (key, value) = parts(&header, own)?;
        Ok(Some(Entry {
            offset,
            timestamp: self.append_time.unwrap_or(header.max_timestamp),
            key,
            value,
            headers: Headers::default(),
        }))
    }
}

type Parts<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Key and value of a message.
fn parts<'a>(header: &Header, bytes: &'a [u8]) -> Result<Parts<'a>, Flaw> {
    let begin = match header.magic {
        0 => 18,
        _ => 26,
    };
    let mut reader = Reader::new(bytes.get(begin..).unwrap_or_default());
    let key = reader.nullable_i32();
    let value = reader.nullable_i32();
    match (key, value) {
        (Some(key), Some(value)) => Ok((key, value)),
        _ => Err(Flaw::Field("length of key or value")),
    }
}
