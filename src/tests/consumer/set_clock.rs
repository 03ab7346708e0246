//! Consumers of a store whose wall clock is set back, or forward, while time goes on.

use super::{BEGIN_MS, Bed, bodies, body, on_each, open_as, poll, receipts, wait};
use crate::engine::Durability;
use crate::{ConsumerOptions, Draft, Filter, Mode, Options, Order, SCHEDULE_TOPIC};
use std::time::{Duration, Instant};

const HOUR_MS: i64 = 3_600_000;

fn send_delayed(bed: &Bed, body: &[u8], level: u8) {
    let draft = Draft {
        body,
        ..Draft::default()
    };
    let producer = bed.store.producer("orders", Some(0)).unwrap();
    producer.send(&draft, level, Durability::Default).unwrap();
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Waits until the service has seen `count` messages that were sent with a level.
fn await_seen(bed: &Bed, level: u8, count: usize) {
    let (queue, all) = (u32::from(level) - 1, Filter::default());
    until("a delayed message cannot be read", || {
        let read = bed.store.read(SCHEDULE_TOPIC, queue, 0, 10, None, &all);
        read.is_ok_and(|read| read.messages.len() == count)
    });
    bed.pass(0);
}

/// Waits until the table of offsets has a line with the progress of queue 0.
fn await_saved(bed: &Bed, next: u64) {
    let table = bed.path.join("config/consumerOffset.json");
    let line = format!("\"0\": {next}");
    until(&line, || {
        std::fs::read_to_string(&table).is_ok_and(|text| text.contains(&line))
    });
}

/// Saves were once scheduled by the wall clock. After it was set back by an hour, nothing was saved
/// for an hour, and all messages of that hour were delivered again after a crash.
#[test]
fn progress_is_saved_every_five_seconds() {
    for mode in [Mode::Append, Mode::Share] {
        let mut bed = Bed::new("store");
        bed.store.close().unwrap();
        let options = Options {
            mode,
            ..Options::default()
        };
        bed.store = open_as(&bed.path, &bed.clock, options);
        bed.send(0..40);
        let consumer = bed.consumer(ConsumerOptions::default());
        let mut held = Vec::new();
        while held.len() < 40 {
            held.extend(wait(&consumer));
        }
        let mut of_queue = held.iter().filter(|it| it.receipt.place().1 == 0);
        for (saved, set_ms) in [(1, 0), (2, -HOUR_MS), (3, HOUR_MS), (4, -HOUR_MS)] {
            bed.clock.set(BEGIN_MS + set_ms);
            consumer.ack(receipts(of_queue.next())).unwrap();
            bed.store.flush().unwrap();
            bed.pass(5_000);
            await_saved(&bed, saved);
        }
    }
}

#[test]
fn a_message_comes_back_after_its_visibility_timeout() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions {
            visibility_timeout: Duration::from_mins(1),
            ..ConsumerOptions::default()
        });
        assert_eq!(bodies(&poll(&consumer)), [0]);
        for set_ms in [HOUR_MS, -HOUR_MS, 2 * HOUR_MS] {
            bed.clock.set(BEGIN_MS + set_ms);
            bed.pass(59_999);
            assert!(poll(&consumer).is_empty());
            bed.pass(1);
            assert_eq!(bodies(&wait(&consumer)), [0]);
        }
    });
}

#[test]
fn a_message_that_failed_in_an_ordered_queue_comes_back_after_its_pause() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions {
            order: Order::Queue,
            ..ConsumerOptions::default()
        });
        for (set_ms, pause_ms) in [(HOUR_MS, 1_000), (-HOUR_MS, 2_000), (HOUR_MS, 4_000)] {
            let got = wait(&consumer);
            consumer.nack(&got[0], None).unwrap();
            bed.clock.set(BEGIN_MS + set_ms);
            bed.pass(pause_ms - 1);
            assert!(poll(&consumer).is_empty());
            bed.pass(1);
        }
        assert_eq!(bodies(&wait(&consumer)), [0]);
    });
}

/// Each step once counted the delay of a level from the time of that step. Messages sent later got
/// the newest store time, because store times never decrease, and so waited until the clock had
/// caught up.
#[test]
fn messages_with_a_level_and_retries_wait_for_their_delay() {
    on_each(|bed| {
        let consumer = bed.consumer(ConsumerOptions::default());
        send_delayed(&bed, b"1", 1);
        await_seen(&bed, 1, 1);
        send_delayed(&bed, b"2", 3);
        await_seen(&bed, 3, 1);
        bed.clock.set(BEGIN_MS - HOUR_MS);
        send_delayed(&bed, b"3", 1);
        await_seen(&bed, 1, 2);
        bed.pass(999);
        assert!(poll(&consumer).is_empty());
        bed.pass(1);
        let mut got = wait(&consumer);
        while got.len() < 2 {
            got.extend(wait(&consumer));
        }
        assert_eq!(bodies(&got), [1, 3]);
        let first = got.iter().find(|it| body(it) == 1).unwrap();
        consumer.nack(first, Some(2)).unwrap();
        await_seen(&bed, 2, 1);
        bed.pass(4_999);
        assert!(poll(&consumer).is_empty());
        bed.pass(1);
        assert_eq!(bodies(&wait(&consumer)), [1]);
        bed.pass(3_999);
        assert!(poll(&consumer).is_empty());
        bed.pass(1);
        assert_eq!(bodies(&wait(&consumer)), [2]);
        // A message that is due by the wall clock does not wait for the steady clock.
        send_delayed(&bed, b"4", 17);
        bed.clock.set(BEGIN_MS + HOUR_MS + 10_000);
        bed.pass(0);
        assert_eq!(bodies(&wait(&consumer)), [4]);
    });
}

/// Sends a message without a delay. Its store time shows how far the wall clock had come.
fn send_now(bed: &Bed) {
    let producer = bed.store.producer("others", None).unwrap();
    let draft = Draft::default();
    producer.send(&draft, 0, Durability::Default).unwrap();
}

/// A process that had not seen a message arrive once made it wait for its whole delay again,
/// however long it had waited before.
#[test]
fn a_message_with_a_level_has_waited_until_the_newest_message_after_a_restart() {
    for mode in [Mode::Append, Mode::Share] {
        let mut bed = Bed::new("store");
        let reopen = |bed: &mut Bed| {
            bed.store.close().unwrap();
            let options = Options {
                mode,
                ..Options::default()
            };
            bed.store = open_as(&bed.path, &bed.clock, options);
            // The service sees the messages of the store at this time.
            bed.pass(0);
        };
        reopen(&mut bed);
        // Waits for a minute.
        send_delayed(&bed, b"1", 5);
        await_seen(&bed, 5, 1);
        bed.pass(50_000);
        send_now(&bed);
        bed.clock.set(BEGIN_MS - HOUR_MS);
        reopen(&mut bed);
        let consumer = bed.consumer(ConsumerOptions::default());
        bed.pass(5_000);
        // It also gets the store time of the newest message.
        send_delayed(&bed, b"2", 2);
        await_seen(&bed, 2, 1);
        bed.pass(4_999);
        assert!(poll(&consumer).is_empty());
        bed.pass(1);
        let mut got = wait(&consumer);
        while got.len() < 2 {
            got.extend(wait(&consumer));
        }
        assert_eq!(bodies(&got), [1, 2]);
    }
}
