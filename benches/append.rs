//! Appending with asynchronous flush: messages a second until the last send returned, and until
//! queues and index had caught up. Each run alternates with its limit or with what it is compared
//! to.
//!
//! Groups: `single`, `kib`, `batch`, `threads`; `partition` is the partition log, and `packed` the
//! same with each codec, next to the codec alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{Atomicity, Compression, Draft, Durability, Options, Producer, Result};
use std::hint::black_box;
use support::load::{
    Keys, TOPIC, message_count, new_store, options, partition_log, rates, send_all, send_batches,
    send_batches_of, send_one,
};
use support::{Clock, Figure, Report, contest, is_wanted, limit, run_bytes};

const UNIT: &str = "messages/s";
const BODY: &[u8] = &[0x5A; 100];
const THREADS: usize = 4;

fn main() {
    let mut report = Report::new("append");
    if is_wanted("single") {
        single(&mut report);
    }
    if is_wanted("kib") {
        kib(&mut report);
    }
    if is_wanted("batch") {
        batch(&mut report);
    }
    if is_wanted("threads") {
        threads(&mut report);
    }
    if is_wanted("partition") {
        partition(&mut report);
    }
    if is_wanted("packed") {
        packed(&mut report, Compression::Lz4, "lz4");
        packed(&mut report, Compression::Zstd, "zstd");
    }
}

/// One partition of the partition log: single sends, and batches of 100.
fn partition(report: &mut Report) {
    let keys = Keys::new(message_count(100));
    let run = |name: &str, send: &dyn Fn(&Producer)| {
        let (_scratch, store) = new_store(partition_log());
        let producer = store.producer(TOPIC, Some(0)).unwrap();
        let clock = Clock::start();
        send(&producer);
        let sent = clock.stop();
        store.close().unwrap();
        sent.rates(name, UNIT, keys.len() as f64)
    };
    let mut single = || run("partition log, 100 B", &|it| send_all(it, BODY, &keys));
    let mut batch = || {
        let name = "partition log, batches of 100, 100 B";
        run(name, &|it| send_batches_of(it, BODY, &keys, 100))
    };
    contest(report, &mut [&mut single, &mut batch]);
}

/// Batches of 100 messages as JSON, packed and appended; and the records of the same batches, as
/// Kafka encodes them, packed by the codec alone, which keeps its memory.
fn packed(report: &mut Report, compression: Compression, word: &str) {
    const COUNT: usize = 100;
    let batches: Vec<Vec<String>> = (0..50).map(|number| texts(number, COUNT)).collect();
    let bytes: usize = batches.iter().flatten().map(String::len).sum();
    let rounds = (run_bytes() as usize / 4 / bytes).max(1);
    let messages = (rounds * batches.len() * COUNT) as f64;
    let plain = encoded(&batches);
    let mut alone = || {
        let mut table = lz4_flex::block::CompressTable::default();
        let mut zstd = zstd::bulk::Compressor::new(3).unwrap();
        let mut to = vec![0; 2 * bytes];
        let clock = Clock::start();
        for records in (0..rounds).flat_map(|_| &plain) {
            black_box(match compression {
                Compression::Lz4 => {
                    let lz4 = lz4_flex::block::compress_into_with_table;
                    lz4(records, &mut to, &mut table).unwrap()
                }
                _ => zstd.compress_to_buffer(records, &mut to[..]).unwrap(),
            });
        }
        clock
            .stop()
            .rates(&format!("{word} alone, batches of {COUNT}"), UNIT, messages)
    };
    let mut send = || {
        let options = Options {
            compression: Some(compression),
            ..partition_log()
        };
        let (_scratch, store) = new_store(options);
        let producer = store.producer(TOPIC, Some(0)).unwrap();
        let clock = Clock::start();
        (0..rounds).for_each(|_| send_texts(&producer, &batches));
        let sent = clock.stop();
        store.close().unwrap();
        sent.rates(
            &format!("partition log, {word}, batches of {COUNT}"),
            UNIT,
            messages,
        )
    };
    contest(report, &mut [&mut alone, &mut send]);
}

/// Sends a batch for each of these lists of texts.
fn send_texts(producer: &Producer, batches: &[Vec<String>]) {
    for batch in batches {
        let drafts = batch.iter().map(|text| -> Result<Draft<'_>> {
            Ok(Draft {
                body: text.as_bytes(),
                ..Draft::default()
            })
        });
        let sent = producer.send_batch(drafts, Atomicity::Rows, Durability::Default);
        black_box(sent.unwrap());
    }
}

/// The records of these batches as a partition log encodes them.
fn encoded(batches: &[Vec<String>]) -> Vec<Vec<u8>> {
    /// Bytes before the records of a batch.
    const HEAD_LEN: usize = 61;
    let (scratch, store) = new_store(partition_log());
    send_texts(&store.producer(TOPIC, Some(0)).unwrap(), batches);
    store.close().unwrap();
    let log = format!("store/{TOPIC}-0/{:020}.log", 0);
    let bytes = std::fs::read(scratch.path().join(log)).unwrap();
    let mut rest = bytes.as_slice();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = i32::from_be_bytes(rest[8..12].try_into().unwrap());
        let (batch, after) = rest.split_at(12 + len as usize);
        found.push(batch[HEAD_LEN..].to_vec());
        rest = after;
    }
    // The first message of the store.
    found.split_off(1)
}

/// `count` texts of about 100 bytes, different for each seed.
fn texts(seed: u64, count: usize) -> Vec<String> {
    let mut state = seed;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(seed | 1);
        state >> 33
    };
    let text = |number| {
        let (account, cents, day) = (draw(), draw() % 1_000_000, draw() % 28 + 1);
        let money = format!(r#""cents":{cents},"currency":"EUR","day":"2026-03-{day:02}""#);
        format!(r#"{{"number":{number},"account":"{account:08x}",{money}}}"#)
    };
    (0..count).map(text).collect()
}

fn single(report: &mut Report) {
    let keys = Keys::new(message_count(100));
    let mut limit = || limit::records(100).rates("100 B: limit", UNIT, limit::count(100));
    let mut send = || one_producer("100 B", BODY, &keys);
    contest(report, &mut [&mut limit, &mut send]);
}

fn kib(report: &mut Report) {
    let keys = Keys::new(message_count(1024));
    let mut limit = || limit::records(1024).rates("1 KiB: limit", UNIT, limit::count(1024));
    let mut send = || one_producer("1 KiB", &[0x5A; 1024], &keys);
    contest(report, &mut [&mut limit, &mut send]);
}

fn one_producer(name: &str, body: &[u8], keys: &Keys) -> Vec<Figure> {
    let (_scratch, store) = new_store(options());
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let figures = rates(name, &store, keys.len(), || send_all(&producer, body, keys));
    store.close().unwrap();
    figures
}

fn batch(report: &mut Report) {
    let keys = Keys::new(message_count(100));
    let mut send = || {
        let (_scratch, store) = new_store(options());
        let producer = store.producer(TOPIC, Some(0)).unwrap();
        let send = || send_batches(&producer, BODY, &keys);
        let figures = rates("batches of 1,000, 100 B", &store, keys.len(), send);
        store.close().unwrap();
        figures
    };
    contest(report, &mut [&mut send]);
}

/// The same load from one thread and from four at once.
fn threads(report: &mut Report) {
    let keys = Keys::new(message_count(100));
    let run = |name: &str, threads: usize| {
        let (_scratch, store) = new_store(options());
        let send_share = |first: usize| {
            let producer = store.producer(TOPIC, Some(0)).unwrap();
            for number in (first..keys.len()).step_by(threads) {
                send_one(&producer, BODY, keys.get(number));
            }
        };
        let clock = Clock::start();
        std::thread::scope(|scope| {
            for first in 0..threads {
                let send_share = &send_share;
                scope.spawn(move || send_share(first));
            }
        });
        let rate = keys.len() as f64 / clock.stop().wall;
        store.close().unwrap();
        vec![(name.to_owned(), UNIT, rate)]
    };
    let mut one = || run("1 sending thread", 1);
    let mut four = || run("4 sending threads", THREADS);
    contest(report, &mut [&mut one, &mut four]);
}
