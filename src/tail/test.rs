//! Tests of tails.

use super::*;
use crate::engine::Durability;
use crate::options::{EngineKind, Mode, Options};
use crate::record::Draft;
use std::ops::Range;

fn store() -> Store {
    Store::open(":memory:", Options::default()).unwrap()
}

fn send(store: &Store, queue: u32, body: &[u8]) -> i64 {
    let draft = Draft {
        body,
        queue: Some(queue),
        ..Draft::default()
    };
    let producer = store.producer("t", None).unwrap();
    producer
        .send(&draft, 0, Durability::Default)
        .unwrap()
        .store_timestamp
}

fn bodies(tail: &mut Tail) -> Vec<String> {
    let mut found = Vec::new();
    while let Step::Message(message) = tail.next(Duration::ZERO).unwrap() {
        found.push(String::from_utf8(message.body().unwrap().into_owned()).unwrap());
    }
    found
}

#[test]
fn messages_of_all_queues_come_in_the_order_in_which_they_were_stored() {
    let store = store();
    let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    for (number, name) in (0..).zip(&names) {
        send(&store, number * number % 5, name.as_bytes());
    }
    let mut tail = Tail::new(&store, "t", &Bound::Earliest, AtEnd::Stop).unwrap();
    send(&store, 0, b"sent after the tail was made");
    assert_eq!(bodies(&mut tail), names);
    assert!(matches!(tail.next(Duration::ZERO).unwrap(), Step::End));
}

#[test]
fn a_tail_that_stops_has_all_that_was_written_since_its_reader_last_looked() {
    // Files of exact length, as a broker or a writer leaves them on close: the reader maps no byte
    // after those that it has seen.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let write = |names: Range<u32>| {
        let options = Options {
            engine: Some(EngineKind::PartitionLog),
            default_queues: Some(2),
            ..Options::default()
        };
        let writer = Store::open(&path, options).unwrap();
        for number in names {
            send(&writer, number % 2, number.to_string().as_bytes());
        }
        writer.close().unwrap();
    };
    write(0..2);
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let reader = Store::open(&path, options).unwrap();
    write(2..40);
    let mut tail = Tail::new(&reader, "t", &Bound::Earliest, AtEnd::Stop).unwrap();
    assert_eq!(bodies(&mut tail).len(), 40);
}

#[test]
fn a_tail_from_the_end_sees_what_is_sent_after_it_was_made() {
    let store = store();
    send(&store, 0, b"before");
    let mut tail = Tail::new(&store, "t", &Bound::Latest, AtEnd::Follow).unwrap();
    assert!(matches!(tail.next(Duration::ZERO).unwrap(), Step::Nothing));
    send(&store, 7, b"one");
    send(&store, 0, b"two");
    assert_eq!(bodies(&mut tail), ["one", "two"]);
}

#[test]
fn a_waiting_tail_is_woken_by_a_send() {
    let store = store();
    send(&store, 0, b"before");
    let mut tail = Tail::new(&store, "t", &Bound::Latest, AtEnd::Follow).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || tail.next(Duration::from_secs(600)).unwrap());
        send(&store, 3, b"woken");
        let Step::Message(message) = waiting.join().unwrap() else {
            panic!("a message was sent");
        };
        assert_eq!(message.body().unwrap().as_ref(), b"woken");
    });
}

#[test]
fn a_tail_ends_when_its_store_closes_also_while_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = Store::open(dir.path().join("store"), Options::default()).unwrap();
    for store in [store(), on_disk] {
        send(&store, 0, b"one");
        send(&store, 0, b"two");
        let tail = |start| Tail::new(&store, "t", &start, AtEnd::Follow).unwrap();
        let (mut waiting, mut ahead) = (tail(Bound::Latest), tail(Bound::Earliest));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || waiting.next(Duration::MAX).unwrap());
            store.close().unwrap();
            assert!(matches!(waiting.join().unwrap(), Step::End));
        });
        // Messages that it has read ahead are dropped with the store.
        assert!(ahead.next_ready().is_none());
        assert!(matches!(ahead.next(Duration::MAX).unwrap(), Step::End));
    }
}

#[test]
fn a_tail_ends_when_it_is_closed_also_while_it_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let written = Store::open(&path, Options::default()).unwrap();
    send(&written, 0, b"one");
    let memory = store();
    send(&memory, 0, b"one");
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let reader = Store::open(&path, options).unwrap();
    for store in [memory, written, reader] {
        let tail = || Tail::new(&store, "t", &Bound::Latest, AtEnd::Follow).unwrap();
        let (mut one, mut other) = (tail(), tail());
        let (closer, last) = (one.closer(), other.closer());
        std::thread::scope(|scope| {
            let one = scope.spawn(move || one.next(Duration::MAX).unwrap());
            let other = scope.spawn(move || other.next(Duration::MAX).unwrap());
            closer.close();
            assert!(matches!(one.join().unwrap(), Step::End));
            assert!(!last.is_closed());
            last.close();
            assert!(matches!(other.join().unwrap(), Step::End));
        });
    }
}

#[test]
fn a_start_in_time_or_by_offsets_applies_to_each_queue() {
    let store = store();
    send(&store, 0, b"a");
    send(&store, 1, b"b");
    send(&store, 0, b"c");
    let stop = AtEnd::Stop;
    let from = |start: Bound| bodies(&mut Tail::new(&store, "t", &start, stop).unwrap());
    assert_eq!(from(Bound::Offsets([(0, 1)].into())), ["b", "c"]);
    assert_eq!(from(Bound::Offsets([(0, 2), (1, 1)].into())), [""; 0]);
    assert_eq!(from(Bound::Time(0)), ["a", "b", "c"]);
    assert_eq!(from(Bound::Time(i64::MAX)), [""; 0]);
    let beyond = Tail::new(&store, "t", &Bound::Offsets([(0, 3)].into()), stop);
    assert!(matches!(
        beyond.err(),
        Some(Error::OffsetOutOfRange { min: 0, max: 2, .. })
    ));
    let unknown = Tail::new(&store, "t", &Bound::Offsets([(99, 0)].into()), stop);
    assert!(matches!(
        unknown.err(),
        Some(Error::UnknownQueue { queue: 99, .. })
    ));
}
