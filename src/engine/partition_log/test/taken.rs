//! The memory of the records that a cursor hands out.

use super::*;
use crate::engine::Cursor;
use crate::region::PAGE;

/// More records than a cursor hands out at once.
const MANY: usize = 10_000;

/// Batches that are packed, so that their records are copied.
fn made(batches: u64) -> Made {
    let made = Made::new();
    let batches: Vec<Vec<u8>> = (0..batches)
        .map(|number| {
            let spec = Spec {
                base: number * 100,
                times: &[1000; 100],
                zeros: 1,
                ..Spec::default()
            };
            spec.bytes()
        })
        .collect();
    made.segment(0, &batches);
    made
}

fn cursor(engine: &PartitionLog) -> Box<dyn Cursor> {
    let all = Filter::default();
    engine
        .cursor(&topic(engine, "t"), 0, bounds(engine), &all, Check::Full)
        .unwrap()
}

fn next(cursor: &mut dyn Cursor, rows_max: usize) -> Rows {
    let mut rows = Rows::default();
    cursor.next(rows_max, &mut rows).unwrap();
    rows
}

fn values(rows: &Rows) -> Vec<Vec<u8>> {
    let records = rows.rows.iter().filter_map(|row| rows.record(row));
    records
        .map(|record| record.stored_body().strip_suffix(b"\0").unwrap().to_vec())
        .collect()
}

#[test]
fn a_chunk_is_filled_again_once_no_reader_has_it() {
    let made = made(300);
    let engine = made.open();
    let mut cursor = cursor(&engine);
    let addresses = |rows: &Rows| -> Vec<usize> {
        let regions = rows.regions.iter();
        regions.map(|region| region.address()).collect()
    };
    let first = next(&mut *cursor, MANY);
    let (at, found) = (addresses(&first), values(&first));
    assert_eq!(at.len(), 1);
    let second = next(&mut *cursor, MANY);
    assert_ne!(addresses(&second), at);
    assert_eq!(values(&first), found);
    let message = first.message(&first.rows[0]).unwrap();
    drop(first);
    let third = next(&mut *cursor, MANY);
    assert_ne!(addresses(&third), at);
    assert_eq!(*message.body().unwrap(), *b"0\0");
    drop(message);
    let fourth = next(&mut *cursor, MANY);
    assert_eq!(addresses(&fourth), at);
    let all = [found, values(&second), values(&third), values(&fourth)].concat();
    let expected = (0..all.len()).map(|offset| offset.to_string().into_bytes());
    assert!(all.into_iter().eq(expected));
}

#[test]
fn few_messages_do_not_hold_the_memory_of_many() {
    let made = made(3);
    let engine = made.open();
    for rows_max in [1, 10, MANY] {
        let rows = next(&mut *cursor(&engine), rows_max);
        assert_eq!(rows.rows.len(), rows_max.min(300));
        let (held, used) = (rows.regions[0].len(), rows.copied as usize);
        assert!(held <= (2 * used).max(PAGE), "{held} bytes for {used}");
    }
}
