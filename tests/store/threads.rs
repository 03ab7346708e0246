//! Many threads at once, and waiting for messages of others.

use crate::bed::{body, small_options, to_queue};
use forebay::{Atomicity, Draft, Durability, Error, Filter, ReadStatus, Store};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// Reads a queue up to `count` messages while others send, and checks each. Returns sender and
/// number.
fn follow(store: &Store, queue: u32, count: usize) -> Vec<(u8, u32)> {
    let mut seen = Vec::new();
    let mut offset = 0;
    let all = Filter::default();
    while seen.len() < count {
        // Taken before the read, so that later messages end the wait.
        let end = store.engine().unwrap().readable_position();
        let batch = store.read("orders", queue, offset, 50, None, &all).unwrap();
        if batch.status != ReadStatus::Found {
            let engine = store.engine().unwrap();
            assert!(engine.wait_readable(end, LONG) > end, "no message arrived");
            continue;
        }
        for message in &batch.messages {
            assert_eq!(message.record().queue_offset(), seen.len() as i64);
            let body = message.body().unwrap();
            let (sender, number) = body.split_at(1);
            seen.push((sender[0], u32::from_be_bytes(number.try_into().unwrap())));
        }
        offset = batch.next_offset as i64;
    }
    seen
}

suite! {
    fn threads_that_send_and_read_at_once_lose_and_mix_nothing(bed) {
        const SENDERS: u8 = 4;
        const COUNT: u32 = 500;
        bed.store.create_topic("orders", 2).unwrap();
        let store = &bed.store;
        let start = &Barrier::new(usize::from(SENDERS) + 2);
        let queues = thread::scope(|scope| {
            for sender in 0..SENDERS {
                scope.spawn(move || {
                    let producer = store.producer("orders", None).unwrap();
                    start.wait();
                    for number in 0..COUNT {
                        let mut body = vec![sender];
                        body.extend_from_slice(&number.to_be_bytes());
                        let draft = to_queue(number % 2, &body);
                        producer.send(&draft, 0, Durability::Default).unwrap();
                    }
                });
            }
            let readers = [0, 1].map(|queue| {
                scope.spawn(move || {
                    start.wait();
                    follow(store, queue, usize::from(SENDERS) * COUNT as usize / 2)
                })
            });
            readers.map(|reader| reader.join().unwrap())
        });
        for (queue, seen) in queues.iter().enumerate() {
            for sender in 0..SENDERS {
                let of_one = seen.iter().filter(|(from, _)| *from == sender);
                let numbers: Vec<u32> = of_one.map(|(_, number)| *number).collect();
                let expected: Vec<u32> = (queue as u32..COUNT).step_by(2).collect();
                assert_eq!(numbers, expected);
            }
        }
        bed.reopen();
        assert_eq!(bed.store.verify(&mut |_, _| true).unwrap().records, 4 * 500);
    }

    fn atomic_batches_of_many_threads_do_not_interleave(bed) {
        let store = &bed.store;
        thread::scope(|scope| {
            for sender in 0..3u8 {
                scope.spawn(move || {
                    let producer = store.producer("orders", Some(0)).unwrap();
                    for _ in 0..30 {
                        let body = [sender];
                        let drafts = (0..20).map(|_| Ok(to_queue(0, &body)));
                        let (whole, default) = (Atomicity::Whole, Durability::Default);
                        producer.send_batch(drafts, whole, default).unwrap();
                    }
                });
            }
        });
        let bodies = bed.bodies("orders", 0).concat();
        assert_eq!(bodies.len(), 3 * 30 * 20);
        for batch in bodies.chunks(20) {
            assert!(batch.iter().all(|sender| *sender == batch[0]), "{batch:?}");
        }
    }

    fn a_topic_created_by_many_threads_is_created_once(bed) {
        let store = &bed.store;
        thread::scope(|scope| {
            for queues in 1..=8 {
                scope.spawn(move || {
                    for number in 0..20 {
                        let made = store.create_topic(&format!("topic-{number}"), queues);
                        // A thread that asks for fewer queues than exist gets an error.
                        let late = matches!(made, Err(Error::InvalidOption { .. }));
                        assert!(late || made.is_ok());
                    }
                });
            }
        });
        let topics = store.engine().unwrap().topics().all();
        assert_eq!(topics.len(), 20);
        assert!(topics.iter().all(|topic| topic.write_queues() == 8));
    }

    fn queries_and_scans_run_beside_senders(bed) {
        let done = AtomicBool::new(false);
        let (store, done) = (&bed.store, &done);
        store.create_topic("orders", 1).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let producer = store.producer("orders", None).unwrap();
                for number in 0..1000u32 {
                    let body = number.to_be_bytes();
                    let draft = Draft { keys: &["k"], ..to_queue(0, &body) };
                    producer.send(&draft, 0, Durability::Default).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let found = store.query("orders", "k", i64::MIN, i64::MAX, 64).unwrap();
                    let offsets = found.iter().map(|m| m.record().queue_offset());
                    assert!(offsets.is_sorted_by(|a, b| *a == b + 1));
                    let end = store.offset_at("orders", 0, i64::MAX).unwrap();
                    assert!(end >= found.len() as u64);
                }
            });
        });
        let found = store.query("orders", "k", i64::MIN, i64::MAX, 2000).unwrap();
        assert_eq!(found.len(), 1000);
    }

    fn waiting_ends_at_once_if_there_are_messages(bed) {
        let sent = bed.send("orders", &body(b"x"));
        let engine = bed.store.engine().unwrap();
        let began = Instant::now();
        assert!(engine.wait_readable(sent.place.position, LONG) > sent.place.position);
        assert!(began.elapsed() < LONG / 2);
    }

    fn waiting_ends_after_its_timeout_without_messages(bed) {
        let sent = bed.send("orders", &body(b"x"));
        let engine = bed.store.engine().unwrap();
        let end = engine.readable_position();
        assert!(end > sent.place.position);
        for wait in [Duration::ZERO, Duration::from_millis(20)] {
            let began = Instant::now();
            assert_eq!(engine.wait_readable(end, wait), end);
            assert!(began.elapsed() >= wait);
        }
    }

    fn waiting_ends_when_another_thread_sends(bed) {
        let (store, start) = (&bed.store, &Barrier::new(2));
        let producer = store.producer("orders", None).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut end = 0;
                for _ in 0..200 {
                    start.wait();
                    let next = store.engine().unwrap().wait_readable(end, LONG);
                    assert!(next > end, "no message arrived");
                    end = next;
                }
            });
            for _ in 0..200 {
                start.wait();
                producer.send(&body(b"x"), 0, Durability::Default).unwrap();
            }
        });
    }

    fn close_ends_the_waits_of_other_threads(bed) {
        let (store, start) = (&bed.store, &Barrier::new(2));
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let engine = store.engine().unwrap();
                start.wait();
                let began = Instant::now();
                engine.wait_readable(0, LONG);
                began.elapsed()
            });
            start.wait();
            store.close().unwrap();
            assert!(waiter.join().unwrap() < LONG / 2);
        });
    }
}

/// Senders that wait for the disk share syncs, and each returns when its own message is durable.
#[test]
fn threads_that_wait_for_the_disk_are_woken_with_their_message_durable() {
    const THREADS: usize = 8;
    const EACH: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), small_options()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let producer = store.producer("orders", None).unwrap();
                for _ in 0..EACH {
                    let sent = producer.send(&body(b"x"), 0, Durability::Flushed).unwrap();
                    assert!(sent.durable);
                    let durable = store.engine().unwrap().durable_position();
                    assert!(durable > sent.place.position);
                }
            });
        }
    });
    store.close().unwrap();
}

/// A sender whose timeout is too short gets an error that says so; the message is in the log and
/// still becomes durable.
#[test]
fn a_flush_timeout_leaves_the_message_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let options = forebay::Options {
        flush_timeout: std::time::Duration::ZERO,
        ..small_options()
    };
    let store = Store::open(dir.path().join("store"), options).unwrap();
    let producer = store.producer("orders", Some(0)).unwrap();
    let send = |_| producer.send(&body(b"x"), 0, Durability::Flushed);
    let late = (1..1000_u64).find_map(|number| Some((number, send(number).err()?)));
    let (late, error) = late.unwrap();
    let too_short = matches!(error, forebay::Error::FlushTimeout { timeout_ms: 0 });
    assert!(too_short, "{error}");
    let end = store.flush().unwrap();
    let message = store.get("orders", 0, late as i64 - 1).unwrap();
    assert!(end > message.record().position() as u64);
    store.close().unwrap();
}
