//! Cursors, on which scans and exports are built.

use crate::bed::{Bed, to_queue, with_key, with_tags};
use forebay::{Check, Draft, Filter};
use forebay::{Cursor, Rows};
use std::ops::Range;

fn cursor(bed: &Bed, queue: u32, range: Range<u64>, filter: &Filter) -> Box<dyn Cursor> {
    let topic = bed.store.topic("orders").unwrap();
    let engine = bed.store.engine().unwrap();
    engine
        .cursor(&topic, queue, range, filter, Check::Full)
        .unwrap()
}

/// Offsets of all rows of a cursor, read `max_rows` at a time.
fn offsets(cursor: &mut dyn Cursor, max_rows: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    let mut rows = Rows::default();
    loop {
        rows.clear();
        let before = cursor.offset();
        cursor.next(max_rows, &mut rows).unwrap();
        assert!(rows.rows.len() <= max_rows);
        if rows.rows.is_empty() {
            return offsets;
        }
        assert!(cursor.offset() > before);
        offsets.extend(
            rows.rows
                .iter()
                .map(|row| rows.record(row).unwrap().queue_offset()),
        );
        assert!(cursor.offset() as i64 > *offsets.last().unwrap());
    }
}

suite! {
    fn a_cursor_returns_its_range_in_order_at_any_batch_size(bed) {
        bed.fill("orders", 1, 300);
        bed.fill("orders", 2, 3);
        bed.reopen();
        for range in [0..300, 0..1, 5..250, 63..65, 299..300] {
            for max_rows in [1, 7, 64, 1000] {
                let mut cursor = cursor(bed, 1, range.clone(), &Filter::default());
                assert_eq!(cursor.offset(), range.start);
                let expected: Vec<i64> = (range.start as i64..range.end as i64).collect();
                assert_eq!(offsets(&mut *cursor, max_rows), expected);
                assert_eq!(cursor.offset(), range.end);
            }
        }
    }

    fn a_range_is_clipped_to_the_bounds_and_an_empty_one_stays_at_its_start(bed) {
        bed.fill("orders", 1, 5);
        let all = Filter::default();
        let mut cut = cursor(bed, 1, 3..u64::MAX, &all);
        assert_eq!(offsets(&mut *cut, 10), [3, 4]);
        assert_eq!(cut.offset(), 5);
        for start in [0, 4, 5] {
            let mut empty = cursor(bed, 1, start..start, &all);
            assert_eq!(offsets(&mut *empty, 10), [0; 0]);
            assert_eq!(empty.offset(), start);
        }
        for queue in [0, 77] {
            let mut empty = cursor(bed, queue, 0..10, &all);
            assert_eq!(offsets(&mut *empty, 10), [0; 0]);
        }
    }

    fn a_cursor_does_not_return_messages_sent_after_its_creation(bed) {
        bed.fill("orders", 1, 5);
        let mut early = cursor(bed, 1, 0..u64::MAX, &Filter::default());
        bed.fill("orders", 1, 5);
        assert_eq!(offsets(&mut *early, 3), [0, 1, 2, 3, 4]);
    }

    fn a_filtered_cursor_skips_any_number_of_messages(bed) {
        let producer = bed.store.producer("orders", Some(0)).unwrap();
        let drafts = (0..10_000).map(|number| {
            let (tags, keys) = match number {
                100 | 9_000 => ("rare", &["k"][..]),
                9_500 => ("rare", &["l"][..]),
                _ => ("common", &[][..]),
            };
            Ok(Draft { tags: Some(tags), keys, queue: Some(0), ..Draft::default() })
        });
        let (rows, default) = (forebay::Atomicity::Rows, forebay::Durability::Default);
        producer.send_batch(drafts, rows, default).unwrap();
        for max_rows in [1, 100] {
            let mut rare = cursor(bed, 0, 0..10_000, &with_tags(&["rare"]));
            assert_eq!(offsets(&mut *rare, max_rows), [100, 9_000, 9_500]);
            assert_eq!(rare.offset(), 10_000);
            let mut keyed = cursor(bed, 0, 0..10_000, &with_key("k"));
            assert_eq!(offsets(&mut *keyed, max_rows), [100, 9_000]);
            let both = Filter { key: Some(b"l".to_vec()), ..with_tags(&["rare", "x"]) };
            let mut both = cursor(bed, 0, 101..9_600, &both);
            assert_eq!(offsets(&mut *both, max_rows), [9_500]);
            assert_eq!(both.offset(), 9_600);
        }
    }

    fn the_rows_of_a_cursor_are_whole_records_and_messages(bed) {
        for number in 0..200u8 {
            bed.send("orders", &Draft { keys: &["k"], ..to_queue(0, &[number; 500]) });
        }
        let mut walk = cursor(bed, 0, 0..200, &Filter::default());
        let mut rows = Rows::default();
        while walk.offset() < 200 {
            walk.next(50, &mut rows).unwrap();
        }
        assert_eq!(rows.rows.len(), 200);
        for (number, row) in rows.rows.iter().enumerate() {
            let record = rows.record(row).unwrap();
            record.check(record.position() as u64).unwrap();
            assert_eq!(record.stored_body(), [number as u8; 500]);
            let message = rows.message(row).unwrap();
            assert_eq!(message.record().bytes(), record.bytes());
        }
        assert!(rows.regions.len() < 20, "{} regions", rows.regions.len());
        rows.clear();
        assert!(rows.rows.is_empty() && rows.regions.is_empty());
    }

    fn the_log_is_walked_in_order_of_position_across_topics_and_files(bed) {
        let mut sent = Vec::new();
        for number in 0..600u32 {
            let topic = ["orders", "bills"][number as usize % 2];
            let place = bed.send(topic, &to_queue(number % 3, &number.to_be_bytes())).place;
            sent.push((topic.as_bytes().to_vec(), place.position, number));
        }
        bed.reopen();
        let engine = bed.store.engine().unwrap();
        for check in [Check::Full, Check::Structure] {
            let mut cursor = engine.log_cursor(check).unwrap();
            let mut found = Vec::new();
            let mut rows = Rows::default();
            loop {
                rows.clear();
                cursor.next(100, &mut rows).unwrap();
                if rows.rows.is_empty() {
                    break;
                }
                for row in &rows.rows {
                    let record = rows.record(row).unwrap();
                    let number = u32::from_be_bytes(record.stored_body().try_into().unwrap());
                    found.push((record.topic().to_vec(), record.position() as u64, number));
                }
            }
            assert_eq!(found, sent);
            assert_eq!(cursor.offset(), engine.readable_position());
        }
    }
}
