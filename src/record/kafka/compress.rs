//! Unpacks the records of a batch, to at most [`BODY_LEN_MAX`] bytes.
//!
//! - **gzip**: members; other bytes after a member are ignored.
//! - **snappy**: streams of snappy-java: 8 bytes of magic, two versions, then blocks, each a raw
//!   Snappy block after its length (`i32`, big-endian). Without the magic, one raw block.
//! - **lz4**: one frame of independent blocks; other bytes after its end mark are ignored.
//! - **zstd**: frames.
//!
//! A thread keeps the tables of zstd from one batch to the next, as [`super::pack`] does.

use super::varint::Reader;
use crate::record::common::Flaw;
use crate::record::common::check::BODY_LEN_MAX;
use flate2::bufread::GzDecoder;
use lz4_flex::block::DecompressError;
use std::cell::Cell;
use std::io::Read;
use twox_hash::XxHash32;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{DCtx, ErrorCode};

/// How the records of a batch are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    None,
    /// gzip
    Gzip,
    /// Snappy
    Snappy,
    /// LZ4
    Lz4,
    /// Zstandard
    Zstd,
}

/// Which rule applies to the checksum in the header of an LZ4 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lz4Header {
    /// It must be right.
    Checked,
    /// Its value is not compared: writers of format 0 computed it over other bytes.
    Ignored,
}

impl Codec {
    /// All, with the names that Kafka gives them.
    const NAMES: [(Codec, &str); 5] = [
        (Codec::None, "none"),
        (Codec::Gzip, "gzip"),
        (Codec::Snappy, "snappy"),
        (Codec::Lz4, "lz4"),
        (Codec::Zstd, "zstd"),
    ];

    /// The name of the option value.
    pub fn word(self) -> &'static str {
        let mut names = Codec::NAMES.iter();
        let found = names.find(|(codec, _)| *codec == self);
        found.map_or("none", |(_, word)| *word)
    }

    /// Its bits in the attributes of a batch.
    pub fn bits(self) -> u16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Unpacks `packed`.
    ///
    /// # Errors
    ///
    /// [`Flaw::Field`] for damaged bytes, [`Flaw::Unpacked`] if there are too many.
    pub fn unpack(self, packed: &[u8], lz4: Lz4Header) -> Result<Vec<u8>, Flaw> {
        let mut unpacked = Unpacked::default();
        self.unpack_to(packed, lz4, &mut unpacked)?;
        unpacked.memory.truncate(unpacked.len);
        Ok(unpacked.memory)
    }

    /// Replaces `unpacked` by the contents of `packed`.
    ///
    /// # Errors
    ///
    /// As [`Codec::unpack`].
    pub fn unpack_to(
        self,
        packed: &[u8],
        lz4: Lz4Header,
        unpacked: &mut Unpacked,
    ) -> Result<(), Flaw> {
        unpacked.len = 0;
        match self {
            Codec::None => {
                unpacked.room(packed.len())?.copy_from_slice(packed);
                unpacked.len = packed.len();
                Ok(())
            }
            Codec::Gzip => gzip(packed, unpacked),
            Codec::Snappy => snappy(packed, unpacked),
            Codec::Lz4 => lz4_frame(packed, lz4, unpacked),
            Codec::Zstd => zstd(packed, unpacked),
        }
    }
}

/// Unpacked bytes, in memory that is reused by one batch after another.
#[derive(Debug, Default)]
pub struct Unpacked {
    /// May be longer than its contents: clearing it for each batch would take long.
    memory: Vec<u8>,
    len: usize,
}

impl Unpacked {
    /// The unpacked bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or_default()
    }

    /// How many bytes of memory it has.
    pub fn memory(&self) -> usize {
        self.memory.capacity()
    }

    /// Memory for the next `len` bytes, with any contents.
    fn room(&mut self, len: usize) -> Result<&mut [u8], Flaw> {
        if len > BODY_LEN_MAX - self.len {
            return Err(TOO_LONG);
        }
        let end = self.len + len;
        if self.memory.len() < end {
            if self.len == 0 {
                // The system supplies zeroed memory, so nothing has to be written.
                self.memory = vec![0; end];
            } else {
                self.memory.resize(end, 0);
            }
        }
        Ok(self.memory.get_mut(self.len..end).unwrap_or_default())
    }

    /// [`Unpacked::room`] for as much as there is memory, but at least `len` bytes or what may
    /// still be unpacked.
    fn any_room(&mut self, len: usize) -> Result<&mut [u8], Flaw> {
        let have = self.memory.len().saturating_sub(self.len);
        self.room(len.max(have).min(BODY_LEN_MAX - self.len))
    }
}

const TOO_LONG: Flaw = Flaw::Unpacked(BODY_LEN_MAX as u64);

/// Reads the rest of `reader`; `damaged` if it fails.
fn read_bounded(reader: impl Read, unpacked: &mut Unpacked, damaged: Flaw) -> Result<(), Flaw> {
    let left = BODY_LEN_MAX - unpacked.len;
    let mut reader = reader.take(left as u64 + 1);
    unpacked.memory.truncate(unpacked.len);
    let read = reader.read_to_end(&mut unpacked.memory);
    unpacked.len += read.map_err(|_| damaged)?;
    match unpacked.len > BODY_LEN_MAX {
        true => Err(TOO_LONG),
        false => Ok(()),
    }
}

fn gzip(mut packed: &[u8], unpacked: &mut Unpacked) -> Result<(), Flaw> {
    let damaged = Flaw::Field("gzip data");
    let mut is_first = true;
    loop {
        let mut member = GzDecoder::new(packed);
        if member.header().is_none() && !is_first {
            return Ok(());
        }
        read_bounded(&mut member, unpacked, damaged)?;
        packed = member.into_inner();
        is_first = false;
        if packed.is_empty() {
            return Ok(());
        }
    }
}

thread_local! {
    /// The tables of zstd; taken while a batch is unpacked.
    static KEPT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

fn zstd(packed: &[u8], unpacked: &mut Unpacked) -> Result<(), Flaw> {
    /// Bytes of the first attempt for each one that is stored.
    const RATIO: usize = 8;
    const NO_ROOM: ErrorCode =
        (ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();
    let damaged = Flaw::Field("zstd data");
    if packed.is_empty() {
        return Err(damaged);
    }
    let mut tables = KEPT.take().unwrap_or_default();
    // A frame need not state the length of its contents. Unpacking it in pieces would take longer.
    let mut len = packed.len().saturating_mul(RATIO);
    let done = loop {
        let room = unpacked.any_room(len)?;
        len = room.len();
        match tables.decompress(room, packed) {
            Err(NO_ROOM) if len == BODY_LEN_MAX => return Err(TOO_LONG),
            Err(NO_ROOM) => len *= 2,
            done => break done,
        }
    };
    KEPT.set(Some(tables));
    unpacked.len = done.map_err(|_| damaged)?;
    Ok(())
}

/// Beginning of a stream of snappy-java.
const XERIAL: &[u8; 8] = b"\x82SNAPPY\0";
/// Bytes of the two versions after it.
const XERIAL_VERSIONS: usize = 8;

fn snappy(packed: &[u8], unpacked: &mut Unpacked) -> Result<(), Flaw> {
    let damaged = Flaw::Field("snappy data");
    if !packed.starts_with(XERIAL) {
        return snappy_block(packed, unpacked);
    }
    let mut reader = Reader::new(packed);
    while !reader.rest().is_empty() {
        if reader.rest().starts_with(XERIAL) {
            reader.take(XERIAL.len() + XERIAL_VERSIONS).ok_or(damaged)?;
            continue;
        }
        let len = reader.i32().and_then(|len| usize::try_from(len).ok());
        let block = len.and_then(|len| reader.take(len)).ok_or(damaged)?;
        snappy_block(block, unpacked)?;
    }
    Ok(())
}

fn snappy_block(block: &[u8], unpacked: &mut Unpacked) -> Result<(), Flaw> {
    /// A block of Snappy unpacks to fewer than 64 bytes for each byte that is stored.
    const RATIO_MAX: usize = 64;
    let damaged = Flaw::Field("snappy data");
    let len = snap::raw::decompress_len(block).map_err(|_| damaged)?;
    if len > block.len().saturating_mul(RATIO_MAX) {
        return Err(damaged);
    }
    let room = unpacked.room(len)?;
    let done = snap::raw::Decoder::new().decompress(block, room);
    match done {
        Ok(done) if done == len => {
            unpacked.len += len;
            Ok(())
        }
        _ => Err(damaged),
    }
}

/// Bits of the first byte of an LZ4 frame's descriptor.
mod flag {
    pub const VERSION: u8 = 0xC0;
    pub const VERSION_1: u8 = 0x40;
    pub const INDEPENDENT: u8 = 0x20;
    pub const BLOCK_CHECKSUM: u8 = 0x10;
    pub const CONTENT_SIZE: u8 = 0x08;
    pub const RESERVED: u8 = 0x03;
}

/// What the header of an LZ4 frame states about its blocks.
struct Frame {
    block_len_max: usize,
    has_checksums: bool,
}

/// A block of LZ4 unpacks to fewer than 256 bytes for each byte that is stored.
const LZ4_RATIO_MAX: usize = 256;
const LZ4_DAMAGED: Flaw = Flaw::Field("lz4 data");

fn lz4_frame(packed: &[u8], rule: Lz4Header, unpacked: &mut Unpacked) -> Result<(), Flaw> {
    const RAW: u32 = 1 << 31;
    let mut reader = Reader::new(packed);
    let frame = lz4_header(&mut reader, rule).ok_or(LZ4_DAMAGED)?;
    loop {
        let size = little(&mut reader).ok_or(LZ4_DAMAGED)?;
        if size == 0 {
            return Ok(());
        }
        let len = (size & !RAW) as usize;
        let block = reader.take(len).ok_or(LZ4_DAMAGED)?;
        if len > frame.block_len_max {
            return Err(LZ4_DAMAGED);
        }
        if frame.has_checksums && little(&mut reader) != Some(XxHash32::oneshot(0, block)) {
            return Err(LZ4_DAMAGED);
        }
        if size & RAW != 0 {
            unpacked.room(len)?.copy_from_slice(block);
            unpacked.len += len;
            continue;
        }
        // The last block may be near the limit without filling its room.
        let wanted = frame.block_len_max.min(LZ4_RATIO_MAX * len);
        let left = BODY_LEN_MAX - unpacked.len;
        let room = unpacked.room(wanted.min(left))?;
        match lz4_flex::block::decompress_into(block, room) {
            Ok(done) => unpacked.len += done,
            Err(DecompressError::OutputTooSmall { .. }) if left < wanted => return Err(TOO_LONG),
            Err(_) => return Err(LZ4_DAMAGED),
        }
    }
}

/// Reads the header of a frame; `None` if it is not one that Kafka reads.
fn lz4_header(reader: &mut Reader<'_>, rule: Lz4Header) -> Option<Frame> {
    const MAGIC: u32 = 0x184D_2204;
    const BLOCK_SIZE: u8 = 0x70;
    if little(reader)? != MAGIC {
        return None;
    }
    let from = *reader;
    let (flags, sizes) = (reader.byte()?, reader.byte()?);
    let is_known = flags & (flag::VERSION | flag::INDEPENDENT | flag::RESERVED)
        == flag::VERSION_1 | flag::INDEPENDENT;
    if !is_known || sizes & !BLOCK_SIZE != 0 {
        return None;
    }
    let block_len_max = match sizes >> 4 {
        code @ 4..=7 => 1 << (8 + 2 * code),
        _ => return None,
    };
    if flags & flag::CONTENT_SIZE != 0 {
        reader.i64()?;
    }
    let len = from.rest().len() - reader.rest().len();
    let covered = from.rest().get(..len)?;
    let [_, _, checksum, _] = XxHash32::oneshot(0, covered).to_be_bytes();
    if reader.byte()? != checksum && rule == Lz4Header::Checked {
        return None;
    }
    Some(Frame {
        block_len_max,
        has_checksums: flags & flag::BLOCK_CHECKSUM != 0,
    })
}

fn little(reader: &mut Reader<'_>) -> Option<u32> {
    reader.u32().map(u32::swap_bytes)
}
