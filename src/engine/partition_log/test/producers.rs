//! What a broker must find of its producers in a partition that Forebay has continued.

use super::golden::golden;
use super::transactions::{ABORT, COMMIT, data, marker};
use super::write::{send, writing};
use super::*;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::disk::RealDisk;
use crate::engine::QueueLogs;
use crate::engine::partition_log::segments::names::{CLEAN, base_of};
use crate::engine::partition_log::segments::snapshot::{self, Producer, Producers, path_at};
use crate::engine::partition_log::write::files::{RECOVERY_POINT, save_checkpoint};
use std::collections::BTreeSet;

const NEW: Producer = Producer {
    epoch: -1,
    sequence: -1,
    offset: -1,
    delta: 0,
    time: 1,
    coordinator: -1,
    open: -1,
};

/// A partition of four messages that a broker has left: two of an idempotent producer, one of an
/// open transaction and one of nobody.
struct Left {
    made: Made,
    producers: Producers,
}

impl Left {
    fn new() -> Left {
        let made = Made::new();
        let idempotent = Spec {
            base: 0,
            times: &[1, 1],
            producer: Some(7),
            sequence: Some((0, 5)),
            ..Spec::default()
        };
        made.segment(0, &[idempotent.bytes(), data(2, 9), batch(3, &[1])]);
        let first = Producer {
            epoch: 0,
            sequence: 6,
            offset: 1,
            delta: 1,
            ..NEW
        };
        let second = Producer {
            offset: 2,
            open: 2,
            ..NEW
        };
        let producers = Producers::from([(7, first), (9, second)]);
        let path = path_at(&made.root.path().join("t-0"), 4);
        fs::write(path, snapshot::bytes_of(&producers)).unwrap();
        fs::write(made.root.path().join(CLEAN), "").unwrap();
        Left { made, producers }
    }

    fn root(&self) -> &Path {
        self.made.root.path()
    }

    fn open(&self, options: Options) -> PartitionLog {
        let options = Options {
            adopt: true,
            ..options
        };
        writing(self.root(), &options).unwrap()
    }
}

fn compacted() -> Options {
    Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            ..Compaction::default()
        },
        ..Options::default()
    }
}

/// The offsets in the names of a partition's files with this ending.
fn named(folder: &Path, ending: &str) -> BTreeSet<u64> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| base_of(name.strip_suffix(ending)?))
        .collect()
}

/// The producers in the snapshot that a broker uses, and its offset. The broker first removes
/// snapshots at offsets where no segment begins, except the newest of these if it is after the last
/// segment's base.
fn accepted(root: &Path) -> Option<(u64, Producers)> {
    let folder = root.join("t-0");
    let bases = named(&folder, ".log");
    let snapshots = named(&folder, ".snapshot");
    let newest_stray = snapshots.difference(&bases).max().copied();
    let stays = |at: &u64| {
        bases.contains(at) || newest_stray == Some(*at) && bases.iter().all(|base| base <= at)
    };
    let offsets: Vec<u64> = snapshots.into_iter().filter(stays).collect();
    snapshot::newest(&RealDisk, &folder, &offsets).unwrap()
}

fn copy_of(root: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("t-0")).unwrap();
    for folder in ["", "t-0"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap();
                fs::copy(&path, copy.path().join(folder).join(name)).unwrap();
            }
        }
    }
    copy
}

/// A broker took the partition for one without producers: it accepted what they sent again, and
/// took the end of an aborted transaction for nothing.
#[test]
fn a_broker_finds_its_producers_after_a_clean_stop() {
    type Act = fn(&PartitionLog);
    let one: Act = |engine| drop(send(engine, "t", &[(0, b"one")]));
    let roll: Act = |engine| assert!(engine.roll().is_ok());
    let compact: Act = |engine| assert!(engine.compact(Some("t"), &mut |_, _| true).is_ok());
    let delete: Act = |engine| {
        let topic = topic(engine, "t");
        let end = engine.bounds(&topic, 0).unwrap().unwrap().end;
        let deleted = engine.delete_before(&topic, &[(0, end)], &mut || true);
        deleted.unwrap();
    };
    let shared = || Options {
        mode: Mode::Share,
        ..Options::default()
    };
    let cases: [(Options, &[Act]); 9] = [
        (Options::default(), &[]),
        (Options::default(), &[one]),
        (Options::default(), &[roll]),
        (Options::default(), &[one, roll]),
        (Options::default(), &[one, roll, one]),
        (Options::default(), &[one, roll, one, roll, one, delete]),
        (Options::default(), &[roll, one, delete, roll]),
        (compacted(), &[one, roll, one, roll, one, roll, compact]),
        (shared(), &[one, roll, one]),
    ];
    for (number, (options, acts)) in cases.into_iter().enumerate() {
        let left = Left::new();
        for life in 0..3 {
            let engine = left.open(options.clone());
            acts.iter().for_each(|act| act(&engine));
            let end = engine.bounds(&topic(&engine, "t"), 0).unwrap().unwrap().end;
            engine.close().unwrap();
            assert!(left.root().join(CLEAN).exists());
            let found = accepted(left.root());
            let expected = Some((end, left.producers.clone()));
            assert_eq!(found, expected, "case {number}, life {life}");
        }
        let folder = left.root().join("t-0");
        let (bases, all) = (named(&folder, ".log"), named(&folder, ".snapshot"));
        assert!(all.difference(&bases).count() <= 2, "case {number}");
    }
}

/// The batches of the producers are gone, if they can be deleted, and no segment begins at the end
/// that the broker left.
#[test]
fn a_broker_finds_its_producers_after_a_crash() {
    for mode in [Mode::Append, Mode::Share] {
        let left = Left::new();
        let options = || Options {
            mode,
            ..Options::default()
        };
        let engine = left.open(options());
        send(&engine, "t", &[(0, b"one")]);
        engine.roll().unwrap();
        send(&engine, "t", &[(0, b"two")]);
        if mode == Mode::Append {
            let deleted = engine.delete_before(&topic(&engine, "t"), &[(0, 5)], &mut || true);
            deleted.unwrap();
        }
        engine.flush(&mut || true).unwrap();
        let copy = copy_of(left.root());
        engine.close().unwrap();
        assert!(!copy.path().join(CLEAN).exists());
        let expected = left.producers.clone();
        assert_eq!(accepted(copy.path()), Some((5, expected.clone())));
        writing(copy.path(), &options()).unwrap().close().unwrap();
        assert_eq!(accepted(copy.path()), Some((6, expected)));
    }
}

/// What a broker has recorded with its last segment and before, or what a crash has left of it.
#[test]
fn producers_are_found_in_the_batches_as_the_broker_has_them() {
    for (clean, gone) in [
        (true, &[1012][..]),
        (false, &[1012]),
        (false, &[955, 1012]),
        (false, &[477, 955, 1012]),
    ] {
        let root = golden(&["txn-0"]);
        let folder = root.path().join("txn-0");
        let expected = snapshot::newest(&RealDisk, &folder, &[1012]).unwrap();
        assert!(expected.as_ref().is_some_and(|(_, all)| all.len() > 1));
        for at in gone {
            fs::remove_file(path_at(&folder, *at)).unwrap();
        }
        if clean {
            fs::write(root.path().join(CLEAN), "").unwrap();
        }
        let options = Options {
            adopt: true,
            ..Options::default()
        };
        writing(root.path(), &options).unwrap().close().unwrap();
        let found = snapshot::newest(&RealDisk, &folder, &[1012]).unwrap();
        assert_eq!(found, expected, "without {gone:?}");
    }
}

#[test]
fn the_last_batch_of_a_producer_counts_and_its_sequence_begins_again_at_zero() {
    let made = Made::new();
    let of = |base, epoch, sequence, attributes| {
        let spec = Spec {
            base,
            times: &[3, 4, 2],
            producer: Some(7),
            sequence: Some((epoch, sequence)),
            attributes,
            ..Spec::default()
        };
        spec.bytes()
    };
    let batches = [
        of(0, 1, 8, TRANSACTIONAL),
        of(3, 1, i32::MAX, TRANSACTIONAL),
        data(6, 8),
        marker(7, 8, COMMIT),
        marker(8, 9, ABORT),
        of(9, 2, 0, 0),
        batch(12, &[1]),
    ];
    made.segment(0, &batches[..2]);
    made.segment(6, &batches[2..]);
    let root = made.root.path();
    let newest = || snapshot::newest(&RealDisk, &root.join("t-0"), &[13]).unwrap();
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    writing(root, &options).unwrap().close().unwrap();
    let first = Producer {
        epoch: 2,
        sequence: 2,
        offset: 11,
        delta: 2,
        time: 4,
        open: 0,
        ..NEW
    };
    let second = Producer { offset: 6, ..NEW };
    let expected = Producers::from([(7, first), (8, second), (9, NEW)]);
    assert_eq!(newest(), Some((13, expected)));
    // Without the later batches, the sequence goes on at 0 within epoch 1.
    made.segment(6, &[]);
    fs::remove_file(root.join(CLEAN)).unwrap();
    fs::remove_file(root.join(RECOVERY_POINT)).unwrap();
    writing(root, &options).unwrap().close().unwrap();
    let found = snapshot::newest(&RealDisk, &root.join("t-0"), &[6]).unwrap();
    let wrapped = Producer {
        epoch: 1,
        sequence: 1,
        offset: 5,
        ..first
    };
    assert_eq!(found, Some((6, Producers::from([(7, wrapped)]))));
}

/// A broker served a directory that Forebay had taken over before, and died.
#[test]
fn what_a_broker_has_written_since_is_recovered_like_what_it_wrote_before() {
    let root = golden(&["txn-0"]);
    let folder = root.path().join("txn-0");
    let index = folder.join(format!("{:020}.txnindex", 955));
    let expected = fs::read(&index).unwrap();
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    writing(root.path(), &options).unwrap().close().unwrap();
    for has_snapshots in [true, false] {
        fs::remove_file(root.path().join(CLEAN)).unwrap();
        save_checkpoint(&RealDisk, root.path(), RECOVERY_POINT, &[("txn", 0, 0)]).unwrap();
        fs::write(&index, []).unwrap();
        fs::write(folder.join("leader-epoch-checkpoint"), "0\n0\n").unwrap();
        if !has_snapshots {
            for at in named(&folder, ".snapshot") {
                fs::remove_file(path_at(&folder, at)).unwrap();
            }
        }
        writing(root.path(), &Options::default())
            .unwrap()
            .close()
            .unwrap();
        assert_eq!(fs::read(&index).unwrap(), expected);
        let epochs = fs::read_to_string(folder.join("leader-epoch-checkpoint")).unwrap();
        assert_eq!(epochs, "0\n1\n3 0\n");
    }
}

#[test]
fn a_log_without_producers_gets_no_snapshots() {
    let root = tempfile::tempdir().unwrap();
    for mode in [Mode::Append, Mode::Share] {
        let options = Options {
            mode,
            ..Options::default()
        };
        let engine = writing(root.path(), &options).unwrap();
        send(&engine, "t", &[(0, b"one")]);
        engine.roll().unwrap();
        send(&engine, "t", &[(0, b"two")]);
        engine.close().unwrap();
        assert!(named(&root.path().join("t-0"), ".snapshot").is_empty());
    }
}
