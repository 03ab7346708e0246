//! The cost of compaction: bytes a second of one partition, next to copying its files, which is the
//! limit for a compaction.
//!
//! Groups: `one` (all keys fit into the offset map, of 128 MiB for 5 million), `two` (the map has
//! room for half of them, so that there are two passes). Each key has two messages of 100 bytes,
//! in turn, of which one is kept. The number of keys is `FOREBAY_BENCH_KEYS`, or 5 million for
//! 1 GiB of records; `two` has twice as many.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{CleanupPolicy, Compaction, Options, Policy, Store};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;
use support::load::{Keys, TOPIC, partition_log, send_batches_of};
use support::{Figure, Report, Scratch, contest, is_wanted, numbers, run_bytes};

const UNIT: &str = "MiB/s";
const BODY: &[u8] = &[0x5A; 100];
/// Keys for which a map of 128 MiB has room.
const KEYS: u64 = 5_000_000;

fn main() {
    let mut report = Report::new("compact");
    let given = numbers("FOREBAY_BENCH_KEYS").and_then(|it| it.first().copied());
    let keys = given.unwrap_or((run_bytes() * KEYS) >> 30);
    if is_wanted("one") {
        compare(&mut report, "one pass", keys, keys);
    }
    if is_wanted("two") {
        compare(&mut report, "two passes", 2 * keys, keys);
    }
}

/// Compacts a store of `keys` keys with a map that has room for `mapped` of them.
fn compare(report: &mut Report, name: &str, keys: u64, mapped: u64) {
    let keys = Keys::new(keys as usize);
    let mut copy = || run(name, &keys, mapped, Done::Copied);
    let mut compact = || run(name, &keys, mapped, Done::Compacted);
    contest(report, &mut [&mut copy, &mut compact]);
}

/// An action on the files of a store.
#[derive(Clone, Copy, PartialEq)]
enum Done {
    Copied,
    Compacted,
}

fn run(name: &str, keys: &Keys, mapped: u64, done: Done) -> Vec<Figure> {
    let scratch = Scratch::new();
    let options = Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            // Nine tenths of the map are used: 128 MiB have room for 5 million keys.
            log_cleaner_dedupe_buffer_size: Some((128 << 20) * mapped / KEYS),
            // Only this program compacts.
            log_cleaner_backoff_ms: Some(24 * 3600 * 1000),
            ..Compaction::default()
        },
        ..partition_log()
    };
    let store = Store::open(scratch.path().join("store"), options).unwrap();
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    for _ in 0..2 {
        send_batches_of(&producer, BODY, keys, 100);
    }
    store.roll().unwrap();
    let folder = scratch.path().join("store").join(format!("{TOPIC}-0"));
    let bytes = len_of(&folder);
    let rate = |began: Instant| bytes as f64 / began.elapsed().as_secs_f64() / f64::from(1 << 20);
    let began = Instant::now();
    let figure = match done {
        Done::Copied => {
            copy(&folder, scratch.path());
            (format!("{name}: copy"), UNIT, rate(began))
        }
        Done::Compacted => {
            let found = store.compact(None, &mut |_, _| true).unwrap();
            let rate = rate(began);
            assert!(found.is_complete);
            (format!("{name}: compaction"), UNIT, rate)
        }
    };
    if done == Done::Compacted {
        let left = store.verify(&mut |_, _| true).unwrap();
        assert_eq!((left.records, left.damage.len()), (keys.len() as u64, 0));
    }
    store.close().unwrap();
    vec![figure]
}

/// Bytes of the log files in a folder.
fn len_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap());
    let logs = files.filter(|it| it.path().extension().is_some_and(|it| it == "log"));
    logs.map(|it| it.metadata().unwrap().len()).sum()
}

/// Copies the log files through memory, as a compaction that drops nothing would. Durable on
/// return.
fn copy(folder: &Path, to: &Path) {
    let mut buffer = vec![0; 1 << 20];
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|it| it != "log") {
            continue;
        }
        let mut source = File::open(&path).unwrap();
        let mut target = File::create(to.join(path.file_name().unwrap())).unwrap();
        loop {
            let count = source.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            target.write_all(buffer.get(..count).unwrap()).unwrap();
        }
        target.sync_all().unwrap();
    }
}
