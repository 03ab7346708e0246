//! Waiting messages whose times are not all later than those of delivered ones: the wall clock was
//! set back, or a step has delivered some of those that have the same time.

use super::{after, delivered, numbers, send, settled, until};
use crate::clock::ManualClock;
use crate::tests::consumer::{BEGIN_MS, Bed, open_as};
use crate::{EngineKind, Options, Store};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const HALF_AN_HOUR_MS: i64 = 1_800_000;

fn open_with(path: &Path, clock: &Arc<ManualClock>, engine: EngineKind) -> Store {
    let options = Options {
        engine: Some(engine),
        default_queues: Some(2),
        ..Options::default()
    };
    open_as(path, clock, options)
}

/// A store said that messages up to one time are delivered. That of a message that was sent after
/// the clock was set back is before those of delivered messages, and these were delivered again.
#[test]
fn nothing_is_delivered_twice_after_a_life_with_the_clock_set_back() {
    for engine in [EngineKind::CommitLog, EngineKind::PartitionLog] {
        // Message 0 waits all the time, or there is none: then nothing waits in between.
        for first in [0, 1] {
            let folder = tempfile::tempdir().unwrap();
            let clock = ManualClock::at(BEGIN_MS);
            let store = open_with(folder.path(), &clock, engine);
            if first == 0 {
                send(&store, 0, after(100_000_000));
            }
            for number in 1..=5 {
                send(&store, number, after(1_000_000));
            }
            clock.advance(2_000_000);
            store.clock_moved().unwrap();
            assert_eq!(settled(&store, 5), [1, 2, 3, 4, 5]);
            store.close().unwrap();

            clock.set(BEGIN_MS - HALF_AN_HOUR_MS);
            let store = open_with(folder.path(), &clock, engine);
            send(&store, 6, after(600_000));
            send(&store, 7, after(1_000));
            clock.advance(1_000);
            store.clock_moved().unwrap();
            assert_eq!(settled(&store, 6), [1, 2, 3, 4, 5, 7]);
            store.close().unwrap();

            clock.set(BEGIN_MS + 3_000_000);
            let store = open_with(folder.path(), &clock, engine);
            store.clock_moved().unwrap();
            assert_eq!(settled(&store, 7), [1, 2, 3, 4, 5, 7, 6]);
            clock.advance(100_000_000);
            store.clock_moved().unwrap();
            let all = [1, 2, 3, 4, 5, 7, 6, 0];
            let count = all.len() - first;
            assert_eq!(settled(&store, count), all[..count]);
            store.close().unwrap();
        }
    }
}

/// Only messages whose time had passed by the wall clock were looked for among the deliveries.
#[test]
fn deliveries_of_a_process_that_died_count_though_the_clock_was_set_back_since() {
    let mut bed = Bed::new("store");
    let table = bed.path.join("forebay.delay");
    for number in 1..=3 {
        send(&bed.store, number, after(number as u64 * 1_000));
    }
    // A step must have seen them, or a close saves no table.
    bed.pass(0);
    bed.reopen();
    let older = fs::read(&table).unwrap();
    bed.pass(2_000);
    until(|| delivered(&bed.store).len() == 2);
    bed.store.close().unwrap();
    // What a process leaves that is killed here.
    fs::write(&table, older).unwrap();
    bed.clock.set(BEGIN_MS - HALF_AN_HOUR_MS);
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    send(&bed.store, 4, after(1_000));
    bed.pass(1_000);
    assert_eq!(settled(&bed.store, 3), [1, 2, 4]);
    bed.clock.set(BEGIN_MS + 10_000);
    bed.pass(0);
    assert_eq!(settled(&bed.store, 4), [1, 2, 4, 3]);
}

/// A step ends after 100 messages in tests. The table that was saved then told of none with their
/// time that it was delivered, and later deliveries were searched after them.
#[test]
fn a_process_that_dies_between_messages_of_one_time_delivers_none_twice() {
    const LEN: usize = 150;
    let mut bed = Bed::new("store");
    let table = bed.path.join("forebay.delay");
    for number in 0..LEN {
        send(&bed.store, number, after(10_000));
    }
    // From here on the table is to be saved in 5 seconds, which is after the first 100.
    bed.pass(0);
    bed.pass(10_000);
    until(|| numbers(&bed.store).len() == LEN && table.exists());
    let between = fs::read(&table).unwrap();
    bed.store.close().unwrap();
    fs::write(&table, between).unwrap();
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    // A step more, which would deliver them again.
    assert_eq!(settled(&bed.store, LEN).len(), LEN);
    assert_eq!(numbers(&bed.store).len(), LEN + 1);
}

/// The two tables may cover the same messages. The list may then be the later one, if one time did
/// not describe what was delivered. Deliveries before the list were forgotten, and once the list
/// was gone, their messages were delivered again.
#[test]
fn nothing_is_delivered_twice_after_a_list_that_is_later_than_the_table() {
    let mut bed = Bed::new("store");
    let table = bed.path.join("forebay.delay");
    let list = bed.path.join("forebay.pending");
    // Message 0 waits all the time.
    send(&bed.store, 0, after(100_000));
    for number in 1..=10 {
        send(&bed.store, number, after(number as u64 * 1_000));
    }
    bed.pass(0);
    bed.reopen();
    let older = fs::read(&table).unwrap();
    bed.pass(3_000);
    until(|| delivered(&bed.store).len() == 3);
    bed.store.close().unwrap();
    assert!(list.exists());
    fs::write(&table, older).unwrap();
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    bed.pass(0);
    bed.store.close().unwrap();
    fs::remove_file(&list).unwrap();
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    assert_eq!(settled(&bed.store, 3), [1, 2, 3]);
    bed.pass(1_000);
    assert_eq!(settled(&bed.store, 4), [1, 2, 3, 4]);
}
