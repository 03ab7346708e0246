//! Batches that a crash cut short, whose messages hold the bytes of batches.

use super::recovery::{damage, leave, point, recover};
use super::write::send;
use super::*;

/// A batch of one message that holds these bytes, and where they begin in it.
fn holder(base: u64, held: &[u8]) -> (Vec<u8>, usize) {
    let spec = Spec {
        base,
        times: &[1],
        key: Some(held),
        ..Spec::default()
    };
    let bytes = spec.bytes();
    let at = bytes.windows(held.len()).position(|it| it == held);
    (bytes, at.unwrap())
}

/// Batches of one message each.
fn batches(bases: std::ops::Range<u64>) -> Vec<u8> {
    bases.flat_map(|base| batch(base, &[1])).collect()
}

/// Recovery took it for a batch of the log. All later messages got offsets after its own, and
/// consumers met a message that nobody had sent.
#[test]
fn a_batch_in_a_message_of_which_a_crash_left_the_begin_is_not_one_of_the_log() {
    let far = 1 << 30;
    for inner in [far..far + 1, far..far + 30, 6..7, 5..9, 3..40] {
        let bytes = batches(inner.clone());
        let (torn, at) = holder(5, &[&bytes[..], &[7; 3000]].concat());
        let end = at + bytes.len();
        for left in [end + 1, end + 70, end + 1500, torn.len() - 6] {
            for room in [0, 70_000] {
                for checkpoint in [Some(point(0)), Some(point(5)), None] {
                    let made = Made::new();
                    made.segment(0, &[batches(0..5)]);
                    made.append(0, &torn[..left]);
                    made.append(0, &vec![0; room]);
                    leave(&made, checkpoint.as_deref());
                    let what = format!("{inner:?}, {left} bytes, {room} zeros, {checkpoint:?}");
                    let reader = made.open();
                    assert_eq!(bounds(&reader), 0..5, "{what}");
                    assert_eq!(offsets(&reader), [0, 1, 2, 3, 4], "{what}");
                    assert_eq!(damage(&reader), [], "{what}");
                    let verified = reader.verify(&mut |_, _| true).unwrap();
                    assert_eq!(verified.records, 5, "{what}");
                    let engine = recover(&made, checkpoint.as_deref());
                    assert_eq!(offsets(&engine), [0, 1, 2, 3, 4], "{what}");
                    assert_eq!(damage(&engine), [], "{what}");
                    assert_eq!(send(&engine, "t", &[(0, b"5")]), [5], "{what}");
                }
            }
        }
    }
}

/// The power fails before any of it is durable. It takes a sector behind the bytes that look like
/// batches, and one of the next batch.
#[test]
fn a_batch_in_a_message_of_which_a_power_loss_took_a_sector_is_not_one_of_the_log() {
    let held = [&batches(1000..1040)[..], &[7; 3000]].concat();
    let (first, at) = holder(2, &held);
    let (second, _) = holder(3, &[7; 2000]);
    let before = batches(0..2);
    let begin = before.len() + first.len();
    let whole = [&before[..], &first, &second, &batch(4, &[1])].concat();
    let sector = |from: usize| from.next_multiple_of(512)..from.next_multiple_of(512) + 512;
    let behind = sector(before.len() + at + batches(1000..1040).len());
    for lost in [begin..sector(begin).start, sector(begin + 100)] {
        let made = Made::new();
        let mut bytes = whole.clone();
        bytes[behind.clone()].fill(0);
        bytes[lost.clone()].fill(0);
        made.segment(0, &[bytes]);
        let engine = recover(&made, Some(&point(0)));
        assert_eq!(offsets(&engine), [0, 1], "{lost:?}");
        assert_eq!(damage(&engine), [], "{lost:?}");
        assert_eq!(send(&engine, "t", &[(0, b"2")]), [2], "{lost:?}");
    }
}

/// A length that leads beyond the end of the data says nothing if the batches go on, up to there,
/// with the offset that the header leads to.
#[test]
fn batches_that_go_on_after_one_that_seems_to_hold_them_are_kept() {
    for room in [0, 3 << 20] {
        let made = Made::new();
        let mut all: Vec<Vec<u8>> = (0..8).map(|base| batch(base, &[1])).collect();
        // The checksum does not prove where it ends.
        all[2][9] ^= 0x04;
        all[2][65] ^= 1;
        made.segment(0, &all);
        made.append(0, &vec![0; room]);
        leave(&made, Some(&point(0)));
        let whole = [0, 1, 3, 4, 5, 6, 7];
        assert_eq!(offsets(&made.open()), whole);
        let engine = recover(&made, Some(&point(0)));
        assert_eq!(offsets(&engine), whole);
        let found = damage(&engine);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].lost, [("t".to_owned(), 0, 2)]);
    }
}

/// They were cut off without a report, because the torn batch kept them from the end of the data.
#[test]
fn batches_that_go_on_up_to_a_torn_one_are_kept() {
    let torn = batch(8, &[1]);
    for left in [8, 12, 30, 61, torn.len() - 4] {
        for room in [0, 70_000] {
            let made = Made::new();
            let mut all: Vec<Vec<u8>> = (0..8).map(|base| batch(base, &[1])).collect();
            all[2][9] ^= 0x04;
            all[2][65] ^= 1;
            made.segment(0, &all);
            made.append(0, &torn[..left]);
            made.append(0, &vec![0; room]);
            leave(&made, Some(&point(0)));
            let what = format!("{left} bytes, {room} zeros");
            let whole = [0, 1, 3, 4, 5, 6, 7];
            assert_eq!(offsets(&made.open()), whole, "{what}");
            let engine = recover(&made, Some(&point(0)));
            assert_eq!(offsets(&engine), whole, "{what}");
            let found = damage(&engine);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!(found[0].lost, [("t".to_owned(), 0, 2)], "{what}");
            assert_eq!(send(&engine, "t", &[(0, b"8")]), [8], "{what}");
        }
    }
}
