//! A message that a caller holds: a record in a mapped file that stays mapped meanwhile.

use super::rocketmq::layout::{CRC_PROPERTY, Flaw, Layout, Record, extent, sys_flag};
use super::rocketmq::properties::{self, KEYS, TAGS};
use crate::clock::{Clock, RealClock};
use crate::error::{Error, Op, Result};
use crate::region::Region;
use crate::region::guard;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The most that a compressed body may grow to: what is larger is refused as damage.
pub const BODY_LEN_MAX: usize = 128 << 20;

/// A message, read and checked. Cloning shares the mapped bytes.
#[derive(Clone, Debug)]
pub struct Message {
    region: Arc<Region>,
    start: usize,
    layout: Layout,
}

impl Message {
    /// The record whose first byte is `start` of `region`, or the [`Flaw`] that keeps the bytes
    /// from being one. Checksums are the caller's to check.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where the bytes cannot be read.
    pub fn new(region: Arc<Region>, start: usize) -> Result<Result<Message, Flaw>> {
        let bytes = extent(|len| region.run(start, len));
        let bytes = bytes.map_err(|e| Error::io(Op::Read, region.path(), e))?;
        Ok(Layout::parse(bytes).map(|layout| Message {
            region,
            start,
            layout,
        }))
    }

    /// The record at `start` of `region` whose layout is known.
    pub fn with_layout(region: Arc<Region>, start: usize, layout: Layout) -> Message {
        Message {
            region,
            start,
            layout,
        }
    }

    /// A message over a copy of a record's bytes, or the flaw that makes them no record.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where the system has no memory for the copy.
    pub fn from_record(bytes: &[u8]) -> Result<Result<Message, Flaw>> {
        let name = Path::new("record");
        let region = Region::anonymous(bytes.len(), name).and_then(|region| {
            region.write(0, bytes)?;
            region.publish(bytes.len());
            Ok(region)
        });
        let region = region.map_err(|e| Error::io(Op::Allocate, name, e))?;
        Message::new(Arc::new(region), 0)
    }

    /// Loads from each page of the record: to be called before one that was read a while ago is
    /// looked at again, for its pages may have left memory, and may not be had a second time.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the path and the byte of the file.
    pub fn touch(&self) -> Result<()> {
        guard::renew_at(RealClock.coarse_ms());
        let touched = self
            .region
            .slice(self.start, self.layout.total_len as usize);
        touched
            .map(drop)
            .map_err(|e| Error::io(Op::Read, self.region.path(), e))
    }

    /// The fields of the record.
    pub fn record(&self) -> Record<'_> {
        let len = self.layout.total_len as usize;
        let bytes = self.region.slice_again(self.start, len);
        let Ok(record) = Record::with_layout(bytes.unwrap_or_default(), self.layout) else {
            unreachable!("the record was readable when the message was made, and regions only grow")
        };
        record
    }

    /// The mapped file, and where the record begins in it.
    pub fn place(&self) -> (&Arc<Region>, usize) {
        (&self.region, self.start)
    }

    /// The topic.
    pub fn topic(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.record().topic())
    }

    /// The body, decompressed where the record says that it is compressed.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] where the compressed bytes are damaged or grow beyond [`BODY_LEN_MAX`].
    pub fn body(&self) -> Result<Cow<'_, [u8]>> {
        let record = self.record();
        if record.sys_flag() & sys_flag::COMPRESSED == 0 {
            return Ok(Cow::Borrowed(record.stored_body()));
        }
        decompress(record.stored_body(), record.sys_flag())
            .map(Cow::Owned)
            .map_err(|reason| {
                Error::corrupt(
                    self.region.path(),
                    self.start as u64,
                    format!("body: {reason}"),
                )
            })
    }

    /// The keys in their order.
    pub fn keys(&self) -> Vec<Cow<'_, str>> {
        let keys = properties::find(self.record().raw_properties(), KEYS.as_bytes());
        let parts = keys.unwrap_or_default().split(|byte| *byte == b' ');
        parts
            .filter(|key| !key.is_empty())
            .map(String::from_utf8_lossy)
            .collect()
    }

    /// The tag.
    pub fn tags(&self) -> Option<Cow<'_, str>> {
        let tags = properties::find(self.record().raw_properties(), TAGS.as_bytes());
        tags.map(String::from_utf8_lossy)
    }

    /// The user's own properties in the order in which they are stored, values as bytes.
    pub fn headers(&self) -> impl Iterator<Item = (Cow<'_, str>, &[u8])> {
        let named = properties::pairs(self.record().raw_properties());
        let named = named.map(|(name, value)| (String::from_utf8_lossy(name), value));
        named.filter(|(name, _)| !properties::is_reserved(name))
    }

    /// The user's own properties, or those of the system: by reserved names, without keys, tags and
    /// checksum, which have fields of their own.
    pub fn properties(&self, which: PropertyKind) -> BTreeMap<String, String> {
        let raw = self.record().raw_properties();
        let mut found = BTreeMap::new();
        for (name, value) in properties::pairs(raw) {
            let name = String::from_utf8_lossy(name);
            let system = properties::is_reserved(&name);
            if system == (which == PropertyKind::System)
                && !matches!(&*name, KEYS | TAGS | CRC_PROPERTY)
            {
                let value = String::from_utf8_lossy(value).into_owned();
                found.insert(name.into_owned(), value);
            }
        }
        found
    }

    /// RocketMQ's message id: store host and position, in upper-case hex.
    pub fn id(&self) -> String {
        let record = self.record();
        message_id(record.store_host_bytes(), record.position() as u64)
    }
}

/// Whose properties are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyKind {
    /// Those that users set.
    User,
    /// Those under reserved names.
    System,
}

/// Length of the longest message id: that of an IPv6 host.
pub const ID_LEN_MAX: usize = 56;

/// The message id of a record at `position` of the log of the store with these host bytes.
pub fn message_id(host: &[u8], position: u64) -> String {
    write_id(host, position, &mut [0; ID_LEN_MAX]).to_owned()
}

/// Writes a message id without allocating. A host is at most 20 bytes long; what is longer is cut.
pub fn write_id<'a>(host: &[u8], position: u64, digits: &'a mut [u8; ID_LEN_MAX]) -> &'a str {
    let digit = |nibble: u8| match nibble {
        0..=9 => b'0' + nibble,
        _ => b'A' + nibble - 10,
    };
    let position = position.to_be_bytes();
    let bytes = host.iter().take(20).chain(&position);
    let mut len = 0;
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        len += 2;
    }
    str::from_utf8(digits.get(..len).unwrap_or_default()).unwrap_or_default()
}

/// The position in a message id of 32 (IPv4) or 56 (IPv6) hex digits.
///
/// # Errors
///
/// [`Error::InvalidOption`] where the text is no message id.
pub fn position_of_id(id: &str) -> Result<u64> {
    let wrong = || {
        Error::option(
            "message id",
            format!("{id:?}"),
            "it has 32 or 56 hex digits",
        )
    };
    if !matches!(id.len(), 32 | 56) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let digits = id.get(id.len() - 16..).ok_or_else(wrong)?;
    u64::from_str_radix(digits, 16).map_err(|_| wrong())
}

/// Decompresses a body as its `sys_flag` says: zlib, LZ4 (frame) or zstd.
///
/// # Errors
///
/// Text that says why, for an illegal kind, damaged bytes, or more than [`BODY_LEN_MAX`].
pub fn decompress(stored: &[u8], flag: u32) -> Result<Vec<u8>, String> {
    match (flag & sys_flag::COMPRESSION) >> 8 {
        0 | 3 => read_bounded(flate2::read::ZlibDecoder::new(stored)),
        1 => read_bounded(lz4_flex::frame::FrameDecoder::new(stored)),
        2 => {
            let mut decoder = zstd::Decoder::new(stored).map_err(|e| e.to_string())?;
            decoder.window_log_max(27).map_err(|e| e.to_string())?;
            read_bounded(decoder)
        }
        kind => Err(format!("compression kind {kind} does not exist")),
    }
}

fn read_bounded(reader: impl Read) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    let limit = BODY_LEN_MAX as u64 + 1;
    reader
        .take(limit)
        .read_to_end(&mut body)
        .map_err(|e| e.to_string())?;
    if body.len() > BODY_LEN_MAX {
        return Err(format!("it grows beyond {BODY_LEN_MAX} bytes"));
    }
    Ok(body)
}
