//! What each codec accepts and refuses.

use crate::record::common::Flaw;
use crate::record::common::check::BODY_LEN_MAX;
use crate::record::kafka::compress::{Codec, Lz4Header, Unpacked};
use crate::record::kafka::pack::pack;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write, repeat};

fn unpack(codec: Codec, packed: &[u8]) -> Result<Vec<u8>, Flaw> {
    codec.unpack(packed, Lz4Header::Checked)
}

fn member(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_takes_several_members_and_ignores_what_follows_them() {
    let both = [member(b"one"), member(b"two")].concat();
    assert_eq!(unpack(Codec::Gzip, &both).unwrap(), b"onetwo");
    let more = [both, b"not a member".to_vec()].concat();
    assert_eq!(unpack(Codec::Gzip, &more).unwrap(), b"onetwo");
    let damaged = Err(Flaw::Field("gzip data"));
    assert_eq!(unpack(Codec::Gzip, b"not a member"), damaged);
    let cut = member(b"some bytes that are cut");
    assert_eq!(unpack(Codec::Gzip, &cut[..cut.len() - 9]), damaged);
}

#[test]
fn zstd_takes_several_frames_and_nothing_else() {
    let frame = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
    let both = [frame(b"one"), frame(b"two")].concat();
    assert_eq!(unpack(Codec::Zstd, &both).unwrap(), b"onetwo");
    let damaged = Err(Flaw::Field("zstd data"));
    let more = [both, b"more".to_vec()].concat();
    assert_eq!(unpack(Codec::Zstd, &more), damaged);
}

#[test]
fn snappy_takes_streams_of_blocks_and_one_raw_block() {
    let block = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
    assert_eq!(unpack(Codec::Snappy, &block(b"raw")).unwrap(), b"raw");
    let mut stream = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for bytes in [&b"one"[..], b"two"] {
        let block = block(bytes);
        stream.extend_from_slice(&(block.len() as i32).to_be_bytes());
        stream.extend_from_slice(&block);
    }
    assert_eq!(unpack(Codec::Snappy, &stream).unwrap(), b"onetwo");
    let twice = [&stream[..], &stream].concat();
    assert_eq!(unpack(Codec::Snappy, &twice).unwrap(), b"onetwoonetwo");
    let damaged = Err(Flaw::Field("snappy data"));
    assert_eq!(unpack(Codec::Snappy, &stream[..stream.len() - 1]), damaged);
    // A block of 6 bytes that claims 2 GiB.
    let claim = [0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0];
    assert_eq!(unpack(Codec::Snappy, &claim), damaged);
}

#[test]
fn memory_that_was_used_before_holds_the_bytes_of_the_last_batch_alone() {
    let long: Vec<u8> = (0..200_000_u32).map(|at| (at / 900) as u8).collect();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let (mut packed, mut unpacked) = (Vec::new(), Unpacked::default());
        for plain in [&b"short"[..], &long, b"one", &long[..70_000], b"two"] {
            let end = pack(codec, plain, &mut packed, 3).unwrap();
            let packed = &packed[3..end];
            let cut = &packed[..packed.len() / 2];
            assert!(
                codec
                    .unpack_to(cut, Lz4Header::Checked, &mut unpacked)
                    .is_err()
            );
            let done = codec.unpack_to(packed, Lz4Header::Checked, &mut unpacked);
            assert_eq!((done, unpacked.bytes()), (Ok(()), plain), "{codec:?}");
        }
    }
}

/// A frame of one raw block.
fn frame(descriptor: &[u8], checksum: u8, block: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x04, 0x22, 0x4D, 0x18];
    bytes.extend_from_slice(descriptor);
    bytes.push(checksum);
    bytes.extend_from_slice(&(block.len() as u32 | 1 << 31).to_le_bytes());
    bytes.extend_from_slice(block);
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

#[test]
fn lz4_takes_one_frame_whose_header_has_a_checksum_except_in_format_0() {
    let right = frame(&[0x60, 0x40], 0x82, b"one");
    assert_eq!(unpack(Codec::Lz4, &right).unwrap(), b"one");
    let more = [&right[..], b"more"].concat();
    assert_eq!(unpack(Codec::Lz4, &more).unwrap(), b"one");
    let old = frame(&[0x60, 0x40], 0x1A, b"one");
    let damaged = Err(Flaw::Field("lz4 data"));
    assert_eq!(unpack(Codec::Lz4, &old), damaged);
    let ignored = Codec::Lz4.unpack(&old, Lz4Header::Ignored);
    assert_eq!(ignored.unwrap(), b"one");
    for len in 0..right.len() {
        assert_eq!(unpack(Codec::Lz4, &right[..len]), damaged, "{len} bytes");
    }
    for descriptor in [
        [0x40, 0x40],
        [0x61, 0x40],
        [0xA0, 0x40],
        [0x60, 0x30],
        [0x60, 0xC0],
    ] {
        let other = frame(&descriptor, 0, b"one");
        assert_eq!(Codec::Lz4.unpack(&other, Lz4Header::Ignored), damaged);
    }
}

#[test]
fn lz4_frames_of_other_writers_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    for size in [BlockSize::Max64KB, BlockSize::Max4MB] {
        let info = FrameInfo::new()
            .block_size(size)
            .block_mode(BlockMode::Independent)
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(bytes.len() as u64));
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&bytes).unwrap();
        let mut packed = encoder.finish().unwrap();
        assert_eq!(unpack(Codec::Lz4, &packed).unwrap(), bytes);
        packed[40] ^= 1;
        assert_eq!(unpack(Codec::Lz4, &packed), Err(Flaw::Field("lz4 data")));
    }
}

const PIECE: usize = 4 << 20;

/// An LZ4 frame of blocks of [`PIECE`] zeros, and then one of `last` zeros.
fn zeros_as_lz4(last: usize) -> Vec<u8> {
    let mut bytes = frame(&[0x60, 0x70], 0x73, b"");
    // Without the block and the end mark.
    bytes.truncate(7);
    let block = |len: usize| {
        let block = lz4_flex::block::compress(&vec![0; len]);
        [&(block.len() as u32).to_le_bytes()[..], &block].concat()
    };
    bytes.extend(block(PIECE).repeat(BODY_LEN_MAX / PIECE));
    if last > 0 {
        bytes.extend(block(last));
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// A stream of Snappy blocks of [`PIECE`] zeros, and then one of `last` zeros.
fn zeros_as_snappy(last: usize) -> Vec<u8> {
    let mut stream = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    let block = |len: usize| {
        let block = snap::raw::Encoder::new().compress_vec(&vec![0; len]);
        let block = block.unwrap();
        [&(block.len() as i32).to_be_bytes()[..], &block].concat()
    };
    stream.extend(block(PIECE).repeat(BODY_LEN_MAX / PIECE));
    if last > 0 {
        stream.extend(block(last));
    }
    stream
}

/// Members of [`PIECE`] zeros, and then one of `last` zeros: the limit is that of all together.
fn zeros_as_gzip(last: usize) -> Vec<u8> {
    let mut members = member(&vec![0; PIECE]).repeat(BODY_LEN_MAX / PIECE);
    if last > 0 {
        members.extend(member(&vec![0; last]));
    }
    members
}

fn zeros_as_zstd(last: usize) -> Vec<u8> {
    zstd::encode_all(repeat(0).take((BODY_LEN_MAX + last) as u64), 1).unwrap()
}

#[test]
fn few_bytes_that_unpack_to_too_many_are_refused() {
    type Zeros = fn(usize) -> Vec<u8>;
    let codecs: [(Codec, Zeros); 4] = [
        (Codec::Gzip, zeros_as_gzip),
        (Codec::Snappy, zeros_as_snappy),
        (Codec::Lz4, zeros_as_lz4),
        (Codec::Zstd, zeros_as_zstd),
    ];
    let refused = Err(Flaw::Unpacked(BODY_LEN_MAX as u64));
    for (codec, zeros) in codecs {
        let mut unpacked = Unpacked::default();
        let whole = zeros(0);
        assert!(whole.len() < BODY_LEN_MAX / 16, "{codec:?}");
        let done = codec.unpack_to(&whole, Lz4Header::Checked, &mut unpacked);
        let len = unpacked.bytes().len();
        assert_eq!((done, len), (Ok(()), BODY_LEN_MAX), "{codec:?}");
        let done = codec.unpack_to(&zeros(1), Lz4Header::Checked, &mut unpacked);
        assert_eq!(done, refused, "{codec:?}");
        assert!(unpacked.memory() <= 2 * BODY_LEN_MAX, "{codec:?}");
    }
}
