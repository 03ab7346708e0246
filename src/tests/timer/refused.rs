//! Refused messages in the tables of a partition log: each opening knows all of them.

use super::{Lacking, after, send_other, settled, until};
use crate::{Delay, TIMER_TOPIC};
use std::fs;
use std::sync::atomic::Ordering;

const A_DAY_MS: u64 = 24 * 3_600_000;

/// The table described the message as delivered because of its time, and no longer listed it once
/// an opening had not come to it.
#[test]
fn a_refused_message_outlasts_an_opening_that_does_not_try_it() {
    let mut bed = Lacking::new(libc::EACCES);
    // This one waits all the time, so the other counts as delivered by its time alone.
    send_other(&bed.store, after(A_DAY_MS));
    bed.await_other();
    bed.refused.store(libc::ENOSPC, Ordering::Release);
    bed.reopen();
    bed.store.clock_moved().unwrap_err();
    assert_eq!(bed.undelivered(), [""; 0]);
    bed.store.close().unwrap();
    bed.refused.store(0, Ordering::Release);
    for _ in 0..2 {
        bed.reopen();
        bed.store.clock_moved().unwrap();
        assert_eq!(settled(&bed.store, 1), [1]);
        assert_eq!(bed.count("pears", 0), 1);
    }
}

/// The list of the messages that wait lacked those that were refused.
#[test]
fn a_refused_message_is_delivered_without_either_table() {
    let tables = ["forebay.delay", "forebay.pending"];
    for removed in [&tables[..1], &tables[1..], &tables[..]] {
        let mut bed = Lacking::new(libc::EACCES);
        bed.await_other();
        // From more than 8 messages on, tests list those that wait.
        for _ in 0..8 {
            send_other(&bed.store, Delay::Until(0));
        }
        until(|| bed.count("pears", 0) == 9);
        assert_eq!(bed.count(TIMER_TOPIC, 0), 10);
        bed.store.close().unwrap();
        for table in tables {
            let path = bed.root.path().join(table);
            assert!(path.exists(), "{table}");
            if removed.contains(&table) {
                fs::remove_file(path).unwrap();
            }
        }
        bed.refused.store(0, Ordering::Release);
        for _ in 0..2 {
            bed.reopen();
            bed.store.clock_moved().unwrap();
            assert_eq!(settled(&bed.store, 1), [1]);
            assert_eq!(bed.count("pears", 0), 9);
        }
    }
}

/// The table lists at most 4 messages in tests. The others were forgotten.
#[test]
fn more_refused_messages_than_the_table_lists_are_delivered_once_by_the_next_opening() {
    let numbers: Vec<usize> = (10..16).collect();
    let mut bed = Lacking::with(libc::EACCES, 10..16);
    bed.await_other();
    // The opening tries them again in vain.
    bed.reopen();
    bed.store.clock_moved().unwrap();
    until(|| !bed.undelivered().is_empty());
    bed.store.close().unwrap();
    bed.refused.store(0, Ordering::Release);
    for _ in 0..2 {
        bed.reopen();
        bed.store.clock_moved().unwrap();
        assert_eq!(settled(&bed.store, numbers.len()), numbers);
        assert_eq!(bed.count("pears", 0), 1);
    }
}
