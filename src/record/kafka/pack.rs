//! Packs the records of a batch, framed as Kafka frames them.
//!
//! - **gzip**: one member of the default level.
//! - **snappy**: a stream of snappy-java, in blocks of 32 KiB.
//! - **lz4**: one frame of independent blocks of 64 KiB. A block that does not shrink is stored
//!   raw.
//! - **zstd**: one frame of the default level, without checksum and content size.
//!
//! A thread keeps the tables of lz4 and zstd from one batch to the next: to make those of zstd
//! takes longer than to pack a small batch.

use super::compress::Codec;
use crate::num::short;
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

/// Appends the packed form of `plain` to `to`.
///
/// # Errors
///
/// An error of the library that packs, which has no reason to fail in memory.
pub fn pack(codec: Codec, plain: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    match codec {
        Codec::None => {
            to.extend_from_slice(plain);
            Ok(())
        }
        Codec::Gzip => {
            let mut encoder = GzEncoder::new(to, Compression::new(GZIP_LEVEL));
            encoder.write_all(plain)?;
            encoder.finish().map(drop)
        }
        Codec::Snappy => snappy(plain, to),
        Codec::Lz4 => {
            lz4(plain, to);
            Ok(())
        }
        Codec::Zstd => zstd(plain, to),
    }
}

fn zstd(plain: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    let mut compressor = match KEPT.take() {
        Some(kept) => kept,
        None => {
            let mut made = Compressor::new(ZSTD_LEVEL)?;
            made.set_parameter(CParameter::ContentSizeFlag(false))?;
            made
        }
    };
    let start = to.len();
    to.resize(start + compress_bound(plain.len()), 0);
    let place = to.get_mut(start..).unwrap_or_default();
    let len = compressor.compress_to_buffer(plain, place)?;
    to.truncate(start + len);
    KEPT.set(Some(compressor));
    Ok(())
}

fn snappy(plain: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = snap::raw::Encoder::new();
    to.extend_from_slice(XERIAL_HEAD);
    for block in plain.chunks(SNAPPY_BLOCK) {
        let packed = encoder.compress_vec(block).map_err(io::Error::other)?;
        to.extend_from_slice(&short(packed.len()).to_be_bytes());
        to.extend_from_slice(&packed);
    }
    Ok(())
}

fn lz4(plain: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&LZ4_HEAD);
    let mut table = KEPT_LZ4.take().unwrap_or_default();
    for block in plain.chunks(LZ4_BLOCK) {
        // It becomes one for longer blocks, with which shorter ones get other bytes.
        if block.len() < LZ4_BLOCK && matches!(table, CompressTable::Large(_)) {
            table = CompressTable::default();
        }
        let start = to.len();
        let begin = start + size_of::<u32>();
        to.resize(begin + get_maximum_output_size(block.len()), 0);
        let place = to.get_mut(begin..).unwrap_or_default();
        let packed = compress_into_with_table(block, place, &mut table).unwrap_or(usize::MAX);
        let len = if packed < block.len() {
            to.truncate(begin + packed);
            short(packed)
        } else {
            to.truncate(begin);
            to.extend_from_slice(block);
            short(block.len()) | LZ4_RAW
        };
        if let Some(place) = to.get_mut(start..begin) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }
    KEPT_LZ4.set(Some(table));
    to.extend_from_slice(&[0; 4]);
}
