//! Opening, and the cost of a small store: milliseconds to create and open an empty store, its size
//! on the disk, and memory outside the maps with 10,000 queues.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{Filter, Store};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;
use support::load::{options, send_one, wait_dispatched};
use support::{Figure, Report, Scratch, contest, is_wanted};

const QUEUES: usize = 10_000;
const BODY: &[u8] = &[0x5A; 100];
const MIB: f64 = (1 << 20) as f64;

fn main() {
    let mut report = Report::new("open");
    if is_wanted("memory") {
        // First of all: memory that other benches leave in the allocator would be counted.
        let anonymous = memory();
        report.add(
            "memory outside the maps, 10,000 queues",
            "MiB",
            &[anonymous],
        );
    }
    if is_wanted("open") {
        contest(&mut report, &mut [&mut empty]);
    }
}

fn empty() -> Vec<Figure> {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let timed = || {
        let began = Instant::now();
        let store = Store::open(&path, options()).unwrap();
        let elapsed = began.elapsed().as_secs_f64() * 1e3;
        (store, elapsed)
    };
    let (store, created) = timed();
    store.close().unwrap();
    let (store, opened) = timed();
    let producer = store.producer("bench", Some(0)).unwrap();
    let began = Instant::now();
    send_one(&producer, BODY, "00000000");
    let first = began.elapsed().as_secs_f64() * 1e3;
    wait_dispatched(&store);
    let size = blocks_of(&path) as f64 / MIB;
    store.close().unwrap();
    vec![
        ("empty store: create".to_owned(), "ms", created),
        ("empty store: open".to_owned(), "ms", opened),
        ("empty store: first send".to_owned(), "ms", first),
        ("store of one message: on disk".to_owned(), "MiB", size),
    ]
}

/// Bytes in blocks of all files below a path.
fn blocks_of(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let size = |entry: fs::DirEntry| {
        let metadata = entry.metadata().unwrap();
        match metadata.is_dir() {
            true => blocks_of(&entry.path()),
            false => metadata.blocks() * 512,
        }
    };
    entries.map(size).sum()
}

/// MiB of private memory that a store with 10,000 queues adds to the process.
fn memory() -> f64 {
    let scratch = Scratch::new();
    let before = anonymous_kib();
    let store = Store::open(scratch.path().join("store"), options()).unwrap();
    for number in 0..QUEUES {
        let producer = store.producer(&format!("topic-{number:05}"), Some(0));
        let producer = producer.unwrap();
        for _ in 0..2 {
            send_one(&producer, BODY, "00000000");
        }
    }
    for number in 0..QUEUES {
        let name = format!("topic-{number:05}");
        let read = store.read(&name, 0, 0, 1, None, &Filter::default());
        assert_eq!(read.unwrap().messages.len(), 1);
    }
    let after = anonymous_kib();
    store.close().unwrap();
    (after - before) / 1024.0
}

fn anonymous_kib() -> f64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    value.unwrap().parse().unwrap()
}
