//! Messages that are durable when the call returns, and the cost of flushing and opening.
//!
//! Groups: `sync`, `batch`, `async`, `reopen`. Each rate is next to its limit, measured in turn
//! with it: a record copied into a map with reserved blocks, and a sync of its range.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::internals::{Access, Region};
use forebay::{Disk, RealDisk};
use forebay::{Draft, Durability, Flush, Options, Store};
use std::time::{Duration, Instant};
use support::load::{
    Keys, TOPIC, new_store, options, producers, record_len, send_batches, send_for, send_in_turn,
};
use support::{Clock, Figure, Report, Scratch, contest, is_wanted, limit, run_bytes};

const UNIT: &str = "messages/s";
const BODY: &[u8] = &[0x5A; 100];
/// Duration of a run of single sends.
const RUN: Duration = Duration::from_secs(1);
const SENDERS: usize = 64;
const TOPICS: usize = 10_000;

fn main() {
    let mut report = Report::new("durable");
    if is_wanted("sync") {
        let senders = |count| move || senders(count);
        contest(
            &mut report,
            &mut [&mut raw_syncs, &mut senders(1), &mut senders(SENDERS)],
        );
    }
    if is_wanted("batch") {
        contest(&mut report, &mut [&mut batches]);
    }
    if is_wanted("async") {
        contest(
            &mut report,
            &mut [&mut || paced(true), &mut || paced(false)],
        );
    }
    if is_wanted("reopen") {
        let reopen = |topics| move || reopen(topics);
        contest(&mut report, &mut [&mut reopen(1), &mut reopen(TOPICS)]);
    }
}

fn sync_options() -> Options {
    Options {
        flush: Some(Flush::Sync),
        flush_timeout: Duration::from_secs(60),
        ..options()
    }
}

/// Syncs a second of the length of one record: the limit of the disk for a single sender.
fn raw_syncs() -> Vec<Figure> {
    let len = record_len(BODY.len());
    let scratch = Scratch::new();
    let path = scratch.path().join("limit");
    let (disk, bytes): (&dyn Disk, _) = (&RealDisk, 64 << 20);
    disk.create(&path, bytes as u64).unwrap();
    disk.reserve(&path, 0, bytes as u64).unwrap();
    disk.sync_file(&path).unwrap();
    let region: Region = disk.map(&path, bytes, Access::ReadWrite).unwrap();
    let record = vec![0xA5; len];
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < RUN {
        region.write(count * len, &record).unwrap();
        disk.sync_range(&region, count * len, len).unwrap();
        count += 1;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    vec![("raw sync of one record".to_owned(), UNIT, rate)]
}

/// Messages a second that `count` senders make durable, one per call, and how many share a sync.
fn senders(count: usize) -> Vec<Figure> {
    let (_scratch, store) = new_store(sync_options());
    let before = store.stats().unwrap();
    let (sent, rate) = send_for(&store, count, RUN);
    let after = store.stats().unwrap();
    let syncs = after.flushes.count - before.flushes.count;
    store.close().unwrap();
    let name = format!("{count} senders, each flushed");
    vec![
        (
            format!("{name}: messages a sync"),
            "messages",
            sent as f64 / syncs as f64,
        ),
        (name, UNIT, rate),
    ]
}

/// Batches of 1,000, each durable when the call returns, next to the same bytes written and synced.
fn batches() -> Vec<Figure> {
    let keys = Keys::new((run_bytes() / 4) as usize / record_len(BODY.len()));
    let (_scratch, store) = new_store(sync_options());
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let clock = Clock::start();
    send_batches(&producer, BODY, &keys);
    let rate = keys.len() as f64 / clock.stop().wall;
    store.close().unwrap();
    let limit = limit::count(BODY.len()) / limit::records(BODY.len()).wall;
    vec![
        ("batches of 1,000, each flushed".to_owned(), UNIT, rate),
        (
            "the same records, never flushed: limit".to_owned(),
            UNIT,
            limit,
        ),
    ]
}

/// A million sends a second for some seconds, with or without the flush service: the share of the
/// time spent sending, and the 99.9th percentile of sends after the first second.
fn paced(flushed: bool) -> Vec<Figure> {
    const SECONDS: usize = 4;
    const STEP: usize = 100;
    let mut options = options();
    if !flushed {
        let never = Duration::from_secs(3600);
        (options.flush_interval, options.queue_flush_interval) = (never, never);
    }
    let (_scratch, store) = new_store(options);
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let draft = Draft {
        body: BODY,
        keys: &["00000000"],
        ..Draft::default()
    };
    let mut slowest = Vec::new();
    let (began, mut sending) = (Instant::now(), Duration::ZERO);
    for step in 0..SECONDS * 1_000_000 / STEP {
        while began.elapsed() < Duration::from_micros((step * STEP) as u64) {
            std::hint::spin_loop();
        }
        let first = Instant::now();
        for _ in 0..STEP {
            let sent = Instant::now();
            producer.send(&draft, 0, Durability::Default).unwrap();
            if step * STEP > 1_000_000 {
                slowest.push(sent.elapsed().as_nanos() as u32);
            }
        }
        sending += first.elapsed();
    }
    store.close().unwrap();
    slowest.sort_unstable();
    let at = |share: f64| f64::from(slowest[(slowest.len() as f64 * share) as usize]);
    let name = if flushed {
        "with flushes"
    } else {
        "without flushes"
    };
    let each = sending.as_nanos() as f64 / (SECONDS * 1_000_000) as f64;
    vec![
        (
            format!("a million sends a second, {name}: each"),
            "ns",
            each,
        ),
        (
            format!("a million sends a second, {name}: p99.9"),
            "ns",
            at(0.999),
        ),
    ]
}

/// Milliseconds to open a store of 2 GiB (or twice the run), after a clean close and after the
/// process died.
fn reopen(topics: usize) -> Vec<Figure> {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let store = Store::open(&path, options()).unwrap();
    let send = |store: &Store, count| {
        let producers = producers(store, topics);
        send_in_turn(&producers, &[0x5A; 1024], &Keys::new(count));
    };
    send(&store, 2 * run_bytes() as usize / record_len(1024));
    store.close().unwrap();
    let opened = |path: &std::path::Path| {
        let began = Instant::now();
        let store = Store::open(path, options()).unwrap();
        (store, began.elapsed().as_secs_f64() * 1e3)
    };
    let (store, clean) = opened(&path);
    // As a process that died leaves the store: the page says that a writer is running.
    send(&store, 10_000);
    let state = std::fs::read(path.join("forebay.state")).unwrap();
    let abort = std::fs::read(path.join("abort")).unwrap();
    store.close().unwrap();
    std::fs::write(path.join("forebay.state"), state).unwrap();
    std::fs::write(path.join("abort"), abort).unwrap();
    let (store, killed) = opened(&path);
    assert!(
        !store.recovery().clean,
        "the store was opened as if cleanly closed"
    );
    store.close().unwrap();
    let of = match topics {
        1 => String::new(),
        many => format!(" with {many} queues"),
    };
    vec![
        (format!("open 2 GiB{of} after a close"), "ms", clean),
        (format!("open 2 GiB{of} after a death"), "ms", killed),
    ]
}
