//! The cost of many topics: messages a second by the number of topics, until the last send returned
//! and until queues and index had caught up; milliseconds to open a store with many queues.
//!
//! Groups: `turn` (the topics one after another), `random` (each message to a topic drawn at
//! random), `open`; `partitions` is the partition log, topics in turn: first sends, sends, close
//! and open. The numbers of topics are those of `FOREBAY_BENCH_TOPICS`, or 1 to 10,000.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{Filter, Producer, Store};
use std::path::Path;
use std::time::Instant;
use support::load::{
    Keys, message_count, new_store, options, partition_log, producers, rates, send_in_turn,
    send_one, wait_dispatched,
};
use support::{Clock, Figure, Report, Scratch, contest, is_wanted, limit, numbers};

const UNIT: &str = "messages/s";
const BODY: &[u8] = &[0x5A; 100];
const COUNTS: [u64; 5] = [1, 10, 100, 1_000, 10_000];
const QUEUES: usize = 10_000;

/// Sends a message for each key to one of the topics.
type Send = fn(&[Producer], &[u8], &Keys);

fn main() {
    let mut report = Report::new("topics");
    if is_wanted("turn") {
        by_count(&mut report, "in turn", send_in_turn);
    }
    if is_wanted("random") {
        by_count(&mut report, "at random", send_at_random);
    }
    if is_wanted("open") {
        open(&mut report);
    }
    if is_wanted("partitions") {
        partitions(&mut report);
    }
}

/// The same number of messages to each number of topics, next to the limit.
fn by_count(report: &mut Report, order: &str, send: Send) {
    // The names of the topics are longer than that of the other benches.
    let keys = Keys::new(message_count(120));
    let keys = &keys;
    let mut runs: Vec<Box<dyn FnMut() -> Vec<Figure>>> = vec![Box::new(|| {
        limit::records(120).rates("limit", UNIT, limit::count(120))
    })];
    for count in numbers("FOREBAY_BENCH_TOPICS").unwrap_or(COUNTS.to_vec()) {
        let name = format!("{count} topics {order}");
        runs.push(Box::new(move || run(&name, count as usize, send, keys)));
    }
    let mut runs: Vec<&mut dyn FnMut() -> Vec<Figure>> =
        runs.iter_mut().map(|run| &mut **run as _).collect();
    contest(report, &mut runs);
}

/// The rates of `send`. Each topic gets one message before the clock starts, so that its queue
/// exists.
fn run(name: &str, topics: usize, send: Send, keys: &Keys) -> Vec<Figure> {
    let (_scratch, store) = new_store(options());
    let producers = producers(&store, topics);
    for producer in &producers {
        send_one(producer, BODY, "first---");
    }
    wait_dispatched(&store);
    let figures = rates(name, &store, keys.len(), || send(&producers, BODY, keys));
    store.close().unwrap();
    figures
}

/// Sends one message per call, one for each key, each to a topic drawn at random.
#[inline(never)]
fn send_at_random(producers: &[Producer], body: &[u8], keys: &Keys) {
    let mut state = 1_u64;
    for number in 0..keys.len() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let drawn = ((state >> 33) as usize * producers.len()) >> 31;
        send_one(&producers[drawn], body, keys.get(number));
    }
}

/// Opening after a clean close, and the first use of one queue, by the number of queues.
fn open(report: &mut Report) {
    let stores = [1, QUEUES].map(|queues| (queues, store_of(queues)));
    let mut opens = stores
        .each_ref()
        .map(|(queues, scratch)| move || open_once(*queues, scratch.path()));
    let [one, many] = &mut opens;
    contest(report, &mut [one, many]);
}

/// A closed store of `queues` queues with two messages each.
fn store_of(queues: usize) -> Scratch {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path().join("store"), options()).unwrap();
    let producers = producers(&store, queues);
    send_in_turn(&producers, BODY, &Keys::new(2 * queues));
    store.close().unwrap();
    scratch
}

fn open_once(queues: usize, path: &Path) -> Vec<Figure> {
    let timed = |began: Instant| began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    let store = Store::open(path.join("store"), options()).unwrap();
    let opened = timed(began);
    let began = Instant::now();
    let read = store.read("topic-00000", 0, 0, 1, None, &Filter::default());
    assert_eq!(read.unwrap().messages.len(), 1);
    let first = timed(began);
    let began = Instant::now();
    store.close().unwrap();
    let closed = timed(began);
    vec![
        (format!("{queues} queues: open after a close"), "ms", opened),
        (format!("{queues} queues: first read"), "ms", first),
        (format!("{queues} queues: close"), "ms", closed),
    ]
}

/// The partition log, by the number of topics of one partition each.
fn partitions(report: &mut Report) {
    let keys = Keys::new(message_count(120));
    let keys = &keys;
    let mut runs: Vec<Box<dyn FnMut() -> Vec<Figure>>> = Vec::new();
    for count in numbers("FOREBAY_BENCH_TOPICS").unwrap_or(COUNTS.to_vec()) {
        runs.push(Box::new(move || of_partitions(count as usize, keys)));
    }
    let mut runs: Vec<&mut dyn FnMut() -> Vec<Figure>> =
        runs.iter_mut().map(|run| &mut **run as _).collect();
    contest(report, &mut runs);
}

fn of_partitions(count: usize, keys: &Keys) -> Vec<Figure> {
    let (scratch, store) = new_store(partition_log());
    let name = |what: &str| format!("{count} partitions: {what}");
    let ms = |began: Instant| began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    let producers = producers(&store, count);
    for producer in &producers {
        send_one(producer, BODY, "first---");
    }
    let mut figures = vec![(name("first sends"), "ms", ms(began))];
    store.flush().unwrap();
    let clock = Clock::start();
    send_in_turn(&producers, BODY, keys);
    let sent = clock.stop();
    figures.extend(sent.rates(&name("send"), UNIT, keys.len() as f64));
    drop(producers);
    let began = Instant::now();
    store.close().unwrap();
    figures.push((name("close"), "ms", ms(began)));
    let began = Instant::now();
    let store = Store::open(scratch.path().join("store"), partition_log()).unwrap();
    figures.push((name("open after a close"), "ms", ms(began)));
    store.close().unwrap();
    figures
}
