//! Events that end the wait of a poll. The clock stands still unless a test moves it, and a poll
//! that waits for a minute has missed its event.

use super::{Bed, bodies, body, on_each, poll, receipts, wait};
use crate::bound::Bound;
use crate::engine::Durability;
use crate::{Consumer, ConsumerOptions, Delivery, Draft, Error, Order, Start};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Polls in a thread while `change` runs, which must make a message available. Returns the
/// messages.
fn woken_by(consumer: &Consumer, change: impl FnOnce()) -> Vec<Delivery> {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(consumer));
        change();
        waiting.join().unwrap()
    })
}

fn send_to(bed: &Bed, topic: &str, queue: u32, text: &str) {
    let producer = bed.store.producer(topic, Some(queue)).unwrap();
    let draft = Draft {
        body: text.as_bytes(),
        ..Draft::default()
    };
    producer.send(&draft, 0, Durability::Default).unwrap();
}

#[test]
fn a_message_in_a_queue_that_is_added_later() {
    on_each(|bed| {
        bed.send(0..0);
        let consumer = bed.consumer(ConsumerOptions::default());
        let got = woken_by(&consumer, || {
            bed.store.create_topic("orders", 12).unwrap();
            send_to(&bed, "orders", 11, "11");
        });
        assert_eq!(bodies(&got), [11]);
    });
}

#[test]
fn a_settlement_that_makes_room() {
    on_each(|bed| {
        bed.send(0..1);
        send_to(&bed, "orders", 0, "1");
        for order in [Order::None, Order::Queue] {
            let consumer = bed.consumer(ConsumerOptions {
                order,
                max_unsettled: 1,
                ..ConsumerOptions::default()
            });
            consumer.seek(&Start::Everywhere(Bound::Earliest)).unwrap();
            let first = wait(&consumer);
            assert_eq!(bodies(&first), [0]);
            let second = woken_by(&consumer, || consumer.ack(receipts(&first)).unwrap());
            assert_eq!(bodies(&second), [1]);
        }
    });
}

#[test]
fn a_message_that_is_taken_back_or_falls_due() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions {
            order: Order::Queue,
            ..ConsumerOptions::default()
        });
        let mut held = wait(&consumer);
        held = woken_by(&consumer, || {
            consumer.nack(&held[0], None).unwrap();
            bed.pass(1_000);
        });
        held = woken_by(&consumer, || {
            consumer.extend(&held[0].receipt, Duration::ZERO).unwrap();
        });
        let again = woken_by(&consumer, || consumer.give_back(receipts(&held)));
        assert_eq!(bodies(&again), [0]);
        let again = woken_by(&consumer, || bed.pass(15 * super::MINUTE_MS));
        assert_eq!(bodies(&again), [0]);
    });
}

#[test]
fn a_retry_whose_topic_was_not_there_before() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions::default());
        let held = wait(&consumer);
        let again = woken_by(&consumer, || {
            consumer.nack(&held[0], Some(1)).unwrap();
            bed.pass(1_000);
        });
        assert_eq!(again[0].receipt.place().0, "%RETRY%billing");
    });
}

#[test]
fn a_change_of_owners_and_of_offsets() {
    on_each(|bed| {
        bed.send(0..4);
        let one = bed.consumer(ConsumerOptions::default());
        let held = poll(&one);
        assert_eq!(held.len(), 4);
        let two = bed.consumer(ConsumerOptions::default());
        // Two queues are handed over once their owner has settled its messages from them.
        let sent = || {
            (0..4).for_each(|queue| send_to(&bed, "orders", queue, "9"));
            one.ack(receipts(&held)).unwrap();
        };
        let handed = woken_by(&two, sent);
        assert!(handed.iter().all(|it| body(it) == 9));
        let left = woken_by(&two, || one.close().unwrap());
        assert!(!left.is_empty());
        let reset = || {
            let earliest = Bound::Earliest;
            bed.store
                .reset_offsets("billing", "orders", &earliest)
                .unwrap();
        };
        assert!(!woken_by(&two, reset).is_empty());
        let to = Start::Everywhere(Bound::Earliest);
        assert!(!woken_by(&two, || two.seek(&to).unwrap()).is_empty());
    });
}

#[test]
fn its_consumer_that_closes_and_who_asked_for_an_end() {
    on_each(|bed| {
        let consumer = bed.consumer(ConsumerOptions::default());
        let ended = AtomicBool::new(false);
        let is_ended = || ended.load(Ordering::Acquire);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| consumer.poll_until(1, Duration::MAX, &is_ended));
            ended.store(true, Ordering::Release);
            consumer.wake();
            assert!(waiting.join().unwrap().unwrap().is_empty());
            let waiting = scope.spawn(|| consumer.poll(1, Duration::MAX));
            consumer.close().unwrap();
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(Error::ConsumerClosed)));
        });
    });
}
