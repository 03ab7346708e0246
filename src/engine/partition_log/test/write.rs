//! Logs that are written: what their files hold, and what is read from them.

use super::super::partition::Partition;
use super::*;
use crate::disk::{Call, FileSystem, HookedDisk, RealDisk};
use crate::engine::{Appended, Atomicity, DamageKind, Durability, QueueLogs};
use crate::error::Error;
use crate::machine::Drive;
use crate::options::{Compression, TimestampType};
use crate::plant::{Bug, plant};
use crate::record::{Batch, Draft};
use crate::sync::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub(super) fn writing(path: &Path, options: &Options) -> Result<PartitionLog> {
    PartitionLog::open(&Machine::real(), path, options)
}

/// Sends one batch, row by row to these queues.
pub(super) fn send(engine: &PartitionLog, topic: &str, rows: &[(u32, &[u8])]) -> Vec<u64> {
    let topic = engine.topic_for_append(topic).unwrap();
    let mut batch = engine.form().batch();
    for (queue, body) in rows {
        let draft = Draft {
            body,
            keys: &["a", "b", "c"],
            tags: Some("paid"),
            properties: &[("region", "eu")],
            ..Draft::default()
        };
        batch.push(&topic.name, *queue, &draft, 1000).unwrap();
    }
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Written);
    sent.unwrap()
        .rows
        .iter()
        .map(|place| place.offset)
        .collect()
}

pub(super) fn bodies(engine: &PartitionLog, topic: &str, queue: u32) -> Vec<Vec<u8>> {
    let found = messages_of(engine, (topic, queue), 100);
    let bodies = found.iter().map(|message| message.body().unwrap());
    bodies.map(Cow::into_owned).collect()
}

pub(super) fn files(root: &Path, ending: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in fs::read_dir(root).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            if path.to_str().unwrap().ends_with(ending) {
                let name = path.strip_prefix(root).unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_message_that_readers_would_take_for_damage_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let engine = writing(&root.path().join("store"), &Options::default()).unwrap();
    let topic = engine.topic_for_append("t").unwrap();
    let value = "v".repeat(128 << 20);
    let draft = Draft {
        properties: &[("name", &value)],
        ..Draft::default()
    };
    let mut batch = engine.form().batch();
    let refused = batch.push(&topic.name, 0, &draft, 1000);
    let limit = 128 << 20;
    assert!(matches!(refused, Err(Error::TooLarge { limit: at, .. }) if at == limit));
    assert_eq!(batch.encoded_len(), 0);
}

#[test]
fn what_is_sent_can_be_read_at_once_and_after_opening_again() {
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for compression in codecs {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        let options = Options {
            compression: Some(compression),
            segment_bytes: Some(1 << 16),
            default_queues: Some(2),
            ..Options::default()
        };
        let engine = writing(&path, &options).unwrap();
        let long = [7; 40_000];
        for round in 0..3 {
            let rows: [(u32, &[u8]); 4] = [(0, b"one"), (1, b"two"), (0, &long), (0, &long)];
            let offsets = send(&engine, "orders", &rows);
            assert_eq!(offsets, [3 * round, round, 3 * round + 1, 3 * round + 2]);
        }
        let check = |engine: &PartitionLog| {
            let all = bodies(engine, "orders", 0);
            assert_eq!(all.len(), 9);
            assert_eq!((&*all[3], &*all[4]), (&b"one"[..], &long[..]));
            assert_eq!(bodies(engine, "orders", 1), vec![b"two"; 3]);
            let message = (engine as &dyn Engine).message_with_id("orders-1@2");
            let message = message.unwrap();
            let record = message.record();
            assert_eq!(record.keys(), ["a", "b", "c"]);
            assert_eq!(record.tags().as_deref(), Some("paid"));
            assert_eq!(record.headers(), [("region".into(), Some(&b"eu"[..]))]);
            assert_eq!(record.store_timestamp(), 1000);
            let verified = engine.verify(&mut |_, _| true).unwrap();
            assert_eq!((verified.records, verified.damage), (12, Vec::new()));
        };
        check(&engine);
        check(&open(&path, Isolation::ReadUncommitted).unwrap());
        engine.close().unwrap();
        check(&open(&path, Isolation::ReadUncommitted).unwrap());
        let again = writing(&path, &options).unwrap();
        assert!(again.report().recovery().clean);
        check(&again);
        assert_eq!(send(&again, "orders", &[(1, b"more")]), [3]);
    }
}

#[test]
fn the_indexes_of_a_stop_are_those_that_recovery_rebuilds() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        segment_bytes: Some(1 << 16),
        default_queues: Some(1),
        ..Options::default()
    };
    let engine = writing(&path, &options).unwrap();
    for number in 0..700_u32 {
        send(
            &engine,
            "orders",
            &[(0, &number.to_be_bytes()), (0, &[1; 200])],
        );
    }
    engine.close().unwrap();
    let known = [files(&path, ".index"), files(&path, ".timeindex")];
    assert!(known[0].len() > 2);
    fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
    fs::remove_file(path.join("recovery-point-offset-checkpoint")).unwrap();
    for path in known.iter().flat_map(BTreeMap::keys) {
        fs::write(root.path().join("store").join(path), b"nonsense").unwrap();
    }
    let engine = writing(&path, &options).unwrap();
    assert!(!engine.report().recovery().clean);
    assert_eq!(bodies(&engine, "orders", 0).len(), 1400);
    engine.close().unwrap();
    let found = [files(&path, ".index"), files(&path, ".timeindex")];
    assert_eq!(found, known);
}

/// If the power fails before anything in a topic is durable, any of its folders may be missing.
#[test]
fn a_queue_whose_folder_is_missing_is_created_when_it_is_sent_to() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        default_queues: Some(3),
        ..Options::default()
    };
    let engine = writing(&path, &options).unwrap();
    send(&engine, "orders", &[(0, b"one"), (2, b"two")]);
    let id = fs::read(path.join("orders-2/partition.metadata")).unwrap();
    engine.close().unwrap();
    fs::remove_dir_all(path.join("orders-1")).unwrap();
    let engine = writing(&path, &options).unwrap();
    let topic = engine.topics().get("orders").unwrap();
    assert_eq!(engine.queues(&topic), [0, 2]);
    assert_eq!(
        send(&engine, "orders", &[(1, b"three"), (2, b"four")]),
        [0, 1]
    );
    assert_eq!(bodies(&engine, "orders", 1), [b"three"]);
    assert_eq!(
        fs::read(path.join("orders-1/partition.metadata")).unwrap(),
        id
    );
    let mut batch = engine.form().batch();
    batch.push("orders", 3, &Draft::default(), 1000).unwrap();
    let batches = &mut [(&*topic, &mut batch)];
    let refused = engine.append(batches, Atomicity::Rows, Durability::Written);
    assert!(matches!(refused, Err(Error::UnknownQueue { queue: 3, .. })));
    engine.close().unwrap();
    let engine = writing(&path, &options).unwrap();
    assert!(engine.report().recovery().clean);
    assert_eq!(engine.queues(&topic), [0, 1, 2]);
}

/// What a power failure may leave of files that were never synced.
#[test]
fn torn_small_files_of_a_partition_are_written_again() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        default_queues: Some(2),
        ..Options::default()
    };
    let file = |queue: u32, name: &str| root.path().join(format!("orders-{queue}/{name}"));
    let engine = writing(root.path(), &options).unwrap();
    send(&engine, "orders", &[(0, b"one"), (1, b"two")]);
    engine.close().unwrap();
    let whole = fs::read(file(0, "partition.metadata")).unwrap();
    assert_eq!(whole.len(), 43);
    let nul = vec![0; whole.len()];
    for torn in [&whole[..0], &whole[..9], &whole[..42], &nul] {
        for queue in 0..2 {
            fs::write(file(queue, "partition.metadata"), torn).unwrap();
        }
        fs::write(file(1, "leader-epoch-checkpoint"), torn).unwrap();
        let engine = writing(root.path(), &options).unwrap();
        send(&engine, "orders", &[(0, b"one"), (1, b"two")]);
        for queue in 0..2 {
            assert_eq!(fs::read(file(queue, "partition.metadata")).unwrap(), whole);
        }
        let epochs = fs::read_to_string(file(1, "leader-epoch-checkpoint")).unwrap();
        // The offset where the first batch of the epoch begins.
        assert_eq!(epochs, "0\n1\n0 0\n");
        engine.close().unwrap();
    }
}

#[test]
fn each_file_is_synced_where_that_of_the_file_system_may_hide_errors() {
    const QUEUES: u32 = 4;
    for is_hidden in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let synced: Arc<Mutex<BTreeSet<PathBuf>>> = Arc::default();
        let seen = Arc::clone(&synced);
        let disk = HookedDisk::shared(move |call, path| {
            match call {
                Call::Volume if is_hidden => return Err(ErrorKind::Unsupported.into()),
                Call::Fsync | Call::SyncRange => drop(seen.lock().insert(path.to_owned())),
                _ => {}
            }
            Ok(())
        });
        let machine = Machine {
            disk,
            ..Machine::real()
        };
        let options = Options {
            default_queues: Some(QUEUES),
            ..Options::default()
        };
        let engine = PartitionLog::open(&machine, root.path(), &options).unwrap();
        let rows = [0, 1, 2, 3].map(|queue| (queue, &b"one"[..]));
        send(&engine, "orders", &rows);
        engine.flush(&mut || true).unwrap();
        let is_whole = !is_hidden && RealDisk.volume(root.path()).unwrap().is_some();
        let has_synced = |path: &str| synced.lock().contains(&root.path().join(path));
        for queue in 0..QUEUES {
            for name in ["", "00000000000000000000.log", "partition.metadata"] {
                let path = format!("orders-{queue}/{name}");
                assert_eq!(has_synced(&path), !is_whole, "{path}");
            }
        }
        engine.close().unwrap();
    }
}

#[test]
fn a_topic_is_not_sent_to_while_it_is_being_created() {
    /// A send that does not wait has found the topic by then.
    const ENOUGH: Duration = Duration::from_millis(100);
    let root = tempfile::tempdir().unwrap();
    let engine = writing(root.path(), &Options::default()).unwrap();
    thread::scope(|scope| {
        let (found, has_found) = mpsc::channel();
        let mut found = Some(found);
        let add = |topic: &Arc<Topic>, queue, ends| {
            let partition = Arc::new(Partition::written(&topic.name, queue, ends));
            let mut partitions = engine.partitions.write();
            partitions.insert((topic.id, queue), partition);
            drop(partitions);
            if let Some(found) = found.take() {
                let engine = &engine;
                scope.spawn(move || {
                    let topic = engine.topic_for_append("orders").unwrap();
                    found.send(topic.write_queues()).unwrap();
                });
                assert!(has_found.recv_timeout(ENOUGH).is_err(), "it did not wait");
            }
        };
        let writer = engine.writer().unwrap();
        let created = writer.create(&engine.topics, "orders", Some(3), add);
        assert_eq!(created.unwrap().write_queues(), 3);
        assert_eq!(has_found.recv().unwrap(), 3);
    });
}

/// Another thread that finds a topic may send to any of its queues.
#[test]
fn a_topic_is_seen_with_all_its_queues_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let engine = writing(root.path(), &Options::default()).unwrap();
    let queues = || engine.topics.get("orders").map(|it| it.write_queues());
    let writer = engine.writer().unwrap();
    for (before, after, new) in [(None, 3, 3), (Some(3), 5, 2)] {
        let mut made = 0;
        let add = |topic: &Arc<Topic>, queue, ends| {
            assert_eq!(queues(), before);
            engine.add(topic, queue, ends);
            made += 1;
        };
        let created = writer.create(&engine.topics, "orders", Some(after), add);
        assert_eq!(created.unwrap().write_queues(), after);
        assert_eq!((queues(), made), (Some(after), new));
    }
}

#[test]
fn a_topic_of_another_process_is_seen_with_all_its_queues_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        mode: Mode::Share,
        ..Options::default()
    };
    let open = || PartitionLog::open(&Machine::real(), root.path(), &options).unwrap();
    let (first, second) = (open(), open());
    let writer = second.writer().unwrap();
    let queues = || second.topics.get("orders").map(|it| it.write_queues());
    for (before, after, new) in [(None, 3, 3), (Some(3), 5, 2)] {
        let created = first.create_topic("orders", after, Durability::Written);
        assert_eq!(created.unwrap().write_queues(), after);
        let mut made = 0;
        let mut add = |topic: &Arc<Topic>, queue, ends| {
            assert_eq!(queues(), before);
            // A thread that finds nothing lacking expects to find the topic.
            assert!(writer.parts.lacks());
            second.add(topic, queue, ends);
            made += 1;
        };
        writer.adopt(&second.topics, &mut add).unwrap();
        assert!(!writer.parts.lacks());
        assert_eq!((queues(), made), (Some(after), new));
    }
}

#[test]
fn damage_below_the_recovery_point_is_kept_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        default_queues: Some(1),
        ..Options::default()
    };
    let engine = writing(&path, &options).unwrap();
    for number in 0..10_u8 {
        send(&engine, "orders", &[(0, &[number; 300])]);
    }
    engine.close().unwrap();
    let log = path.join("orders-0/00000000000000000000.log");
    let mut bytes = fs::read(&log).unwrap();
    let (middle, end) = (bytes.len() / 2 - 1, bytes.len() - 1);
    bytes[middle] ^= 1;
    bytes[end] ^= 1;
    fs::write(&log, &bytes).unwrap();
    fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
    let engine = writing(&path, &options).unwrap();
    assert_eq!(engine.report().damage().len(), 2);
    assert_eq!(fs::read(&log).unwrap(), bytes);
    let topic = engine.topics().get("orders").unwrap();
    assert_eq!(engine.bounds(&topic, 0).unwrap(), Some(0..10));
    assert_eq!(send(&engine, "orders", &[(0, b"more")]), [10]);
    let all = bodies(&engine, "orders", 0);
    assert_eq!((all.len(), &*all[8]), (9, &b"more"[..]));
}

#[test]
fn what_a_partition_log_cannot_hold_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        segment_bytes: Some(4096),
        default_queues: Some(2),
        message_timestamp_type: Some(TimestampType::LogAppendTime),
        ..Options::default()
    };
    let engine = writing(&path, &options).unwrap();
    for name in ["", "..", "a b", "%RETRY%g", &"x".repeat(250)] {
        let refused = engine.topic_for_append(name).err();
        assert!(
            matches!(refused, Some(Error::InvalidTopic { .. })),
            "{name}"
        );
    }
    let topic = engine.topic_for_append("a.b").unwrap();
    let mut batch = engine.form().batch();
    let mut push = |queue, body: &[u8]| {
        let draft = Draft {
            body,
            ..Draft::default()
        };
        batch.push("a.b", queue, &draft, 1000)
    };
    assert!(matches!(push(0, &[0; 4090]), Err(Error::TooLarge { .. })));
    push(0, b"0").unwrap();
    push(1, b"1").unwrap();
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Flushed);
    assert!(sent.unwrap().durable);
    let message = engine.get(&topic, 1, 0).unwrap().unwrap();
    assert!(message.record().has_append_time());
    assert!(message.record().store_timestamp() > 1000);
    let own = std::process::id();
    let refused = writing(&path, &options).err();
    assert!(
        matches!(&refused, Some(Error::Locked { pid: Some(pid), .. }) if *pid == own),
        "{refused:?}"
    );
}

#[test]
fn a_topic_whose_creation_was_interrupted_gets_all_its_queues() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        default_queues: Some(3),
        ..Options::default()
    };
    let engine = writing(root.path(), &options).unwrap();
    send(&engine, "orders", &[(1, b"one")]);
    engine.close().unwrap();
    // The last folder is made first.
    fs::create_dir(root.path().join("bills-2")).unwrap();
    let engine = writing(root.path(), &options).unwrap();
    assert_eq!(send(&engine, "bills", &[(0, b"one"), (2, b"two")]), [0, 0]);
    let topic = engine.topics().get("bills").unwrap();
    assert_eq!(engine.queues(&topic), [0, 1, 2]);
    assert_eq!(send(&engine, "orders", &[(1, b"two")]), [1]);
}

#[test]
fn zeros_after_a_segment_whose_writer_died_are_no_damage() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: Some(4096),
        default_queues: Some(1),
        ..Options::default()
    };
    let engine = writing(root.path(), &options).unwrap();
    send(&engine, "t", &[(0, &[7; 2000])]);
    send(&engine, "t", &[(0, &[7; 3000])]);
    engine.close().unwrap();
    let path = root.path().join("t-0/00000000000000000000.log");
    let log = fs::OpenOptions::new().write(true).open(path);
    log.unwrap().set_len(4096).unwrap();
    let reader = open(root.path(), Isolation::ReadUncommitted).unwrap();
    let verified = reader.verify(&mut |_, _| true).unwrap();
    assert_eq!((verified.records, verified.damage), (2, Vec::new()));
}

#[test]
fn indexes_of_a_dead_writer_are_made_again() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        index_interval_bytes: Some(0),
        default_queues: Some(1),
        ..Options::default()
    };
    let engine = writing(root.path(), &options).unwrap();
    for _ in 0..9 {
        send(&engine, "t", &[(0, b"one")]);
    }
    engine.close().unwrap();
    let before = files(root.path(), "index");
    let recovered = |bug| {
        fs::remove_file(root.path().join(".kafka_cleanshutdown")).unwrap();
        for (path, bytes) in &before {
            fs::write(root.path().join(path), vec![0; bytes.len()]).unwrap();
        }
        plant(bug);
        let opened = writing(root.path(), &options);
        plant(None);
        opened.unwrap().close().unwrap();
        files(root.path(), "index")
    };
    assert_eq!(recovered(None), before);
    assert_ne!(recovered(Some(Bug::TrustSegmentIndex)), before);
}

#[test]
fn options_without_a_meaning_are_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    type Set = fn(&mut Options);
    let set: [(&str, Set); 8] = [
        ("warm_up", |options| options.warm_up = true),
        ("lock_memory", |options| options.lock_memory = true),
        ("read_ahead", |options| options.read_ahead = false),
        ("transient_pool", |options| options.transient_pool = 1),
        ("unique_ids", |options| options.unique_ids = Some(true)),
        ("checksum", |options| options.checksum = Some(false)),
        ("disk_warning_ratio", |options| {
            options.disk_warning_ratio = Some(0.5)
        }),
        ("store_host", |options| {
            options.store_host = Some(([10, 0, 0, 1], 0).into())
        }),
    ];
    for (meant, set) in set {
        let mut options = Options::default();
        set(&mut options);
        let refused = writing(&path, &options).err();
        assert!(
            matches!(&refused, Some(Error::InvalidOption { name, .. }) if name == meant),
            "{meant}: {refused:?}"
        );
    }
    assert!(!path.exists());
}

#[test]
fn a_queue_is_ready_once_its_segment_has_room() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: Some(1 << 16),
        default_queues: Some(2),
        ..Options::default()
    };
    let engine = writing(&root.path().join("store"), &options).unwrap();
    let topic = engine.topic_for_append("t").unwrap();
    let ready = |queue, len| engine.is_ready_for(&topic, queue, len);
    assert!(!ready(Some(0), 10));
    send(&engine, "t", &[(0, b"x")]);
    assert!(ready(Some(0), 10) && !ready(Some(1), 10) && !ready(None, 10));
    assert!(!ready(Some(0), 1 << 16) && !ready(Some(2), 10));
    send(&engine, "t", &[(1, b"x")]);
    assert!(ready(None, 10));
    assert!(engine.roll().unwrap());
    assert!(!ready(Some(0), 10));
    send(&engine, "t", &[(0, b"x")]);
    assert!(ready(Some(0), 10));
    engine.close().unwrap();
    let linger = Options {
        linger: Duration::from_secs(3600),
        ..options.clone()
    };
    let packed = Options {
        compression: Some(Compression::Lz4),
        ..options
    };
    for options in [linger, packed] {
        let engine = writing(&root.path().join("store"), &options).unwrap();
        let topic = engine.topic_for_append("t").unwrap();
        send(&engine, "t", &[(0, b"x")]);
        assert!(!engine.is_ready_for(&topic, Some(0), 10));
        engine.close().unwrap();
    }
}

/// Appends one row to each of these queues of two topics, all or nothing.
pub(super) fn send_whole(engine: &PartitionLog, rows: &[(&str, u32, &[u8])]) -> Result<Appended> {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.0).collect();
    let mut encoded = Vec::new();
    for name in names {
        let topic = engine.topic_for_append(name)?;
        let mut batch = engine.form().batch();
        for (_, queue, body) in rows.iter().filter(|row| row.0 == name) {
            let draft = Draft {
                body,
                ..Draft::default()
            };
            batch.push(name, *queue, &draft, 1000)?;
        }
        encoded.push((topic, batch));
    }
    let batches = encoded.iter_mut().map(|(topic, batch)| (&**topic, batch));
    let mut batches: Vec<(&Topic, &mut Batch)> = batches.collect();
    engine.append(&mut batches, Atomicity::Whole, Durability::Written)
}

/// A copy of a store as a crash leaves it, in which a batch of one partition is torn.
pub(super) fn torn(from: &Path, to: &Path, torn: Option<&str>) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if !entry.file_type().unwrap().is_dir() {
            fs::copy(entry.path(), to).unwrap();
            continue;
        }
        fs::create_dir_all(&to).unwrap();
        for file in fs::read_dir(entry.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
    if let Some(name) = torn {
        let log = to.join(name).join(format!("{:020}.log", 0));
        let mut bytes = fs::read(&log).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[last - 3..=last].fill(0);
        fs::write(&log, bytes).unwrap();
    }
}

#[test]
fn an_atomic_batch_of_several_partitions_is_whole_or_absent_after_a_crash() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        default_queues: Some(2),
        segment_bytes: Some(4096),
        ..Options::default()
    };
    // Nothing changes the files while they are copied.
    let machine = Machine {
        drive: Drive::Steps,
        ..Machine::real()
    };
    let engine = PartitionLog::open(&machine, &path, &options).unwrap();
    send(&engine, "a", &[(0, b"before"), (1, b"before")]);
    engine.flush(&mut || true).unwrap();
    send_whole(&engine, &[("a", 0, b"1"), ("a", 1, b"1"), ("b", 0, b"1")]).unwrap();
    let intent = path.join("forebay.intent");
    assert!(intent.exists());
    let found = |engine: &PartitionLog| {
        let queues = [("a", 0), ("a", 1), ("b", 0)];
        queues.map(|(topic, queue)| match engine.topics().get(topic) {
            Some(_) => bodies(engine, topic, queue).len(),
            None => 0,
        })
    };
    for (number, (name, expected)) in [
        (None, [2, 2, 1]),
        (Some("a-0"), [1, 1, 0]),
        (Some("a-1"), [1, 1, 0]),
        (Some("b-0"), [1, 1, 0]),
    ]
    .into_iter()
    .enumerate()
    {
        let copy = root.path().join(format!("copy-{number}"));
        fs::create_dir(&copy).unwrap();
        torn(&path, &copy, name);
        let again = writing(&copy, &options).unwrap();
        assert_eq!(found(&again), expected, "{name:?}");
        assert!(again.report().damage().is_empty(), "{name:?}");
        assert!(!copy.join("forebay.intent").exists(), "{name:?}");
        // The offsets are used again, without gaps.
        assert_eq!(send(&again, "a", &[(1, b"2")]), [expected[1] as u64]);
        again.close().unwrap();
    }
    // The next one waits until this one is durable, and a clean stop leaves no intent.
    let second = send_whole(&engine, &[("a", 0, b"2"), ("b", 1, b"2")]).unwrap();
    assert!(engine.durable_position() < second.end);
    assert_eq!(found(&engine), [3, 2, 1]);
    engine.close().unwrap();
    assert!(!intent.exists());
    let copy = root.path().join("closed");
    fs::create_dir(&copy).unwrap();
    torn(&path, &copy, None);
    assert_eq!(found(&writing(&copy, &options).unwrap()), [3, 2, 1]);
}

#[test]
fn an_intent_whose_batch_was_not_appended_takes_nothing_away() {
    let root = tempfile::tempdir().unwrap();
    let (path, copy) = (root.path().join("store"), root.path().join("copy"));
    let options = Options {
        default_queues: Some(2),
        segment_bytes: Some(4096),
        ..Options::default()
    };
    let fails = Arc::new(AtomicBool::new(false));
    let (hook, of) = (Arc::clone(&fails), path.clone());
    let disk = HookedDisk::shared(move |call, path| {
        // The directory cannot be opened for the sync that follows the renaming of a file.
        match call == Call::Sync && path == of && hook.load(Ordering::Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(libc::EMFILE)),
            false => Ok(()),
        }
    });
    let engine = PartitionLog::open(&Machine::stepped(disk), &path, &options).unwrap();
    send(&engine, "a", &[(0, b"1"), (1, b"1")]);
    engine.flush(&mut || true).unwrap();
    fails.store(true, Ordering::Relaxed);
    let refused = send_whole(&engine, &[("a", 0, b"2"), ("a", 1, b"2")]);
    assert!(
        matches!(refused, Err(Error::Io { .. })),
        "{:?}",
        refused.err()
    );
    assert!(send_whole(&engine, &[("a", 1, b"2")]).is_err());
    fails.store(false, Ordering::Relaxed);
    send(&engine, "a", &[(0, b"2")]);
    engine.flush(&mut || true).unwrap();
    fs::create_dir(&copy).unwrap();
    torn(&path, &copy, None);
    let again = writing(&copy, &options).unwrap();
    assert_eq!(bodies(&again, "a", 0), [b"1", b"2"]);
    assert_eq!(bodies(&again, "a", 1), [b"1"]);
}

#[test]
fn a_damaged_intent_is_reported_and_takes_nothing_away() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        segment_bytes: Some(4096),
        ..Options::default()
    };
    let machine = Machine {
        drive: Drive::Steps,
        ..Machine::real()
    };
    let engine = PartitionLog::open(&machine, &path, &options).unwrap();
    send(&engine, "a", &[(0, b"1"), (1, b"1")]);
    for flawed in [
        "{",
        r#"{"version": 2, "partitions": []}"#,
        r#"{"version": 1, "partitions": [["a", 0, 5, 5]]}"#,
        r#"{"version": 1, "partitions": [["a", -1, 0, 5]]}"#,
    ] {
        let to = root.path().join("flawed");
        fs::create_dir(&to).unwrap();
        torn(&path, &to, None);
        fs::write(to.join("forebay.intent"), flawed).unwrap();
        let again = writing(&to, &options).unwrap();
        assert_eq!(bodies(&again, "a", 0), [b"1"], "{flawed}");
        let damage = again.report().damage();
        assert_eq!(damage[0].kind, DamageKind::Table, "{flawed}");
        again.close().unwrap();
        fs::remove_dir_all(&to).unwrap();
    }
}
