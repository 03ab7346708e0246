//! How much a read of a partition log copies. A few bytes on the disk may unpack to very many.

use crate::arrow::source::Source;
use crate::engine::partition_log::test::{Made, Spec};
use crate::engine::{COPIED_MAX, Check, Filter, Rows};
use crate::options::{Mode, Options};
use crate::store::Store;

const MESSAGES: u64 = 40;
const BODY_LEN: usize = 4 << 20;

/// A partition of 160 MiB that takes 160 KiB.
fn store() -> (Made, Store) {
    let made = Made::new();
    let batches: Vec<_> = (0..MESSAGES)
        .map(|base| {
            let spec = Spec {
                base,
                times: &[1],
                key: Some(b"k"),
                zeros: BODY_LEN,
                ..Spec::default()
            };
            spec.bytes()
        })
        .collect();
    made.segment(0, &batches);
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let store = Store::open(made.root.path(), options).unwrap();
    (made, store)
}

#[test]
fn a_read_ends_when_it_has_copied_much_and_the_next_one_goes_on() {
    let (_made, store) = store();
    let (mut next, mut reads) = (0, Vec::new());
    while next < MESSAGES {
        let read = store.read("t", 0, next as i64, 1000, None, &Filter::default());
        let read = read.unwrap();
        let lens = read
            .messages
            .iter()
            .map(|it| it.record().bytes().len() as u64);
        assert!(lens.sum::<u64>() <= COPIED_MAX + 2 * BODY_LEN as u64);
        assert_eq!(read.next_offset, next + read.messages.len() as u64);
        next = read.next_offset;
        reads.push(read.messages.len());
    }
    assert_eq!(reads.len(), 3, "{reads:?}");
    // A lower limit of the caller applies.
    let read = store.read("t", 0, 0, 1000, Some(1), &Filter::default());
    assert_eq!(read.unwrap().messages.len(), 1);
}

#[test]
fn a_query_returns_the_newest_messages_that_fit() {
    let (_made, store) = store();
    let found = store.query("t", "k", i64::MIN, i64::MAX, 1000).unwrap();
    let offsets: Vec<u64> = found
        .iter()
        .map(|it| it.record().queue_offset().cast_unsigned())
        .collect();
    let count = COPIED_MAX / (BODY_LEN as u64 + 1);
    let expected: Vec<u64> = (MESSAGES - count..MESSAGES).rev().collect();
    assert_eq!(offsets, expected);
    assert_eq!(store.query("t", "k", 0, 9, 3).unwrap().len(), 3);
}

#[test]
fn a_scan_copies_a_little_at_a_time() {
    let (_made, store) = store();
    let (engine, topic) = (store.engine().unwrap(), store.topic("t").unwrap());
    let all = Filter::default();
    let cursor = engine
        .cursor(&topic, 0, 0..MESSAGES, &all, Check::Full)
        .unwrap();
    let walk = engine.log_cursor(Check::Full).unwrap();
    for mut source in [
        Source::queues(vec![cursor]),
        Source::log(walk, u64::MAX, Filter::default()),
    ] {
        let (mut rows, mut count) = (Rows::default(), 0);
        loop {
            rows.clear();
            let has_more = source.fill(1024, &mut rows).unwrap();
            assert!(rows.copied <= 3 * BODY_LEN as u64, "{}", rows.copied);
            count += rows.rows.len() as u64;
            if !has_more {
                break;
            }
        }
        assert_eq!(count, MESSAGES);
    }
}
