//! A batch whose records are read one by one.

use super::compress::{Codec, Lz4Header, Unpacked};
use super::entry::{Delta, Entry, TransactionMarker};
use super::header::{HEAD_LEN, Header};
use super::in_batch::InBatch;
use super::old::Messages;
use super::varint::Reader;
use crate::record::common::Flaw;
use crate::region::Region;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A batch of any format, unpacked. Each call of [`Opened::next`] returns a record.
#[derive(Debug)]
pub struct Opened {
    header: Header,
    records: Records,
}

/// Memory for the bytes of a batch, reused by one batch after another.
#[derive(Debug, Default)]
pub struct Buffers {
    /// The batch as stored.
    stored: Vec<u8>,
    /// The batch, if it is read in place instead.
    lent: Option<Lent>,
    /// Its records, if they are packed.
    unpacked: Unpacked,
}

/// A batch of format 2 that is read in place.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The memory, which begins with a [preface](super::in_batch::preface).
    pub region: Arc<Region>,
    /// Bytes of the topic in the preface.
    pub topic_len: u32,
    /// The bytes of the batch.
    pub bytes: Range<usize>,
}

impl Buffers {
    /// The buffer to read the batch into.
    pub fn stored(&mut self) -> &mut Vec<u8> {
        self.lent = None;
        &mut self.stored
    }

    /// Makes the next batch be read in place.
    pub fn lend(&mut self, lent: Lent) {
        self.lent = Some(lent);
    }

    fn memory(&self) -> usize {
        let lent = self.lent.as_ref().map_or(0, |lent| lent.region.len());
        self.stored.capacity() + self.unpacked.memory() + lent
    }

    /// The batch as stored.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.lent {
            None => &self.stored,
            Some(lent) => {
                let all = lent.region.all_again();
                all.and_then(|all| all.get(lent.bytes.clone()))
                    .unwrap_or_default()
            }
        }
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
            lent: None,
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
        let bytes = buffers.bytes();
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

    /// The memory that holds its records, if they can be read in place.
    pub fn lent(&self) -> Option<&Arc<Region>> {
        match &self.records {
            Records::New(deltas) if !deltas.is_packed => {
                deltas.buffers.lent.as_ref().map(|lent| &lent.region)
            }
            _ => None,
        }
    }

    /// The first offset that [`Opened::next`] has not passed; `None` at the end of the batch, and
    /// for a batch of an older format.
    pub fn next_offset(&self) -> Option<u64> {
        match &self.records {
            Records::New(deltas) if deltas.left > 0 => {
                Some(self.header.first_offset() + u64::from(deltas.next))
            }
            _ => None,
        }
    }

    /// How many bytes of memory it has, except for a batch of an older format.
    pub fn memory(&self) -> usize {
        match &self.records {
            Records::New(deltas) => deltas.buffers.memory(),
            Records::Old(_) => 0,
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

    /// Passes records that are read in place, with their offsets, to `visit`, until it breaks or
    /// the batch ends. Returns whether it broke.
    ///
    /// # Errors
    ///
    /// As [`Opened::next`].
    #[inline]
    pub fn visit_in_place(
        &mut self,
        visit: impl FnMut(u64, InBatch) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Flaw> {
        match &mut self.records {
            Records::New(deltas) => deltas.visit_in_place(&self.header, visit),
            Records::Old(_) => Ok(ControlFlow::Continue(())),
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
            let mut unpacked = std::mem::take(&mut buffers.unpacked);
            let packed = buffers.bytes().get(HEAD_LEN..).unwrap_or_default();
            codec.unpack_to(packed, Lz4Header::Checked, &mut unpacked)?;
            buffers.unpacked = unpacked;
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

    #[inline]
    fn visit_in_place(
        &mut self,
        header: &Header,
        mut visit: impl FnMut(u64, InBatch) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Flaw> {
        let Some(lent) = self.buffers.lent.as_ref().filter(|_| !self.is_packed) else {
            return Ok(ControlFlow::Continue(()));
        };
        let (bytes, begin) = (self.buffers.bytes(), lent.bytes.start);
        let (first, last) = (header.first_offset(), header.last_offset());
        let mut reader = Reader::new(bytes.get(self.at..).unwrap_or_default());
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() {
            let Some(left) = self.left.checked_sub(1) else {
                return match reader.rest().is_empty() {
                    true => Ok(flow),
                    false => Err(Flaw::Field("number of records")),
                };
            };
            let record = Delta::read(&mut reader)?;
            self.left = left;
            self.at = bytes.len() - reader.rest().len();
            let offset = first + u64::from(record.offset);
            if record.offset < self.next || offset > last {
                return Err(Flaw::Field("offset of a record"));
            }
            self.next = record.offset + 1;
            let end = begin + self.at;
            flow = visit(offset, InBatch::of(&record, lent.topic_len, begin, end));
        }
        Ok(flow)
    }

    fn next(&mut self, header: &Header) -> Result<Option<Entry<'_>>, Flaw> {
        let bytes = match self.is_packed {
            true => self.buffers.unpacked.bytes(),
            false => self.buffers.bytes(),
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
