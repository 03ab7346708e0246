//! Appending with asynchronous flush: messages a second until the last send returned, and until
//! queues and index had caught up. Each run alternates with its limit or with what it is compared
//! to.
//!
//! Groups: `single`, `kib`, `batch`, `threads`; `partition` is the partition log.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::Producer;
use support::load::{
    Keys, TOPIC, message_count, new_store, options, partition_log, rates, send_all, send_batches,
    send_batches_of, send_one,
};
use support::{Clock, Figure, Report, contest, is_wanted, limit};

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
