//! Batches of which a reader takes a few messages at a time.

use super::*;
use crate::engine::partition_log::segments::reader::counted;

/// Records of a batch.
const LEN: u64 = 5000;

/// A batch of 60 to 100 KiB in memory.
fn long(base: u64, zeros: usize) -> Vec<u8> {
    let spec = Spec {
        base,
        times: &[1000; LEN as usize],
        key: Some(b"a key"),
        zeros,
        ..Spec::default()
    };
    spec.bytes()
}

/// Values of up to `max` messages from an offset on, read by a cursor of their own.
fn read(engine: &PartitionLog, from: u64, max: usize) -> Vec<String> {
    let all = Filter::default();
    let range = from..bounds(engine).end;
    let mut cursor = engine
        .cursor(&topic(engine, "t"), 0, range, &all, Check::Full)
        .unwrap();
    let mut rows = Rows::default();
    cursor.next(max, &mut rows).unwrap();
    let records = rows.rows.iter().filter_map(|row| rows.record(row));
    records
        .map(|record| String::from_utf8_lossy(record.stored_body()).replace('\0', ""))
        .collect()
}

fn expected(from: u64, max: usize, end: u64) -> Vec<String> {
    let offsets = from..end.min(from + max as u64);
    offsets.map(|offset| offset.to_string()).collect()
}

#[test]
fn a_batch_that_is_read_in_many_parts_is_read_once() {
    // Rows that lie in their batch, and those that are copied; an unpacked batch, and a packed one.
    for (zeros, step) in [(0, 300), (0, 10), (1, 300), (1, 10)] {
        let made = Made::new();
        made.segment(0, &[long(0, zeros), long(LEN, zeros)]);
        let engine = made.open();
        let len = fs::metadata(made.log(0)).unwrap().len();
        let mut from = 0;
        counted::take();
        while from < 2 * LEN {
            let found = read(&engine, from, step);
            assert_eq!(found, expected(from, step, 2 * LEN));
            from += found.len() as u64;
        }
        let calls = 2 * LEN / step as u64;
        // Each call reads the header of the batch, with what follows it.
        let headers = calls * if step < 256 { 32 << 10 } else { 128 << 10 };
        let read = counted::take();
        assert!(read < 3 * len + headers, "{read} of {len}");
        assert!(engine.shared.half_reads.taken() >= calls - 4);
    }
}

#[test]
fn readers_at_different_places_of_a_batch_go_on_with_what_they_left() {
    let made = Made::new();
    made.segment(0, &[long(0, 0)]);
    let engine = made.open();
    let mut places = [0, 1000, 2000, 3000];
    for _ in 0..10 {
        for place in &mut places {
            assert_eq!(read(&engine, *place, 7), expected(*place, 7, LEN));
            *place += 7;
        }
    }
    assert_eq!(engine.shared.half_reads.taken(), 36);
    // Offsets that no reader has left.
    for from in [0, 2500, 4999] {
        assert_eq!(read(&engine, from, 3), expected(from, 3, LEN));
    }
    assert_eq!(engine.shared.half_reads.taken(), 36);
}

#[test]
fn a_batch_that_was_replaced_meanwhile_is_read_anew() {
    let made = Made::new();
    made.segment(0, &[long(0, 0)]);
    let engine = made.open();
    assert_eq!(read(&engine, 0, 7), expected(0, 7, LEN));
    let other = Spec {
        times: &[2000; LEN as usize],
        key: Some(b"other"),
        ..Spec::default()
    };
    let file = fs::OpenOptions::new().write(true).open(made.log(0));
    file.unwrap().write_all(&other.bytes()).unwrap();
    let message = engine.get(&topic(&engine, "t"), 0, 7).unwrap().unwrap();
    assert_eq!(message.record().key_bytes().as_deref(), Some(&b"other"[..]));
}

#[test]
fn batches_that_readers_have_left_take_a_bounded_memory() {
    let made = Made::new();
    let batches: Vec<Vec<u8>> = (0..80).map(|number| long(number * LEN, 100)).collect();
    made.segment(0, &batches);
    let engine = made.open();
    for number in 0..80 {
        read(&engine, number * LEN, 10);
    }
    let memory = engine.shared.half_reads.memory();
    assert!((16 << 20..33 << 20).contains(&memory), "{memory}");
    engine.close().unwrap();
    assert_eq!(engine.shared.half_reads.memory(), 0);
}
