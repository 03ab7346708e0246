//! What an opening for writing keeps of a partition whose writer died, when a file was damaged.

use super::write::{bodies, send, send_whole, torn, writing};
use super::*;
use crate::disk::HookedDisk;
use crate::engine::{Damage, DamageKind, Durability};
use crate::machine::Drive;
use crate::num::be_u32;
use crate::plant::{Bug, plant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub(super) const POINTS: &str = "recovery-point-offset-checkpoint";

/// Makes a directory the store of a writer that died, with this checkpoint.
pub(super) fn leave(made: &Made, checkpoint: Option<&str>) {
    fs::write(made.root.path().join("forebay.partitionlog"), "7\n").unwrap();
    let path = made.root.path().join(POINTS);
    match checkpoint {
        Some(text) => fs::write(path, text).unwrap(),
        None => drop(fs::remove_file(path)),
    }
}

/// Opens such a directory.
pub(super) fn recover(made: &Made, checkpoint: Option<&str>) -> PartitionLog {
    leave(made, checkpoint);
    writing(made.root.path(), &Options::default()).unwrap()
}

/// A checkpoint with the recovery point of the partition.
pub(super) fn point(offset: u64) -> String {
    format!("0\n1\nt 0 {offset}\n")
}

/// Damage of the log, without that of tables.
pub(super) fn damage(engine: &PartitionLog) -> Vec<Damage> {
    let mut damage = engine.report().damage();
    damage.retain(|it| it.kind == DamageKind::Log);
    damage
}

/// Segments of two batches each, with an offset each.
fn pairs(bases: &[u64]) -> Made {
    let made = Made::new();
    for base in bases {
        made.segment(*base, &[batch(*base, &[1]), batch(base + 1, &[1])]);
    }
    made
}

/// Two segments of six batches each, with one byte changed in batch `number`, and what the crash
/// left after them.
fn flipped(number: u64, at: usize, tail: &[u8]) -> Made {
    let made = Made::new();
    for base in [0, 6] {
        let mut all: Vec<Vec<u8>> = (base..base + 6).map(|base| batch(base, &[1])).collect();
        if let Some(own) = number.checked_sub(base).filter(|own| *own < 6) {
            all[own as usize][at] ^= 0x21;
        }
        made.segment(base, &all);
    }
    made.append(6, tail);
    made
}

/// A writer with synchronous sends dies before the next full pass, and one bit of a batch is wrong:
/// what follows was acknowledged.
#[test]
fn a_damaged_batch_above_the_recovery_point_costs_its_messages_alone() {
    let torn = batch(12, &[1]);
    for tail in [&[][..], &[0; 3000], &torn[..40]] {
        for number in 0..11 {
            for at in [6, 7, 9, 11, 16, 18, 65] {
                let made = flipped(number, at, tail);
                let engine = recover(&made, Some(&point(0)));
                let expected = (0..12).filter(|it| *it != number as i64);
                let what = format!("byte {at} of {number}, {} bytes after", tail.len());
                assert_eq!(offsets(&engine), expected.collect::<Vec<_>>(), "{what}");
                let found = damage(&engine);
                assert_eq!(found.len(), 1, "{what}: {found:?}");
                assert_eq!(found[0].path, made.log(number / 6 * 6), "{what}");
                let lost = [("t".to_owned(), 0, number)];
                assert_eq!(found[0].lost, lost, "{what}");
                // A reader of the files as recovery has left them.
                assert_eq!(offsets(&made.open()).len(), 11, "{what}");
                assert_eq!(send(&engine, "t", &[(0, b"12")]), [12], "{what}");
                assert_eq!(offsets(&engine).len(), 12, "{what}");
            }
        }
    }
    let made = flipped(2, 65, &[]);
    plant(Some(Bug::EndAtHole));
    let engine = recover(&made, Some(&point(0)));
    plant(None);
    assert_eq!((offsets(&engine), damage(&engine)), (vec![0, 1], vec![]));
}

/// No crash has cut the last batch short. It was removed as a torn end.
#[test]
fn a_last_batch_of_which_all_was_stored_is_reported() {
    let torn = batch(6, &[1]);
    let len = torn.len();
    // The offset, the length, the format, the checksum and what it covers.
    let places = [
        (0, 0x80),
        (7, 0x04),
        (8, 0x40),
        (9, 0x04),
        (10, 0x40),
        (11, 0x40),
        (11, 0x01),
        (16, 0x01),
        (17, 0x01),
        (24, 0x01),
        (57, 0x80),
        (60, 0x02),
        (65, 0x01),
    ];
    for (at, bits) in places {
        for tail in [&[][..], &[0; 3000], &torn[..40]] {
            // Bytes of another batch hide where one ends whose length is wrong.
            if (8..12).contains(&at) && tail.len() == 40 {
                continue;
            }
            let made = Made::new();
            let mut all: Vec<Vec<u8>> = (0..6).map(|base| batch(base, &[1])).collect();
            all[5][at] ^= bits;
            made.segment(0, &all);
            made.append(0, tail);
            let engine = recover(&made, Some(&point(0)));
            let what = format!("byte {at}, {bits:x}, {} bytes after", tail.len());
            assert_eq!(offsets(&engine), [0, 1, 2, 3, 4], "{what}");
            let found = damage(&engine);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            let place = (found[0].position, found[0].length);
            assert_eq!(place, (5 * len as u64, len as u64), "{what}");
            assert_eq!(found[0].lost, [("t".to_owned(), 0, 5)], "{what}");
            let kept = fs::metadata(made.log(0)).unwrap().len();
            assert_eq!(kept, 6 * len as u64, "{what}");
            assert_eq!(send(&engine, "t", &[(0, b"6")]), [6], "{what}");
            engine.close().unwrap();
            assert_eq!(offsets(&made.open()), [0, 1, 2, 3, 4, 6], "{what}");
        }
    }
}

/// One flipped bit of the number of records gave acknowledged offsets to other messages.
#[test]
fn no_offset_of_a_damaged_last_batch_is_given_again() {
    // The number of records, and the last offset.
    for (at, bits) in [(57, 0x10), (60, 0x40), (23, 0x10), (26, 0x40)] {
        for tail in [0, 3000] {
            let made = Made::new();
            let mut last = batch(5, &[1; 100]);
            last[at] ^= bits;
            made.segment(0, &[batch(0, &[1; 5]), last]);
            made.append(0, &vec![0; tail]);
            let engine = recover(&made, Some(&point(0)));
            let what = format!("byte {at}, {bits:x}, {tail} zeros");
            assert_eq!(offsets(&engine), [0, 1, 2, 3, 4], "{what}");
            let found = damage(&engine);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!(found[0].lost.len(), 100, "{what}");
            assert_eq!(send(&engine, "t", &[(0, b"6")]), [105], "{what}");
        }
    }
}

/// A power loss has taken a sector of the next batch, which was never durable. It condemned the
/// damaged batch before it.
#[test]
fn a_damaged_last_batch_is_kept_before_a_torn_one_without_a_sector() {
    let spec = |base, key| Spec {
        base,
        times: &[1],
        key: Some(key),
        ..Spec::default()
    };
    let mut damaged = spec(1, &[7; 700]).bytes();
    damaged[100] ^= 1;
    let torn = spec(2, &[7; 2000]).bytes();
    let before = [batch(0, &[1]), damaged].concat();
    let sector = (before.len() + 100).next_multiple_of(512);
    for lost in [before.len()..sector, sector..sector + 512] {
        let made = Made::new();
        let mut bytes = [&before[..], &torn].concat();
        bytes[lost.clone()].fill(0);
        let end = bytes.len();
        bytes[end - 40..].fill(0);
        made.segment(0, &[bytes]);
        let engine = recover(&made, Some(&point(0)));
        assert_eq!(offsets(&engine), [0], "{lost:?}");
        let found = damage(&engine);
        assert_eq!(found.len(), 1, "{lost:?}: {found:?}");
        assert_eq!(found[0].lost, [("t".to_owned(), 0, 1)], "{lost:?}");
        assert_eq!(send(&engine, "t", &[(0, b"2")]), [2], "{lost:?}");
    }
}

/// No broker writes such a segment, and the messages after the limit cannot be read. They were cut
/// off as a torn end.
#[test]
fn what_a_segment_holds_above_its_largest_offset_is_kept_and_reported() {
    let far = 1 << 31;
    let made = Made::new();
    let all = [0, 1, far + 7, far + 8].map(|base| batch(base, &[1]));
    made.segment(0, &all);
    fs::write(made.root.path().join(POINTS), point(0)).unwrap();
    let whole = fs::read(made.log(0)).unwrap();
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    let engine = writing(made.root.path(), &options).unwrap();
    assert_eq!(offsets(&engine), [0, 1]);
    let found = damage(&engine);
    assert_eq!(found.len(), 1, "{found:?}");
    let begin = all[0].len() + all[1].len();
    let rest = whole.len() - begin;
    let place = (found[0].position, found[0].length);
    assert_eq!(place, (begin as u64, rest as u64));
    assert_eq!(send(&engine, "t", &[(0, b"4")]), [4]);
    assert_eq!(fs::read(made.log(0)).unwrap(), whole);
}

/// A sector of zeros in a message looks like one that a power loss took. What follows was removed.
#[test]
fn a_message_of_zeros_whose_length_is_damaged_does_not_end_the_partition() {
    let zeros = |base| {
        let spec = Spec {
            base,
            times: &[1],
            key: Some(&[0; 2000]),
            ..Spec::default()
        };
        spec.bytes()
    };
    // The offset, and the length.
    for (at, bits) in [(7, 0x01), (8, 0x40), (10, 0x40), (11, 0x40)] {
        let made = Made::new();
        let mut all = vec![batch(0, &[1]), batch(1, &[1]), zeros(2), batch(3, &[1])];
        all[2][at] ^= bits;
        made.segment(0, &all);
        made.append(0, &[0; 3000]);
        leave(&made, Some(&point(0)));
        let what = format!("byte {at}, {bits:x}");
        assert_eq!(offsets(&made.open()), [0, 1, 3], "{what}");
        let engine = recover(&made, Some(&point(0)));
        assert_eq!(offsets(&engine), [0, 1, 3], "{what}");
        let found = damage(&engine);
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!(found[0].lost, [("t".to_owned(), 0, 2)], "{what}");
    }
}

/// Only the checkpoint said that the gaps of compaction are not the end.
#[test]
fn a_damaged_checkpoint_takes_nothing_of_a_compacted_partition() {
    let whole = point(12);
    let flipped = whole.replacen('0', "1", 1);
    let lower = point(2);
    let unreadable = [None, Some(""), Some("0\n1"), Some(&*flipped)];
    for (checkpoint, damaged) in unreadable
        .map(|it| (it, 1))
        .iter()
        .chain(&[(Some(&*lower), 0), (Some(&*whole), 0)])
    {
        let made = Made::new();
        let compacted = [0, 5, 9].map(|base| batch(base, &[1]));
        made.segment(0, &compacted);
        made.segment(10, &[batch(10, &[1]), batch(14, &[1])]);
        made.segment(15, &[batch(15, &[1])]);
        made.append(15, &[0; 500]);
        let engine = recover(&made, *checkpoint);
        assert_eq!(offsets(&engine), [0, 5, 9, 10, 14, 15], "{checkpoint:?}");
        let found = engine.report().damage();
        assert_eq!(found.len(), *damaged, "{checkpoint:?}: {found:?}");
        for damage in found {
            assert_eq!(damage.kind, DamageKind::Checkpoint);
            assert_eq!(damage.path, made.root.path().join(POINTS));
        }
        assert_eq!(send(&engine, "t", &[(0, b"16")]), [16]);
    }
}

/// Batches of two KiB. The power fails before any of them is durable, and takes one sector.
#[test]
fn nothing_is_kept_after_a_sector_that_a_power_loss_took() {
    let lost_sector = || {
        let made = Made::new();
        let long = |base| {
            let spec = Spec {
                base,
                times: &[1],
                key: Some(&[7; 2000]),
                ..Spec::default()
            };
            spec.bytes()
        };
        let mut bytes: Vec<u8> = (0..4).flat_map(long).collect();
        bytes[9 * 512..10 * 512].fill(0);
        made.segment(0, &[bytes]);
        made.segment(4, &[long(4)]);
        made
    };
    let made = lost_sector();
    let engine = recover(&made, Some(&point(0)));
    assert_eq!((offsets(&engine), damage(&engine)), (vec![0, 1], vec![]));
    assert!(!made.log(4).exists());
    assert_eq!(send(&engine, "t", &[(0, b"2")]), [2]);
    // A power loss takes nothing that was durable. Without a checkpoint, nothing says what was.
    let below = point(3);
    for checkpoint in [Some(&*below), None] {
        let made = lost_sector();
        let engine = recover(&made, checkpoint);
        assert_eq!(offsets(&engine), [0, 1, 3, 4]);
        assert_eq!(damage(&engine).len(), 1);
        assert_eq!(damage(&engine)[0].lost, [("t".to_owned(), 0, 2)]);
    }
}

#[test]
fn no_segment_is_removed_because_one_before_it_is_gone() {
    for at in [1, 3, 5] {
        let made = pairs(&[0, 4]);
        let engine = recover(&made, Some(&point(at)));
        assert_eq!(offsets(&engine), [0, 1, 4, 5], "{at}");
        let found = damage(&engine);
        // Below the recovery point nothing is checked.
        assert_eq!(found.len(), usize::from(at < 5), "{found:?}");
        for damage in found {
            assert_eq!(damage.path, made.log(0));
            assert!(damage.reason.contains("offsets 2 to 3"), "{damage:?}");
        }
        assert_eq!(send(&engine, "t", &[(0, b"6")]), [6]);
    }
}

/// The power fails before the second segment is durable: its name is, and none of its bytes.
#[test]
fn a_segment_that_a_power_loss_took_ends_the_partition() {
    for len in [0, 4096] {
        let made = pairs(&[0, 4]);
        fs::write(made.log(2), vec![0; len]).unwrap();
        let engine = recover(&made, Some(&point(1)));
        assert_eq!((offsets(&engine), damage(&engine)), (vec![0, 1], vec![]));
        assert!(!made.log(4).exists());
        assert_eq!(send(&engine, "t", &[(0, b"2")]), [2]);
    }
}

/// Retention uses these times where messages have none.
#[test]
fn files_that_are_whole_keep_their_modification_times() {
    let made = pairs(&[0, 2, 4]);
    made.append(4, &[0; 900]);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for base in [0, 2, 4] {
        let file = fs::OpenOptions::new().write(true).open(made.log(base));
        file.unwrap().set_modified(old).unwrap();
    }
    recover(&made, Some(&point(0))).close().unwrap();
    let is_old = |base| fs::metadata(made.log(base)).unwrap().modified().unwrap() == old;
    assert_eq!([0, 2, 4].map(is_old), [true, true, false]);
}

/// The rest of the file of the segment in use was counted.
#[test]
fn bytes_are_cut_off_from_the_end_to_the_last_that_is_not_zero() {
    for (tail, cut) in [
        (vec![], 0),
        (vec![0; 70_000], 0),
        ([vec![0; 50], vec![7; 25], vec![0; 900]].concat(), 75),
    ] {
        let made = pairs(&[0, 2]);
        made.append(2, &tail);
        let engine = recover(&made, Some(&point(0)));
        assert_eq!(engine.report().recovery().truncated_bytes, cut);
        assert_eq!(offsets(&engine), [0, 1, 2, 3]);
    }
}

/// A broker takes the folder of a partition without them for that of a topic that was deleted.
#[test]
fn partitions_without_messages_have_their_small_files_once_the_store_is_closed() {
    for mode in [Mode::Append, Mode::Share] {
        let root = tempfile::tempdir().unwrap();
        let options = Options {
            mode,
            ..Options::default()
        };
        let engine = writing(root.path(), &options).unwrap();
        // More partitions than are synced one by one, and fewer.
        for (topic, queues) in [("many", 20), ("few", 2)] {
            engine
                .create_topic(topic, queues, Durability::Flushed)
                .unwrap();
            send(&engine, topic, &[(1, b"one")]);
        }
        engine.close().unwrap();
        let read = |folder: &str, name| {
            let path = root.path().join(folder).join(name);
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{folder} {name}: {error}"))
        };
        for folder in ["many-0", "many-19", "few-0"] {
            let topic = folder.split('-').next().unwrap();
            let known = read(&format!("{topic}-1"), "partition.metadata");
            assert_eq!(read(folder, "partition.metadata"), known, "{folder}");
            assert_eq!(read(folder, "leader-epoch-checkpoint"), "0\n1\n0 0\n");
        }
        // A process died while it made them.
        fs::create_dir(root.path().join("begun-1")).unwrap();
        let engine = writing(root.path(), &options).unwrap();
        assert!(engine.report().recovery().clean);
        assert_eq!(send(&engine, "few", &[(0, b"two")]), [0]);
        engine.close().unwrap();
        let mut begun = fs::read_dir(root.path().join("begun-1")).unwrap();
        assert!(begun.next().is_none());
    }
}

/// The process dies after it has begun the next segment and before it has cut this one to its
/// contents.
#[test]
fn damage_at_the_end_of_a_segment_that_was_not_cut_takes_no_later_one_away() {
    for at in [8, 9, 10, 11, 16, 65] {
        let made = flipped(5, at, &[]);
        made.append(0, &vec![0; 8 << 20]);
        let engine = recover(&made, Some(&point(0)));
        let expected: Vec<i64> = (0..12).filter(|it| *it != 5).collect();
        assert_eq!(offsets(&engine), expected, "byte {at}");
        let found = damage(&engine);
        assert_eq!(found.len(), 1, "byte {at}: {found:?}");
        assert_eq!(found[0].lost, [("t".to_owned(), 0, 5)], "byte {at}");
    }
}

/// The file of a writer that died has its full length, of which most takes no space.
#[test]
fn damage_at_the_end_of_a_partition_is_as_long_as_its_batch() {
    use std::os::unix::fs::MetadataExt;
    const LEN: u64 = 1 << 30;
    let len = batch(5, &[1]).len() as u64;
    // The last byte is zero: it is not known to be a part of a batch whose length is damaged.
    for (at, bits, length) in [
        (65, 1, len),
        (17, 1, len),
        (16, 1, len - 1),
        (8, 0x40, len - 1),
        (8, 0x04, len - 1),
        (10, 0x40, len - 1),
    ] {
        for zeros in [0, 200_000] {
            let made = Made::new();
            let mut all: Vec<Vec<u8>> = (0..6).map(|base| batch(base, &[1])).collect();
            all[5][at] ^= bits;
            made.segment(0, &all);
            made.append(0, &vec![0; zeros]);
            let file = fs::OpenOptions::new().write(true).open(made.log(0));
            file.unwrap().set_len(LEN).unwrap();
            let engine = recover(&made, Some(&point(6)));
            let what = format!("byte {at}, {bits:x}, {zeros} zeros");
            assert_eq!(offsets(&engine), [0, 1, 2, 3, 4], "{what}");
            let found = damage(&engine);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            let place = (found[0].position, found[0].length);
            assert_eq!(place, (5 * len, length), "{what}");
            assert_eq!(found[0].lost, [("t".to_owned(), 0, 5)], "{what}");
            let file = fs::metadata(made.log(0)).unwrap();
            assert_eq!(file.len(), 5 * len + length, "{what}");
            assert!(file.blocks() < 100, "{what}: {} blocks", file.blocks());
            assert_eq!(send(&engine, "t", &[(0, b"6")]), [6], "{what}");
        }
    }
}

/// Many lengths are wrong, so that each batch between them must be searched for, and each search
/// meets all that were met before.
#[test]
fn whole_batches_between_many_wrong_lengths_are_kept() {
    // An uneven number between them: none of the runs is the longest by much.
    let is_wrong = |number: u64| number % 7 == 1 || number % 31 == 2;
    let expected: Vec<i64> = (0..1000).filter(|it| !is_wrong(*it as u64)).collect();
    for (at, bits) in [(8, 0x04), (9, 0x04), (10, 0x40), (11, 0x40)] {
        for checkpoint in [Some(point(0)), Some(point(900)), None] {
            let made = Made::new();
            let all = (0..1000).map(|base| {
                let mut bytes = batch(base, &[1]);
                bytes[at] ^= if is_wrong(base) { bits } else { 0 };
                bytes
            });
            made.segment(0, &all.collect::<Vec<_>>());
            let file = fs::OpenOptions::new().write(true).open(made.log(0));
            file.unwrap().set_len(256 << 20).unwrap();
            let engine = recover(&made, checkpoint.as_deref());
            assert_eq!(offsets(&engine), expected, "byte {at}, {checkpoint:?}");
        }
    }
}

/// Rows of an atomic batch in three queues, then messages in one of them.
fn followed(path: &Path) -> (usize, usize) {
    let options = Options {
        default_queues: Some(2),
        segment_bytes: Some(16 << 10),
        ..Options::default()
    };
    // Nothing changes the files while they are copied.
    let machine = Machine {
        drive: Drive::Steps,
        ..Machine::real()
    };
    let engine = PartitionLog::open(&machine, path, &options).unwrap();
    send(&engine, "a", &[(0, b"before"), (1, b"before")]);
    engine.flush(&mut || true).unwrap();
    send_whole(
        &engine,
        &[("a", 0, &[b'1'; 2000]), ("a", 1, b"1"), ("b", 0, b"1")],
    )
    .unwrap();
    for body in [b"2", b"3"] {
        send(&engine, "a", &[(1, body)]);
        engine.flush(&mut || true).unwrap();
    }
    let log = path.join("a-0").join(format!("{:020}.log", 0));
    let bytes = fs::read(log).unwrap();
    let end = |begin: usize| begin + 12 + be_u32(&bytes[begin..], 8) as usize;
    (end(0), end(end(0)))
}

/// How many messages the queues have.
fn counts(engine: &PartitionLog) -> [usize; 3] {
    [("a", 0), ("a", 1), ("b", 0)].map(|(topic, queue)| match engine.topics().get(topic) {
        Some(_) => bodies(engine, topic, queue).len(),
        None => 0,
    })
}

/// The messages after an atomic batch were acknowledged, and so was the batch. One bit of it is
/// wrong in a queue that ends with it.
#[test]
fn damage_in_an_atomic_batch_takes_nothing_from_its_other_queues() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let (begin, _) = followed(&path);
    for (at, bits) in [
        (65, 1),
        (17, 1),
        (500, 1),
        (8, 0x40),
        (10, 0x10),
        (16, 1),
        (0, 0x80),
    ] {
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        let what = format!("byte {at}, {bits:x}");
        fs::create_dir(&first).unwrap();
        torn(&path, &first, None);
        assert!(first.join("forebay.intent").exists());
        let log = first.join("a-0").join(format!("{:020}.log", 0));
        let mut bytes = fs::read(&log).unwrap();
        bytes[begin + at] ^= bits;
        fs::write(&log, bytes).unwrap();
        let engine = writing(&first, &Options::default()).unwrap();
        // It dies again at once.
        fs::create_dir(&second).unwrap();
        torn(&first, &second, None);
        for (engine, path) in [
            (engine, &first),
            (writing(&second, &Options::default()).unwrap(), &second),
        ] {
            assert_eq!(counts(&engine), [1, 4, 1], "{what}");
            let found = engine.report().damage();
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!(
                found[0].path,
                path.join("a-0").join(log.file_name().unwrap()),
                "{what}"
            );
            assert_eq!(found[0].position, begin as u64, "{what}");
            assert_eq!(found[0].lost, [("a".to_owned(), 0, 1)], "{what}");
            assert!(!path.join("forebay.intent").exists(), "{what}");
            assert_eq!(send(&engine, "a", &[(0, b"2")]), [2], "{what}");
            engine.close().unwrap();
        }
        for path in [first, second] {
            fs::remove_dir_all(path).unwrap();
        }
    }
}

/// The same, if the opening fails at any call.
#[test]
fn an_opening_that_fails_takes_nothing_from_the_queues_of_an_atomic_batch() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let (begin, _) = followed(&path);
    for number in 0.. {
        let copy = root.path().join("copy");
        fs::create_dir(&copy).unwrap();
        torn(&path, &copy, None);
        let log = copy.join("a-0").join(format!("{:020}.log", 0));
        let mut bytes = fs::read(&log).unwrap();
        bytes[begin + 500] ^= 1;
        fs::write(&log, bytes).unwrap();
        let calls = AtomicU64::new(0);
        let disk =
            HookedDisk::shared(
                move |_, _| match calls.fetch_add(1, Ordering::Relaxed) == number {
                    true => Err(std::io::Error::from_raw_os_error(libc::EIO)),
                    false => Ok(()),
                },
            );
        let opened = PartitionLog::open(&Machine::stepped(disk), &copy, &Options::default());
        let is_open = opened.is_ok();
        // Without a clean stop: its steps are not driven.
        drop(opened);
        let engine = writing(&copy, &Options::default()).unwrap();
        let what = format!("call {number}, {:?}", engine.report().damage());
        assert_eq!(counts(&engine), [1, 4, 1], "{what}");
        assert_eq!(send(&engine, "a", &[(0, b"2")]), [2], "{what}");
        engine.close().unwrap();
        fs::remove_dir_all(copy).unwrap();
        if is_open {
            assert!(number > 50);
            return;
        }
    }
}

/// The power fails before an atomic batch is durable.
#[test]
fn an_atomic_batch_of_which_a_power_loss_took_a_sector_is_absent_whatever_follows_it() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let (begin, end) = followed(&path);
    let sector = |number: usize| 512 * (begin / 512 + number)..512 * (begin / 512 + number + 1);
    let first = begin..sector(0).end;
    let last = end / 512 * 512..end;
    for (number, lost) in [first, sector(2), last, begin..end].into_iter().enumerate() {
        let copy = root.path().join(format!("copy-{number}"));
        fs::create_dir(&copy).unwrap();
        torn(&path, &copy, None);
        let log = copy.join("a-0").join(format!("{:020}.log", 0));
        let mut bytes = fs::read(&log).unwrap();
        bytes[lost.clone()].fill(0);
        fs::write(&log, bytes).unwrap();
        let engine = writing(&copy, &Options::default()).unwrap();
        assert_eq!(counts(&engine), [1, 1, 0], "{lost:?}");
        assert_eq!(engine.report().damage(), [], "{lost:?}");
        assert_eq!(send(&engine, "a", &[(1, b"1")]), [1], "{lost:?}");
    }
}
