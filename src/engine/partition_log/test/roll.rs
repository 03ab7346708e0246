//! What a roll makes sure of before the next append, which may find its place ready.

use super::golden::golden;
use super::write::{send, writing};
use super::*;
use crate::engine::{Atomicity, Durability, QueueLogs};
use crate::record::Draft;
use crate::record::kafka::Header;

const TORN: [&str; 2] = ["partition.metadata", "leader-epoch-checkpoint"];

fn opened(root: &Path, mode: Mode) -> PartitionLog {
    let options = Options {
        mode,
        adopt: true,
        ..Options::default()
    };
    writing(root, &options).unwrap()
}

/// The broker's epoch is 3. The first batches after a roll had epoch 0: a broker that serves the
/// partition again would cut its log by them.
#[test]
fn batches_after_a_roll_have_the_epoch_of_the_leader() {
    for mode in [Mode::Append, Mode::Share] {
        let root = golden(&["none-0"]);
        let engine = opened(root.path(), mode);
        assert!(engine.roll().unwrap());
        let sent = send(&engine, "none", &[(0, b"one")]);
        engine.close().unwrap();
        let log = root.path().join(format!("none-0/{:020}.log", sent[0]));
        let header = Header::parse(&fs::read(log).unwrap()).unwrap();
        assert_eq!(header.first_offset(), sent[0]);
        assert_eq!(header.leader_epoch, 3, "{mode:?}");
    }
}

/// A power loss took the small files, which the sync after a roll stores in a store that processes
/// share.
#[test]
fn a_roll_makes_small_files_that_are_missing() {
    for mode in [Mode::Append, Mode::Share] {
        let root = tempfile::tempdir().unwrap();
        let options = Options {
            mode,
            ..Options::default()
        };
        let file = |name: &str| root.path().join("orders-0").join(name);
        let engine = writing(root.path(), &options).unwrap();
        send(&engine, "orders", &[(0, b"one")]);
        engine.close().unwrap();
        let known = TORN.map(|name| fs::read(file(name)).unwrap());
        for name in TORN {
            fs::remove_file(file(name)).unwrap();
        }
        let engine = writing(root.path(), &options).unwrap();
        assert!(engine.roll().unwrap());
        assert_eq!(TORN.map(|name| fs::read(file(name)).unwrap()), known);
        assert_eq!(send(&engine, "orders", &[(0, b"two")]), [1]);
        engine.flush(&mut || true).unwrap();
        engine.close().unwrap();
    }
}

/// Base offsets of the segments of a queue.
fn bases(folder: &Path) -> Vec<u64> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let bases = names.filter_map(|name| name.strip_suffix(".log")?.parse().ok());
    let mut bases: Vec<u64> = bases.collect();
    bases.sort_unstable();
    bases
}

/// As Kafka ends them: its index of times is full with one entry less than it has room for, and
/// gets one only for a later time. The first batch of a segment has none.
#[test]
fn a_segment_ends_when_an_index_is_full() {
    // Four entries of offsets, or three of times.
    for (step_ms, batches, expected) in [
        (1, 10, vec![0, 3, 6, 9]),
        (0, 11, vec![0, 5, 10]),
        (1, 3, vec![0]),
        (0, 5, vec![0]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let options = Options {
            index_interval_bytes: Some(0),
            segment_index_bytes: Some(36),
            ..Options::default()
        };
        let engine = writing(root.path(), &options).unwrap();
        for number in 0..batches {
            let draft = Draft {
                born_timestamp: Some(1000 + step_ms * number),
                ..Draft::default()
            };
            let topic = engine.topic_for_append("t").unwrap();
            let mut batch = engine.form().batch();
            batch.push("t", 0, &draft, 1000).unwrap();
            let batches = &mut [(&*topic, &mut batch)];
            let sent = engine.append(batches, Atomicity::Rows, Durability::Written);
            assert_eq!(sent.unwrap().rows[0].offset, number.cast_unsigned());
        }
        assert_eq!(bases(&root.path().join("t-0")), expected, "{step_ms}");
        engine.close().unwrap();
        // Each complete segment has the entries that made it full.
        for base in &expected[..expected.len() - 1] {
            let len = |ending: &str| {
                let path = root.path().join(format!("t-0/{base:020}.{ending}"));
                fs::metadata(path).unwrap().len()
            };
            let entries = (len("index") / 8, len("timeindex") / 12);
            let wanted = if step_ms > 0 { (2, 2) } else { (4, 1) };
            assert_eq!(entries, wanted, "{base}");
        }
    }
}

/// The offsets of a segment are stored as 31 bits from its first one.
#[test]
fn a_segment_ends_before_an_offset_that_it_cannot_hold() {
    const SPAN: u64 = i32::MAX as u64;
    for (last, expected) in [
        (SPAN, vec![0, SPAN + 1]),
        (SPAN - 1, vec![0, SPAN + 1]),
        (SPAN - 2, vec![0]),
    ] {
        let made = Made::new();
        made.segment(0, &[batch(0, &[1000]), batch(last, &[1000])]);
        let engine = opened(made.root.path(), Mode::Append);
        for offset in last + 1..last + 3 {
            assert_eq!(send(&engine, "t", &[(0, b"one")]), [offset]);
        }
        let folder = made.root.path().join("t-0");
        assert_eq!(bases(&folder), expected, "{last}");
        engine.close().unwrap();
        let engine = opened(made.root.path(), Mode::Append);
        let found = messages(&engine, "t", 10).into_iter();
        let offsets: Vec<i64> = found.map(|it| it.record().queue_offset()).collect();
        let offsets: Vec<u64> = offsets.into_iter().map(i64::cast_unsigned).collect();
        assert_eq!(offsets, [0, last, last + 1, last + 2]);
    }
    // A batch whose first offset fits and whose last does not.
    let made = Made::new();
    made.segment(0, &[batch(0, &[1000]), batch(SPAN - 2, &[1000])]);
    let engine = opened(made.root.path(), Mode::Append);
    let rows: [(u32, &[u8]); 3] = [(0, b"one"), (0, b"two"), (0, b"three")];
    let sent = send(&engine, "t", &rows);
    assert_eq!(sent, [SPAN - 1, SPAN, SPAN + 1]);
    assert_eq!(bases(&made.root.path().join("t-0")), [0, SPAN - 1]);
}
