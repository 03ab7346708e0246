//! Another process has the table of progress locked, or another thread uses a queue.

use super::{Bed, bodies, open, poll, receipts, wait};
use crate::disk::{Disk, FileLock, LockState, RealDisk};
use crate::engine::Durability;
use crate::error::Awaited;
use crate::plant::{self, Point};
use crate::table::offsets::OffsetTable;
use crate::{Consumer, ConsumerOptions, Delivery, Draft, Error, Warning};
use std::sync::Arc;
use std::time::Duration;

/// A consumer of a store in files, with two messages of one queue.
fn with_two(bed: &Bed) -> (Consumer, Vec<Delivery>) {
    bed.store.create_topic("orders", 1).unwrap();
    let producer = bed.store.producer("orders", None).unwrap();
    for body in [b"1", b"2"] {
        let draft = Draft {
            body,
            ..Draft::default()
        };
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
    let consumer = bed.consumer(ConsumerOptions::default());
    consumer.commit().unwrap();
    let got = poll(&consumer);
    assert_eq!(bodies(&got), [1, 2]);
    (consumer, got)
}

/// Locks the table as another process does.
fn lock_progress(bed: &Bed) -> FileLock {
    let path = bed.path.join("config/consumerOffset.lock");
    loop {
        match RealDisk.lock(&path).unwrap() {
            LockState::Held(held) => return held,
            // The service has it for a moment.
            LockState::Taken => std::thread::yield_now(),
        }
    }
}

fn saved(bed: &Bed) -> Option<i64> {
    let path = bed.path.join("config/consumerOffset.json");
    let table = OffsetTable::open(&RealDisk, &path).unwrap();
    table.get("orders", "billing", 0)
}

/// How often the store has warned that progress is not saved.
fn warned(bed: &Bed) -> usize {
    let warnings = bed.store.take_warnings().into_iter();
    let told = warnings.filter(|it| matches!(it, Warning::Delayed { .. }));
    told.count()
}

/// The service waited for ten seconds, and delivered nothing meanwhile.
#[test]
fn the_service_delivers_while_the_table_of_progress_is_locked_and_saves_later() {
    let bed = Bed::new("store");
    let (consumer, got) = with_two(&bed);
    let held = lock_progress(&bed);
    consumer.ack([&got[0].receipt]).unwrap();
    consumer.nack(&got[1], Some(1)).unwrap();
    bed.pass(5_000);
    assert_eq!(bodies(&wait(&consumer)), [2]);
    assert_eq!(warned(&bed), 0);
    // It is told once that this lasts. The thread of the service may be the one that tries.
    let mut told = 0;
    while told == 0 {
        bed.pass(10_000);
        told = warned(&bed);
    }
    bed.pass(10_000);
    assert_eq!(told + warned(&bed), 1);
    assert_eq!(saved(&bed), Some(0));
    drop(held);
    while saved(&bed) != Some(2) {
        bed.pass(100);
    }
    assert_eq!(warned(&bed), 0);
    bed.store.close().unwrap();
}

#[test]
fn a_store_closes_although_its_progress_cannot_be_saved_and_delivers_again() {
    let mut bed = Bed::new("store");
    let (consumer, got) = with_two(&bed);
    let held = lock_progress(&bed);
    consumer.ack(receipts(&got)).unwrap();
    let busy = bed.store.close().unwrap_err();
    let Error::Busy {
        what: Awaited::Progress { .. },
        waited_ms,
    } = busy
    else {
        panic!("{busy}");
    };
    assert_eq!(waited_ms, 5_000);
    drop((held, consumer));
    bed.store = open(&bed.path, &bed.clock);
    let consumer = bed.consumer(ConsumerOptions::default());
    assert_eq!(bodies(&wait(&consumer)), [1, 2]);
}

/// An event loop must go on while another thread reads from the queue.
#[test]
fn who_must_not_wait_settles_nothing_while_another_thread_uses_the_queue() {
    let bed = Bed::new("store");
    let (consumer, got) = with_two(&bed);
    let producer = bed.store.producer("orders", None).unwrap();
    let draft = Draft {
        body: b"3",
        ..Draft::default()
    };
    producer.send(&draft, 0, Durability::Default).unwrap();
    let consumer = Arc::new(consumer);
    let (other, held) = (Arc::clone(&consumer), got.clone());
    plant::at(Point::Bounded, move || {
        let (left, settled) = other.try_ack(receipts(&held));
        assert_eq!(left, [0, 1]);
        settled.unwrap();
        let first = &held[0].receipt;
        assert!(!other.try_extend(first, Duration::ZERO).unwrap());
        assert!(!other.try_renew(first).unwrap());
    });
    assert_eq!(bodies(&poll(&consumer)), [3]);
    let first = &got[0].receipt;
    assert!(consumer.try_extend(first, Duration::from_secs(60)).unwrap());
    assert!(consumer.try_renew(first).unwrap());
    consumer.ack([first]).unwrap();
    let (left, settled) = consumer.try_ack(receipts(&got));
    assert!(left.is_empty());
    assert!(matches!(settled, Err(Error::AlreadySettled { .. })));
    // The second is settled nevertheless.
    let again = consumer.ack([&got[1].receipt]);
    assert!(matches!(again, Err(Error::AlreadySettled { .. })));
}

/// The thread of an event loop drops an iterator, which gives messages back. It waited as long as
/// another thread read from the queue.
#[test]
fn who_gives_back_does_not_wait_while_another_thread_uses_the_queue() {
    let bed = Bed::new("store");
    let (consumer, got) = with_two(&bed);
    let producer = bed.store.producer("orders", None).unwrap();
    let draft = Draft {
        body: b"3",
        ..Draft::default()
    };
    producer.send(&draft, 0, Durability::Default).unwrap();
    let consumer = Arc::new(consumer);
    let (other, held) = (Arc::clone(&consumer), got.clone());
    // In the thread that has the lock: a call that waited for it would never return.
    plant::at(Point::Bounded, move || other.give_back(receipts(&held)));
    assert_eq!(bodies(&poll(&consumer)), [3]);
    let again = poll(&consumer);
    assert_eq!(bodies(&again), [1, 2]);
    // They do not count as delivered before.
    assert_eq!(bed.store.groups().unwrap()[0].retries, 0);
    consumer.ack(receipts(&again)).unwrap();
    for old in &got {
        let lost = consumer.ack([&old.receipt]);
        assert!(matches!(
            lost,
            Err(Error::AlreadySettled { .. } | Error::OwnershipLost { .. })
        ));
    }
}
