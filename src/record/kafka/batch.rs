//! A batch whose records are read one by one.

use super::compress::{Codec, Lz4Header, Unpacked};
use super::entry::{Delta, Entry, TransactionMarker};
use super::header::{HEAD_LEN, Header};
use super::old::Messages;
use super::varint::Reader;
use crate::record::common::Flaw;

/// A batch of any format, unpacked. Each call of [`Opened::next`] returns a record.
#[derive(Debug)]
pub struct Opened {
    header: Header,
    records: Records,
}

/// Memory for the bytes of a batch, which one batch after another can use.
#[derive(Debug, Default)]
pub struct Buffers {
    /// The batch as stored.
    stored: Vec<u8>,
    /// Its records, if they are packed.
    unpacked: Unpacked,
}

impl Buffers {
    /// Where the batch is read to.
    pub fn stored(&mut self) -> &mut Vec<u8> {
        &mut self.stored
    }
}

#[derive(Debug)]
enum Records {
    New(Deltas),
    Old(Messages),
}

/// Records of format 2.
#[derive(Debug)]
struct Deltas {
    buffers: Buffers,
    is_packed: bool,
    at: usize,
    left: u32,
    /// Where the first record begins.
    first: usize,
    /// The lowest delta of an offset that the next may have.
    next: u32,
}

impl Opened {
    /// Unpacks a batch. `bytes` are all of it and nothing else. `check`: verifies the checksums.
    ///
    /// # Errors
    ///
    /// The [`Flaw`] of bytes that are not a batch.
    pub fn open(bytes: Vec<u8>, check: bool) -> Result<Opened, Flaw> {
        let buffers = Buffers {
            stored: bytes,
            unpacked: Unpacked::default(),
        };
        Opened::open_in(buffers, check)
    }

    /// Unpacks the batch that was read to `buffers`, as [`Opened::open`].
    ///
    /// # Errors
    ///
    /// As [`Opened::open`].
    pub fn open_in(buffers: Buffers, check: bool) -> Result<Opened, Flaw> {
        let bytes = &buffers.stored;
        let header = Header::parse(bytes.get(..HEAD_LEN.min(bytes.len())).unwrap_or_default())?;
        if header.len as usize != bytes.len() {
            return Err(Flaw::Length(header.len.into()));
        }
        if check && !header.has_crc_of(bytes) {
            return Err(Flaw::RecordChecksum);
        }
        let records = match header.record_count {
            Some(left) => Records::New(Deltas::open(&header, buffers, left)?),
            None => Records::Old(Messages::open(&header, buffers.stored, check)?),
        };
        Ok(Opened { header, records })
    }

    /// Its memory.
    pub fn into_buffers(self) -> Buffers {
        match self.records {
            Records::New(deltas) => deltas.buffers,
            Records::Old(_) => Buffers::default(),
        }
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// The [`Flaw`] of a damaged record. What follows it in the batch cannot be read.
    #[allow(
        clippy::should_implement_trait,
        reason = "a record borrows from the batch, which an iterator's item cannot"
    )]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, Flaw> {
        match &mut self.records {
            Records::New(deltas) => deltas.next(&self.header),
            Records::Old(messages) => messages.next(),
        }
    }

    /// Begins again with the first record.
    pub fn rewind(&mut self) {
        match &mut self.records {
            Records::New(deltas) => deltas.rewind(&self.header),
            Records::Old(messages) => messages.rewind(),
        }
    }

    /// How the transaction of the producer ends here; `None` if the batch is not a marker of it.
    ///
    /// # Errors
    ///
    /// As [`Opened::next`], which this calls.
    pub fn marker(&mut self) -> Result<Option<TransactionMarker>, Flaw> {
        if !self.header.is_control() {
            return Ok(None);
        }
        let record = self.next()?;
        Ok(record.and_then(|record| TransactionMarker::of_key(record.key)))
    }
}

impl Deltas {
    fn open(header: &Header, mut buffers: Buffers, left: u32) -> Result<Deltas, Flaw> {
        let codec = header.codec()?;
        let is_packed = codec != Codec::None;
        let mut at = HEAD_LEN;
        if is_packed {
            let packed = buffers.stored.get(HEAD_LEN..).unwrap_or_default();
            codec.unpack_to(packed, Lz4Header::Checked, &mut buffers.unpacked)?;
            at = 0;
        }
        Ok(Deltas {
            buffers,
            is_packed,
            at,
            left,
            first: at,
            next: 0,
        })
    }

    fn rewind(&mut self, header: &Header) {
        self.at = self.first;
        self.left = header.record_count.unwrap_or_default();
        self.next = 0;
    }

    fn next(&mut self, header: &Header) -> Result<Option<Entry<'_>>, Flaw> {
        let bytes = match self.is_packed {
            true => self.buffers.unpacked.bytes(),
            false => &self.buffers.stored,
        };
        let rest = bytes.get(self.at..).unwrap_or_default();
        let Some(left) = self.left.checked_sub(1) else {
            return match rest.is_empty() {
                true => Ok(None),
                false => Err(Flaw::Field("number of records")),
            };
        };
        let mut reader = Reader::new(rest);
        let record = Delta::read(&mut reader)?;
        self.left = left;
        self.at += rest.len() - reader.rest().len();
        let offset = header.first_offset() + u64::from(record.offset);
        if record.offset < self.next || offset > header.last_offset() {
            return Err(Flaw::Field("offset of a record"));
        }
        self.next = record.offset + 1;
        let timestamp = match header.has_append_time() {
            true => header.max_timestamp,
            false => header.base_timestamp.wrapping_add(record.timestamp),
        };
        Ok(Some(Entry {
            offset,
            timestamp,
            key: record.key,
            value: record.value,
            headers: record.headers,
        }))
    }
}
