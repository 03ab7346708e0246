//! Packs the records of a batch, framed as Kafka frames them.
//!
//! - **gzip**: one member of the default level.
//! - **snappy**: a stream of snappy-java, in blocks of 32 KiB.
//! - **lz4**: one frame of independent blocks of 64 KiB. A block that does not shrink is stored
//!   raw.
//! - **zstd**: one frame of the default level, without checksum and content size.
//!
//! A thread keeps the tables of lz4 and zstd from one batch to the next: making those of zstd takes
//! longer than packing a small batch.

use super::compress::Codec;
use crate::num::short;
use crate::record::common::room::room;
use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::cell::Cell;
use std::io::{self, Write};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

/// The level of gzip that Java's `-1` means.
const GZIP_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;
/// Magic, version and least compatible version of a stream of snappy-java.
const XERIAL_HEAD: &[u8; 16] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const SNAPPY_BLOCK: usize = 32 << 10;
/// Magic, version 1 with independent blocks, blocks of 64 KiB, checksum of these two bytes.
const LZ4_HEAD: [u8; 7] = [0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82];
const LZ4_BLOCK: usize = 64 << 10;
/// Bit of a block's length: the block is not packed.
const LZ4_RAW: u32 = 1 << 31;

thread_local! {
    /// The tables of zstd; taken while a batch is packed.
    static KEPT: Cell<Option<Compressor<'static>>> = const { Cell::new(None) };
    /// As `KEPT`, of lz4.
    static KEPT_LZ4: Cell<Option<CompressTable>> = const { Cell::new(None) };
}

/// Writes the packed form of `plain` to `to` from byte `start` on, and returns the byte after it.
/// `to` grows as far as needed, and may have any bytes after the end: clearing the memory for each
/// batch would take long.
///
/// # Errors
///
/// An error of the library that packs, which has no reason to fail in memory.
pub fn pack(codec: Codec, plain: &[u8], to: &mut Vec<u8>, start: usize) -> io::Result<usize> {
    let mut to = Packed { to, end: start };
    match codec {
        Codec::None => to.put(plain),
        Codec::Gzip => {
            let mut encoder = GzEncoder::new(&mut to, Compression::new(GZIP_LEVEL));
            encoder.write_all(plain)?;
            encoder.finish()?;
        }
        Codec::Snappy => snappy(plain, &mut to)?,
        Codec::Lz4 => lz4(plain, &mut to),
        Codec::Zstd => zstd(plain, &mut to)?,
    }
    Ok(to.end)
}

/// Memory, and the end of the packed bytes in it.
struct Packed<'a> {
    to: &'a mut Vec<u8>,
    end: usize,
}

impl Packed<'_> {
    /// Memory for the next `len` bytes, with any contents.
    #[inline]
    fn room(&mut self, len: usize) -> &mut [u8] {
        room(self.to, self.end, len)
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.end += bytes.len();
    }
}

impl Write for Packed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn zstd(plain: &[u8], to: &mut Packed<'_>) -> io::Result<()> {
    let mut compressor = match KEPT.take() {
        Some(kept) => kept,
        None => {
            let mut made = Compressor::new(ZSTD_LEVEL)?;
            made.set_parameter(CParameter::ContentSizeFlag(false))?;
            made
        }
    };
    to.end += compressor.compress_to_buffer(plain, to.room(compress_bound(plain.len())))?;
    KEPT.set(Some(compressor));
    Ok(())
}

fn snappy(plain: &[u8], to: &mut Packed<'_>) -> io::Result<()> {
    let mut encoder = snap::raw::Encoder::new();
    to.put(XERIAL_HEAD);
    for block in plain.chunks(SNAPPY_BLOCK) {
        let packed = encoder.compress_vec(block).map_err(io::Error::other)?;
        to.put(&short(packed.len()).to_be_bytes());
        to.put(&packed);
    }
    Ok(())
}

fn lz4(plain: &[u8], to: &mut Packed<'_>) {
    /// Bytes of the length of a block.
    const LEN: usize = size_of::<u32>();
    to.put(&LZ4_HEAD);
    let mut table = KEPT_LZ4.take().unwrap_or_default();
    for block in plain.chunks(LZ4_BLOCK) {
        // A longer block makes it a large table, with which a shorter block would be packed
        // differently.
        if block.len() < LZ4_BLOCK && matches!(table, CompressTable::Large(_)) {
            table = CompressTable::default();
        }
        let room = to.room(LEN + get_maximum_output_size(block.len()));
        let (place, room) = room.split_at_mut(LEN);
        let packed = compress_into_with_table(block, room, &mut table).unwrap_or(usize::MAX);
        let len = if packed < block.len() {
            place.copy_from_slice(&short(packed).to_le_bytes());
            packed
        } else {
            place.copy_from_slice(&(short(block.len()) | LZ4_RAW).to_le_bytes());
            if let Some(raw) = room.get_mut(..block.len()) {
                raw.copy_from_slice(block);
            }
            block.len()
        };
        to.end += LEN + len;
    }
    KEPT_LZ4.set(Some(table));
    to.put(&[0; LEN]);
}
