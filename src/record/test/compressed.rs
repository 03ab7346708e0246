//! Compressed bodies: Forebay writes none, but brokers do.

use super::{message, seal, style};
use crate::error::Error;
use crate::record::Draft;
use crate::record::common::check::BODY_LEN_MAX;
use crate::record::rocketmq::compressed::decompress;
use std::io::Write;

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    to.write_all(body).unwrap();
    to.finish().unwrap()
}

fn lz4(body: &[u8]) -> Vec<u8> {
    let mut to = lz4_flex::frame::FrameEncoder::new(Vec::new());
    to.write_all(body).unwrap();
    to.finish().unwrap()
}

/// A record with this stored body and kind of compression.
fn record(stored: &[u8], kind: u32) -> Vec<u8> {
    let draft = Draft {
        body: stored,
        ..Draft::default()
    };
    let mut bytes = seal("T", 0, &draft, &style("10.0.0.1:0", false), (0, 0, 0));
    bytes[36..40].copy_from_slice(&(1 | kind << 8).to_be_bytes());
    bytes
}

#[test]
fn every_kind_of_compression_is_undone_and_the_stored_body_is_kept() {
    let body = b"forebay ".repeat(1000);
    let zstd = zstd::encode_all(&body[..], 3).unwrap();
    for (kind, stored) in [
        (0, zlib(&body)),
        (3, zlib(&body)),
        (1, lz4(&body)),
        (2, zstd),
    ] {
        let message = message(&record(&stored, kind));
        assert_eq!(&*message.body().unwrap(), body, "kind {kind}");
        assert_eq!(message.record().stored_body(), stored);
    }
}

#[test]
fn damaged_or_unknown_compression_is_corrupt_and_no_panic() {
    let good = zlib(b"forebay");
    let cut = &good[..good.len() - 5];
    for (stored, kind) in [
        (cut, 0),
        (&b"no zlib"[..], 0),
        (&b"no frame"[..], 1),
        (&good, 2),
    ] {
        let message = message(&record(stored, kind));
        assert!(
            matches!(message.body(), Err(Error::Corrupt { .. })),
            "kind {kind}"
        );
    }
    for kind in 4..8 {
        let text = decompress(&good, 1 | kind << 8).unwrap_err();
        assert!(text.contains(&kind.to_string()), "{text}");
    }
}

#[test]
fn a_body_that_grows_beyond_all_bounds_is_refused() {
    // A few kilobytes that decompress to more than the limit could otherwise exhaust the memory.
    let zeros = vec![0; 1 << 20];
    let mut to = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for _ in 0..=BODY_LEN_MAX >> 20 {
        to.write_all(&zeros).unwrap();
    }
    let stored = to.finish().unwrap();
    let text = decompress(&stored, 0x201).unwrap_err();
    assert!(text.contains(&BODY_LEN_MAX.to_string()), "{text}");
}
