//! How many messages a poll returns: at most the requested number, and at most a number of bytes of
//! those that it copies. Later polls return the rest.

use super::{BEGIN_MS, Bed, bodies, on_each, open_as, poll, receipts};
use crate::clock::ManualClock;
use crate::engine::{COPIED_MAX, Durability};
use crate::options::{Compression, EngineKind};
use crate::{Consumer, ConsumerOptions, Delivery, Draft, Options, Store};
use std::time::Duration;

const BODY_LEN: usize = 3 << 20;
/// This many of them are longer than a poll may copy.
const LARGE: usize = 24;
const _: () = assert!(((LARGE - 2) * BODY_LEN) as u64 >= COPIED_MAX);

fn send_large(store: &Store) {
    let producer = store.producer("orders", Some(0)).unwrap();
    let draft = Draft {
        body: &vec![0; BODY_LEN],
        ..Draft::default()
    };
    for _ in 0..LARGE {
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
}

/// Polls twice: the first poll returns as many messages as it may copy, the second one the others.
fn check_large(consumer: &Consumer) {
    let first = poll(consumer);
    let bytes = first.iter().map(|it| it.message.record().bytes().len());
    let bytes = bytes.sum::<usize>() as u64;
    let most = COPIED_MAX + 2 * BODY_LEN as u64;
    assert!((COPIED_MAX..=most).contains(&bytes), "{bytes} bytes");
    let all = [offsets(&first), offsets(&poll(consumer))].concat();
    assert_eq!(all, (0..LARGE).collect::<Vec<_>>());
    assert!(poll(consumer).is_empty());
}

fn offsets(got: &[Delivery]) -> Vec<usize> {
    let offset = |it: &Delivery| it.receipt.place().2 as usize;
    got.iter().map(offset).collect()
}

#[test]
fn a_poll_returns_at_most_its_number_and_the_next_ones_the_rest() {
    on_each(|bed| {
        bed.send(0..10);
        let consumer = bed.consumer(ConsumerOptions::default());
        let (mut lens, mut all) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let got = consumer.poll(3, Duration::ZERO).unwrap();
            lens.push(got.len());
            all.extend(got);
        }
        assert_eq!(lens, [3, 3, 3, 1, 0]);
        assert_eq!(bodies(&all), (0..10).collect::<Vec<_>>());
        // Messages that are due again have the same limit.
        bed.pass(16 * 60_000);
        for expected in [7, 3, 0] {
            assert_eq!(consumer.poll(7, Duration::ZERO).unwrap().len(), expected);
        }
    });
}

#[test]
fn a_poll_of_no_message_does_not_wait() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions::default());
        assert!(consumer.poll(0, Duration::MAX).unwrap().is_empty());
        assert_eq!(consumer.poll(usize::MAX, Duration::MAX).unwrap().len(), 1);
        assert!(
            consumer
                .poll(1, Duration::from_millis(1))
                .unwrap()
                .is_empty()
        );
    });
}

#[test]
fn a_poll_ends_when_it_has_read_much_again() {
    let bed = Bed::new(":memory:");
    send_large(&bed.store);
    let consumer = bed.consumer(ConsumerOptions::default());
    // Messages of this engine are not copied when they are delivered for the first time.
    assert_eq!(poll(&consumer).len(), LARGE);
    bed.pass(16 * 60_000);
    check_large(&consumer);
}

#[test]
fn a_poll_of_a_partition_log_ends_when_it_has_copied_much() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        engine: Some(EngineKind::PartitionLog),
        compression: Some(Compression::Lz4),
        ..Options::default()
    };
    let clock = ManualClock::at(BEGIN_MS);
    let store = open_as(&folder.path().join("store"), &clock, options);
    send_large(&store);
    let options = ConsumerOptions::default();
    let consumer = store.consumer(&["orders"], "billing", options).unwrap();
    check_large(&consumer);
}

#[test]
fn the_highest_number_of_unsettled_messages_is_no_limit() {
    on_each(|bed| {
        bed.send(0..100);
        let consumer = bed.consumer(ConsumerOptions {
            max_unsettled: u64::MAX,
            ..ConsumerOptions::default()
        });
        // The offsets of the rest are added to those that are settled.
        let first = consumer.poll(50, Duration::ZERO).unwrap();
        consumer.ack(receipts(&first)).unwrap();
        let rest = poll(&consumer);
        assert_eq!(
            bodies(&[first, rest].concat()),
            (0..100).collect::<Vec<_>>()
        );
    });
}
