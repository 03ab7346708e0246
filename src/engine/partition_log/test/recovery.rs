//! What an opening for writing keeps of a partition whose writer died, when a file was damaged.

use super::write::{send, writing};
use super::*;
use crate::engine::{Damage, DamageKind, Durability};
use crate::plant::{Bug, plant};
use std::time::{Duration, SystemTime};

const POINTS: &str = "recovery-point-offset-checkpoint";

/// Opens a directory as the store of a writer that died, with this checkpoint.
fn recover(made: &Made, checkpoint: Option<&str>) -> PartitionLog {
    fs::write(made.root.path().join("forebay.partitionlog"), "7\n").unwrap();
    let path = made.root.path().join(POINTS);
    match checkpoint {
        Some(text) => fs::write(path, text).unwrap(),
        None => drop(fs::remove_file(path)),
    }
    writing(made.root.path(), &Options::default()).unwrap()
}

/// A checkpoint with the recovery point of the partition.
fn point(offset: u64) -> String {
    format!("0\n1\nt 0 {offset}\n")
}

/// Damage of the log, without that of tables.
fn damage(engine: &PartitionLog) -> Vec<Damage> {
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
                // Readers of the files, while they are as recovery leaves them.
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

/// Compaction leaves gaps between offsets. Nothing else said that they are not the end.
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
    // What was durable was not lost with the power, nor is it known where nothing says that.
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

/// Retention goes by these times where messages have none.
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
        // More than are synced one by one, and some.
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
