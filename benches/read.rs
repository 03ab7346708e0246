//! Reading: messages a second by `read`, latency of a query by key, rows and bytes a second of
//! scans.
//!
//! The stores are in the page cache, so this measures the code, not the disk.
//! Groups: `read`, `query`, `scan`, `large`; `partition` is the partition log, in batches of 100.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{BodyType, Column, Filter, Store};
use forebay::{Scan, ScanSpec};
use std::hint::black_box;
use std::time::Instant;
use support::load::{
    Keys, TOPIC, message_count, new_store, options, partition_log, send_batches, send_batches_of,
    wait_dispatched,
};
use support::{Clock, Figure, Report, Scratch, Span, contest, is_wanted, limit, run_bytes};

const QUERIES: usize = 200_000;

fn main() {
    let mut report = Report::new("read");
    if ["read", "query", "scan"].into_iter().any(is_wanted) {
        let keys = Keys::new(message_count(100));
        let (_scratch, store) = filled(&[0x5A; 100], &keys);
        if is_wanted("read") {
            contest(&mut report, &mut [&mut || read(&store, keys.len())]);
        }
        if is_wanted("query") {
            contest(&mut report, &mut [&mut || query(&store, &keys)]);
        }
        if is_wanted("scan") {
            scan_small(&mut report, &store);
        }
    }
    if is_wanted("large") {
        scan_large(&mut report);
    }
    if is_wanted("partition") {
        partition(&mut report);
    }
}

fn filled(body: &[u8], keys: &Keys) -> (Scratch, Store) {
    let (scratch, store) = new_store(options());
    send_batches(&store.producer(TOPIC, Some(0)).unwrap(), body, keys);
    wait_dispatched(&store);
    store.flush().unwrap();
    (scratch, store)
}

/// Reads of 1,000 messages from the first to the last, with a load from each body.
fn read(store: &Store, count: usize) -> Vec<Figure> {
    let clock = Clock::start();
    let (mut offset, mut bytes) = (0, 0);
    while (offset as usize) < count {
        let batch = store
            .read(TOPIC, 0, offset, 1000, None, &Filter::default())
            .unwrap();
        for message in &batch.messages {
            bytes += message.record().stored_body().len();
        }
        offset = batch.next_offset as i64;
    }
    black_box(bytes);
    clock
        .stop()
        .rates("read(1,000), 100 B", "messages/s", count as f64)
}

/// Queries for single keys in random order, each timed separately.
fn query(store: &Store, keys: &Keys) -> Vec<Figure> {
    let mut times = Vec::with_capacity(QUERIES);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..QUERIES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = keys.get((random % keys.len() as u64) as usize);
        let began = Instant::now();
        let found = store.query(TOPIC, key, 0, i64::MAX, 32).unwrap();
        times.push(began.elapsed().as_nanos() as f64);
        assert_eq!(found.len(), 1);
    }
    times.sort_by(f64::total_cmp);
    vec![
        ("query by key: p50".to_owned(), "ns", times[QUERIES / 2]),
        (
            "query by key: p99".to_owned(),
            "ns",
            times[QUERIES / 100 * 99],
        ),
    ]
}

/// Scans offset and body once; returns the number of rows.
fn scan(store: &Store, body_type: BodyType, verify: bool) -> (Span, f64) {
    let spec = ScanSpec {
        topics: Some(vec![TOPIC.to_owned()]),
        columns: Some(vec![Column::Offset, Column::Body]),
        body_type,
        verify,
        ..ScanSpec::default()
    };
    let scan = Scan::new(store, spec).unwrap();
    let clock = Clock::start();
    let mut rows = 0;
    for batch in scan.stream().unwrap() {
        rows += black_box(batch.unwrap()).num_rows();
    }
    (clock.stop(), rows as f64)
}

fn scan_small(report: &mut Report, store: &Store) {
    let rows = |name: &'static str, body_type, verify| {
        move || -> Vec<Figure> {
            let (span, rows) = scan(store, body_type, verify);
            span.rates(name, "rows/s", rows)
        }
    };
    let (view, binary) = (BodyType::BinaryView, BodyType::Binary);
    contest(
        report,
        &mut [
            &mut rows("scan, 100 B: views, checked", view, true),
            &mut rows("scan, 100 B: gathered, checked", binary, true),
            &mut rows("scan, 100 B: views, unchecked", view, false),
            &mut rows("scan, 100 B: gathered, unchecked", binary, false),
        ],
    );
}

/// Reads and scans one partition of the partition log.
fn partition(report: &mut Report) {
    let keys = Keys::new(message_count(100));
    let (_scratch, store) = new_store(partition_log());
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    send_batches_of(&producer, &[0x5A; 100], &keys, 100);
    store.flush().unwrap();
    let scanned = |name: &'static str, verify| {
        let store = &store;
        move || -> Vec<Figure> {
            let (span, rows) = scan(store, BodyType::BinaryView, verify);
            span.rates(name, "rows/s", rows)
        }
    };
    let mut read = || {
        let mut figures = read(&store, keys.len());
        for figure in &mut figures {
            figure.0 = format!("partition log, {}", figure.0);
        }
        figures
    };
    contest(
        report,
        &mut [
            &mut read,
            &mut scanned("partition log, 100 B: views, checked", true),
            &mut scanned("partition log, 100 B: views, unchecked", false),
        ],
    );
    store.close().unwrap();
}

/// Gathers bodies of 16 KiB, against copying the same number of bytes from memory.
fn scan_large(report: &mut Report) {
    const BODY_LEN: usize = 16 << 10;
    let keys = Keys::new(message_count(BODY_LEN));
    let (_scratch, store) = filled(&vec![0x5A; BODY_LEN], &keys);
    let source = vec![0x5A; run_bytes() as usize];
    let bytes = |name: &'static str, body_type, verify| {
        let store = &store;
        move || -> Vec<Figure> {
            let (span, rows) = scan(store, body_type, verify);
            span.rates(name, "bytes/s", rows * BODY_LEN as f64)
        }
    };
    let mut memcpy = || {
        let (span, bytes) = limit::gather(&source, BODY_LEN, BODY_LEN + 130);
        span.rates("scan, 16 KiB: memcpy", "bytes/s", bytes)
    };
    let (view, binary) = (BodyType::BinaryView, BodyType::Binary);
    contest(
        report,
        &mut [
            &mut memcpy,
            &mut bytes("scan, 16 KiB: gathered, checked", binary, true),
            &mut bytes("scan, 16 KiB: gathered, unchecked", binary, false),
            &mut bytes("scan, 16 KiB: views, checked", view, true),
        ],
    );
}
