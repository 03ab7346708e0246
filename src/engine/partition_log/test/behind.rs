//! Whole batches after damage are read, by readers and by the next writer.

use super::write::{send, writing};
use super::*;
use crate::engine::{Damage, QueueLogs};
use std::ops::Range;

const COUNT: usize = 40;
/// The mark of a clean stop.
const CLEAN: &str = ".kafka_cleanshutdown";

/// How a store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Its writer stopped.
    Cleanly,
    /// Its writer died, and all is below the recovery point.
    Durable,
    /// Its writer died, and nothing is.
    Unsynced,
}

fn batches() -> Vec<Vec<u8>> {
    (0..COUNT as u64).map(|base| batch(base, &[1])).collect()
}

/// Where each batch begins.
fn begins() -> Vec<usize> {
    let batches = batches();
    let begin = |number| batches[..number].iter().map(Vec::len).sum();
    (0..COUNT).map(begin).collect()
}

/// A partition of batches with a message each, with changed bytes in its only segment.
fn left(how: Left, change: impl Fn(&mut [u8], &[usize])) -> Made {
    let made = Made::new();
    let mut bytes = batches().concat();
    change(&mut bytes, &begins());
    made.segment(0, &[bytes]);
    let root = made.root.path();
    fs::write(root.join("forebay.partitionlog"), "7\n").unwrap();
    let point = match how {
        Left::Cleanly | Left::Durable => COUNT,
        Left::Unsynced => 0,
    };
    let points = format!("0\n1\nt 0 {point}\n");
    fs::write(root.join("recovery-point-offset-checkpoint"), points).unwrap();
    if how == Left::Cleanly {
        fs::write(root.join(CLEAN), "{\"version\":0,\"brokerEpoch\":-1}").unwrap();
    }
    made
}

fn all_but(lost: Range<usize>) -> Vec<i64> {
    (0..COUNT)
        .filter(|it| !lost.contains(it))
        .map(|it| it as i64)
        .collect()
}

fn lost(damage: &[Damage]) -> Vec<u64> {
    damage
        .iter()
        .flat_map(|it| it.lost.iter().map(|(_, _, offset)| *offset))
        .collect()
}

/// The reader, the writer after it, and the reader after that find the same.
fn check(made: &Made, expected: &[i64], end: u64, what: &str) {
    let engine = made.open();
    assert_eq!(offsets(&engine), expected, "{what}, reader");
    drop(engine);
    let engine = writing(made.root.path(), &Options::default()).unwrap();
    assert_eq!(offsets(&engine), expected, "{what}, writer");
    assert_eq!(bounds(&engine), 0..end, "{what}, writer");
    let lost = lost(&engine.report().damage());
    let holes: Vec<u64> = (0..end)
        .filter(|it| !expected.contains(&it.cast_signed()))
        .collect();
    assert_eq!(lost, holes, "{what}, writer");
    assert_eq!(
        send(&engine, "t", &[(0, end.to_string().as_bytes())]),
        [end]
    );
    let more = [expected, &[end.cast_signed()]].concat();
    assert_eq!(offsets(&engine), more, "{what}, writer");
    assert_eq!(offsets(&made.open()), more, "{what}, reader beside it");
}

/// The length of a batch leads nowhere, or into a message.
#[test]
fn a_wrong_length_costs_its_message_alone() {
    for how in [Left::Cleanly, Left::Durable, Left::Unsynced] {
        for number in [0, 5, 10] {
            for at in [8, 10, 11] {
                let made = left(how, |bytes, begins| bytes[begins[number] + at] ^= 0x10);
                let expected = all_but(number..number + 1);
                let what = format!("{how:?}, byte {at} of batch {number}");
                check(&made, &expected, COUNT as u64, &what);
            }
        }
    }
}

/// A batch with a wrong last offset, which cannot be read, must not hide the batches after it, or
/// move a reader beyond the end.
#[test]
fn a_wrong_last_offset_beside_other_damage_hides_nothing() {
    for how in [Left::Cleanly, Left::Durable, Left::Unsynced] {
        for number in [0, 5, COUNT - 2] {
            for at in [8, 16, 23, 60] {
                let made = left(how, |bytes, begins| {
                    bytes[begins[number] + 23] ^= 0x10;
                    bytes[begins[number + 1] + at] ^= 0x7F;
                });
                let expected = all_but(number..number + 2);
                let what = format!("{how:?}, batch {number}, byte {at} of the next");
                check(&made, &expected, COUNT as u64, &what);
            }
        }
        let last = COUNT - 1;
        let made = left(how, |bytes, begins| bytes[begins[last] + 23] ^= 0x10);
        check(&made, &all_but(last..COUNT), COUNT as u64, "the last batch");
    }
}

/// Zeros that begin where a batch begins.
#[test]
fn zeros_end_a_log_only_where_a_power_loss_can_have_left_them() {
    for number in [0, 4] {
        for len in [61, 600] {
            for how in [Left::Cleanly, Left::Durable, Left::Unsynced] {
                let made = left(how, |bytes, begins| {
                    bytes[begins[number]..][..len].fill(0);
                });
                let zeros_end = begins()[number] + len;
                let after = begins().partition_point(|it| *it < zeros_end);
                let has_sector = len == 600;
                let (expected, end) = match how == Left::Unsynced && has_sector {
                    true => (all_but(number..COUNT), number),
                    false => (all_but(number..after), COUNT),
                };
                let what = format!("{how:?}, {len} zeros from batch {number} on");
                check(&made, &expected, end as u64, &what);
            }
        }
    }
}

/// The header of a batch within which sectors are missing may be whole.
#[test]
fn a_sector_that_is_missing_behind_a_header_ends_a_log_that_was_not_durable() {
    for how in [Left::Cleanly, Left::Durable, Left::Unsynced] {
        let from = begins()[3] + 61;
        let until = (from / 512 + 2) * 512;
        let made = left(how, |bytes, _| bytes[from..until].fill(0));
        let after = begins().partition_point(|it| *it < until);
        let (expected, end) = match how {
            Left::Unsynced => (all_but(3..COUNT), 3),
            Left::Cleanly | Left::Durable => (all_but(3..after), COUNT),
        };
        check(&made, &expected, end as u64, &format!("{how:?}"));
    }
}

/// A complete segment that was cut short, and an empty one after it.
#[test]
fn the_lost_end_of_a_complete_segment_is_reported_to_the_readers_of_its_writer() {
    let root = TempDir::new().unwrap();
    let engine = writing(root.path(), &Options::default()).unwrap();
    for number in 0..4_u64 {
        send(&engine, "t", &[(0, number.to_string().as_bytes())]);
    }
    engine.roll().unwrap();
    engine.close().unwrap();
    drop(engine);
    let log = root.path().join("t-0/00000000000000000000.log");
    let len = fs::metadata(&log).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(len - 10).unwrap();
    let engine = writing(root.path(), &Options::default()).unwrap();
    let topic = topic(&engine, "t");
    let mut rows = Rows::default();
    let mut cursor = engine
        .cursor(&topic, 0, 0..4, &Filter::default(), Check::Full)
        .unwrap();
    cursor.next(100, &mut rows).unwrap();
    assert_eq!((rows.rows.len(), cursor.offset()), (3, 4));
    let damage = engine.report().damage();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].path, log);
}

/// A message may hold the bytes of a batch with any offset: no checksum covers that.
#[test]
fn the_end_of_a_batch_with_a_wrong_length_is_not_looked_for_in_its_message() {
    let inner = [batch(6, &[1]), batch(5000, &[1]), batch(3, &[1])].concat();
    for is_indexed in [false, true] {
        for is_complete in [false, true] {
            let made = Made::new();
            let mut all = batches();
            let spec = Spec {
                base: 6,
                times: &[1],
                key: Some(&inner),
                ..Spec::default()
            };
            all[6] = spec.bytes();
            let begin: usize = all[..6].iter().map(Vec::len).sum();
            let indexed = begin + all[6].len();
            let mut bytes = all.concat();
            bytes[begin + 8] ^= 0x40;
            made.segment(0, &[bytes]);
            if is_indexed {
                let entry = [7_u32.to_be_bytes(), (indexed as u32).to_be_bytes()].concat();
                fs::write(made.file("00000000000000000000.index"), entry).unwrap();
            }
            let mut expected = all_but(6..7);
            if is_complete {
                made.segment(COUNT as u64, &[batch(COUNT as u64, &[1])]);
                expected.push(COUNT as i64);
            }
            assert_eq!(
                offsets(&made.open()),
                expected,
                "{is_indexed} {is_complete}"
            );
        }
    }
}

/// Whatever is damaged in two batches, those between them stay.
#[test]
fn a_repair_keeps_whole_batches_between_damaged_ones() {
    for at in [8, 16, 23, 40] {
        for is_complete in [false, true] {
            let made = left(Left::Cleanly, |bytes, begins| {
                for number in [10, 30] {
                    bytes[begins[number] + at] ^= 0x40;
                }
            });
            let mut expected: Vec<i64> = all_but(10..11);
            expected.retain(|it| *it != 30);
            if is_complete {
                made.segment(COUNT as u64, &[batch(COUNT as u64, &[1])]);
                expected.push(COUNT as i64);
                let points = format!("0\n1\nt 0 {}\n", COUNT + 1);
                let path = made.root.path().join("recovery-point-offset-checkpoint");
                fs::write(path, points).unwrap();
            }
            let engine = writing(made.root.path(), &Options::default()).unwrap();
            assert_eq!(offsets(&engine), expected, "byte {at}, {is_complete}");
            engine.repair(&mut |_, _| true).unwrap();
            assert_eq!(
                offsets(&engine),
                expected,
                "byte {at}, {is_complete}, repaired"
            );
            assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
        }
    }
}

/// Without recovery points nothing says what was durable.
#[test]
fn a_clean_stop_keeps_all_even_if_the_recovery_points_are_missing() {
    for number in [5, 39] {
        let made = left(Left::Cleanly, |bytes, begins| {
            bytes[begins[number] + 8] ^= 0x10
        });
        fs::remove_file(made.root.path().join("recovery-point-offset-checkpoint")).unwrap();
        let expected = all_but(number..number + 1);
        assert_eq!(offsets(&made.open()), expected, "{number}, reader");
        let len = fs::metadata(made.log(0)).unwrap().len();
        let engine = writing(made.root.path(), &Options::default()).unwrap();
        assert_eq!(offsets(&engine), expected, "{number}, writer");
        // Zeros at the end of the last batch need not be kept.
        let kept = fs::metadata(made.log(0)).unwrap().len();
        assert!((len - 3..=len).contains(&kept), "{number}: {kept} of {len}");
        let damage = engine.report().damage();
        assert!(damage.iter().any(|it| it.path == made.log(0)), "{damage:?}");
    }
}
