//! The limits of the machine: only the work that any store of this format must do.

use super::load::record_len;
use super::{Clock, Scratch, Span, run_bytes};
use forebay::internals::{Access, Region};
use forebay::{Disk, RealDisk};
use std::hint::black_box;

const LEN_OF_CHECKSUM: usize = 20;

/// Number of records in a run with bodies of this length.
pub(crate) fn count(body_len: usize) -> f64 {
    (run_bytes() as usize / record_len(body_len)) as f64
}

/// Writes a run of records: for each the checksum of the body, that of the record, and a copy to a
/// map with reserved blocks and no pages yet.
pub(crate) fn records(body_len: usize) -> Span {
    let len = record_len(body_len);
    let bytes = run_bytes() as usize;
    let count = bytes / len;
    let record = vec![0xA5; len];
    let scratch = Scratch::new();
    let region = reserved(&scratch, bytes);
    let clock = Clock::start();
    for number in 0..count {
        let record = black_box(record.as_slice());
        black_box(crc32fast::hash(&record[88..88 + body_len]));
        black_box(crc32fast::hash(&record[..len - LEN_OF_CHECKSUM]));
        region.write(number * len, record).unwrap();
    }
    clock.stop()
}

/// A map of a new file with blocks for all its bytes.
fn reserved(scratch: &Scratch, bytes: usize) -> Region {
    let disk: &dyn Disk = &RealDisk;
    let path = scratch.path().join("limit");
    disk.create(&path, bytes as u64).unwrap();
    disk.reserve(&path, 0, bytes as u64).unwrap();
    disk.sync_file(&path).unwrap();
    disk.map(&path, bytes, Access::ReadWrite).unwrap()
}

/// The parts of the same work alone: faults and copy, the checksums.
pub(crate) fn parts(body_len: usize) -> (Span, Span) {
    let len = record_len(body_len);
    let bytes = run_bytes() as usize;
    let count = bytes / len;
    let record = vec![0xA5; len];
    let scratch = Scratch::new();
    let region = reserved(&scratch, bytes);
    let clock = Clock::start();
    for number in 0..count {
        let stored = region.write(number * len, black_box(record.as_slice()));
        stored.unwrap();
    }
    let copied = clock.stop();
    let clock = Clock::start();
    for _ in 0..count {
        let record = black_box(record.as_slice());
        black_box(crc32fast::hash(&record[88..88 + body_len]));
        black_box(crc32fast::hash(&record[..len - LEN_OF_CHECKSUM]));
    }
    (copied, clock.stop())
}

/// Copies bodies of `body_len`, at distances of `stride` bytes, from `source` into one buffer of
/// 16 MiB that is reused.
/// Returns the number of bytes.
pub(crate) fn gather(source: &[u8], body_len: usize, stride: usize) -> (Span, f64) {
    const BATCH_LEN: usize = 16 << 20;
    let mut batch: Vec<u8> = Vec::with_capacity(BATCH_LEN);
    let mut copied = 0;
    let clock = Clock::start();
    for body in source.chunks_exact(stride) {
        if batch.len() + body_len > BATCH_LEN {
            black_box(&batch);
            batch.clear();
        }
        batch.extend_from_slice(&body[..body_len]);
        copied += body_len;
    }
    black_box(&batch);
    (clock.stop(), copied as f64)
}
