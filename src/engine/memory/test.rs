//! What the shared suite does not cover: a clock that is set back, and stores of several chunks.

use super::*;
use crate::clock::ManualClock;
use crate::record::Draft;

fn store_with_clock(now: &Arc<ManualClock>) -> Memory {
    let now = Arc::clone(now);
    Memory::with_clock(&Options::default(), now)
}

fn send(store: &Memory, queue: u32, body: &[u8], keys: &[&str]) -> Appended {
    let topic = store.topic_for_append("T").unwrap();
    let mut batch = store.form().batch();
    let draft = Draft {
        body,
        keys,
        ..Draft::default()
    };
    batch.push("T", queue, &draft, 5).unwrap();
    let (atomicity, durability) = (Atomicity::Rows, Durability::Default);
    store
        .append(&mut [(&topic, &mut batch)], atomicity, durability)
        .unwrap()
}

#[test]
fn store_times_never_decrease_when_the_clock_is_set_back() {
    let now = ManualClock::at(100);
    let store = store_with_clock(&now);
    assert_eq!(send(&store, 0, b"a", &[]).store_timestamp, 100);
    now.set(50);
    assert_eq!(send(&store, 0, b"b", &[]).store_timestamp, 100);
    now.set(101);
    assert_eq!(send(&store, 0, b"c", &[]).store_timestamp, 101);
    assert_eq!(store.message_at(1).unwrap().record().store_timestamp(), 100);
    assert_eq!(store.message_at(1).unwrap().record().born_timestamp(), 5);
}

#[test]
fn the_offset_at_a_time_is_that_of_the_first_message_stored_then_or_later() {
    let now = ManualClock::at(0);
    let store = store_with_clock(&now);
    for time in [10, 10, 20, 30, 30, 30] {
        now.set(time);
        send(&store, 3, b"", &[]);
    }
    let topic = store.topics().get("T").unwrap();
    let found = [i64::MIN, 10, 11, 20, 21, 30, 31, i64::MAX]
        .map(|time| store.offset_at(&topic, 3, Point::Time(time)).unwrap());
    assert_eq!(found, [0, 0, 2, 2, 3, 3, 6, 6]);
}

/// A message may arrive after the bounds were read and before the error is made.
#[test]
fn an_offset_is_refused_with_bounds_that_it_is_outside_of() {
    let store = store_with_clock(&ManualClock::at(0));
    for _ in 0..6 {
        send(&store, 0, b"", &[]);
    }
    let topic = store.topics().get("T").unwrap();
    let engine: &dyn Engine = &store;
    let refused = engine.get_within(&topic, 0, 4, 0..3).err();
    assert!(matches!(
        refused,
        Some(Error::OffsetOutOfRange {
            offset: 4,
            min: 0,
            max: 3,
            ..
        })
    ));
    // Retention has deleted the message since.
    let refused = engine.get_within(&topic, 0, 7, 2..9).err();
    assert!(matches!(
        refused,
        Some(Error::OffsetOutOfRange { min: 0, max: 6, .. })
    ));
    assert!(engine.get_within(&topic, 0, -1, 0..6).is_err());
    let found = engine.get_within(&topic, 0, 4, 0..6).unwrap();
    assert_eq!(found.record().queue_offset(), 4);
}

#[test]
fn a_query_takes_both_ends_of_its_time_and_gives_the_newest_first() {
    let now = ManualClock::at(0);
    let store = store_with_clock(&now);
    for time in [10, 20, 20, 30] {
        now.set(time);
        send(&store, 0, b"", &["k"]);
    }
    let topic = store.topics().get("T").unwrap();
    let positions = |begin, end, max| -> Vec<i64> {
        let found = store
            .query(&topic, b"k", begin, end, max, &mut || true)
            .unwrap();
        found.iter().map(|m| m.record().position()).collect()
    };
    assert_eq!(positions(i64::MIN, i64::MAX, 9), [3, 2, 1, 0]);
    assert_eq!(positions(10, 20, 9), [2, 1, 0]);
    assert_eq!(positions(11, 29, 9), [2, 1]);
    assert_eq!(positions(10, 30, 2), [3, 2]);
    assert_eq!(positions(31, 40, 9), [0; 0]);
    assert_eq!(positions(30, 10, 9), [0; 0]);
}

#[test]
fn records_larger_than_a_chunk_and_many_chunks_read_back_and_verify() {
    let store = store_with_clock(&ManualClock::at(0));
    let large = vec![7; 3 << 20];
    let small = vec![9; 300 << 10];
    for _ in 0..3 {
        send(&store, 0, &large, &[]);
        send(&store, 0, &small, &["k"]);
        send(&store, 0, b"", &[]);
    }
    let topic = store.topics().get("T").unwrap();
    for offset in 0..9 {
        let message = store.get(&topic, 0, offset).unwrap().unwrap();
        let len = [large.len(), small.len(), 0][offset as usize % 3];
        assert_eq!(message.body().unwrap().len(), len);
        message.record().check(offset).unwrap();
    }
    let mut steps = Vec::new();
    let report = store.verify(&mut |done, total| {
        steps.push((done, total));
        true
    });
    let report = report.unwrap();
    assert_eq!(
        (report.records, report.queue_entries, report.index_entries),
        (9, 9, 3)
    );
    assert_eq!(report.damage, []);
    let (done, total) = *steps.last().unwrap();
    assert_eq!((done, total), (store.stats().bytes_sent, done));
}

#[test]
fn close_frees_the_tables_but_what_is_held_stays() {
    let store = store_with_clock(&ManualClock::at(0));
    for _ in 0..3 {
        send(&store, 0, b"held", &[]);
    }
    let topic = store.topics().get("T").unwrap();
    let message = store.get(&topic, 0, 2).unwrap().unwrap();
    let mut cursor = store.log_cursor(Check::Full).unwrap();
    let tables = Arc::downgrade(&store.state().unwrap());
    store.close().unwrap();
    assert!(matches!(store.get(&topic, 0, 0), Err(Error::Closed { .. })));

    let mut rows = Rows::default();
    cursor.next(10, &mut rows).unwrap();
    assert_eq!(rows.rows.len(), 3);
    drop(cursor);
    assert!(tables.upgrade().is_none());
    assert_eq!(&*message.body().unwrap(), b"held");
    assert_eq!(rows.message(&rows.rows[1]).unwrap().record().position(), 1);
}
