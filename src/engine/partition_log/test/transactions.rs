//! Which messages of transactions are read.

use super::golden::golden;
use super::*;
use crate::record::kafka::{HEAD_LEN, Header, Marker, Opened};
use std::collections::BTreeSet;

const ABORT: &[u8] = &[0, 0, 0, 0];
const COMMIT: &[u8] = &[0, 0, 0, 1];

fn data(base: u64, producer: i64) -> Vec<u8> {
    let spec = Spec {
        base,
        times: &[1],
        producer: Some(producer),
        attributes: TRANSACTIONAL,
        ..Spec::default()
    };
    spec.bytes()
}

fn marker(base: u64, producer: i64, key: &[u8]) -> Vec<u8> {
    let spec = Spec {
        base,
        times: &[1],
        producer: Some(producer),
        attributes: TRANSACTIONAL | CONTROL,
        key: Some(key),
        ..Spec::default()
    };
    spec.bytes()
}

fn committed(made: &Made) -> PartitionLog {
    open(made.root.path(), Isolation::ReadCommitted).unwrap()
}

#[test]
fn aborted_messages_and_markers_are_left_out() {
    let made = Made::new();
    let first = [
        data(0, 7),
        data(1, 8),
        batch(2, &[1]),
        marker(3, 7, ABORT),
        data(4, 7),
    ];
    made.segment(0, &first);
    made.segment(
        5,
        &[marker(5, 8, COMMIT), marker(6, 7, COMMIT), batch(7, &[1])],
    );
    assert_eq!(offsets(&made.open()), [0, 1, 2, 4, 7]);
    let engine = committed(&made);
    assert_eq!(
        (bounds(&engine), offsets(&engine)),
        (0..8, vec![1, 2, 4, 7])
    );
    let missing = engine.get(&topic(&engine, "t"), 0, 0).unwrap_err();
    let next = matches!(
        missing,
        crate::error::Error::OffsetOutOfRange { min: 1, .. }
    );
    assert!(next, "{missing}");
    assert_eq!(at(&engine, 0), 1);
}

#[test]
fn reading_ends_at_the_oldest_open_transaction() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1]), data(1, 7), batch(2, &[1]), data(3, 8)]);
    let engine = committed(&made);
    assert_eq!(bounds(&engine), 0..1);
    assert_eq!(bounds(&made.open()), 0..4);
    made.append(0, &marker(4, 7, COMMIT));
    assert_eq!((bounds(&engine), offsets(&engine)), (0..3, vec![0, 1, 2]));
    made.append(0, &marker(5, 8, ABORT));
    assert_eq!((bounds(&engine), offsets(&engine)), (0..6, vec![0, 1, 2]));
}

#[test]
fn a_snapshot_says_what_was_open_when_its_segment_began() {
    let made = Made::new();
    made.segment(0, &[data(0, 7), batch(1, &[1])]);
    made.segment(2, &[batch(2, &[1])]);
    let mut entry = 7i64.to_be_bytes().to_vec();
    entry.extend([0; 30]);
    entry.extend(0i64.to_be_bytes());
    let body = [&1i32.to_be_bytes()[..], &entry].concat();
    let crc = crc32c::crc32c(&body).to_be_bytes();
    let snapshot = [&1i16.to_be_bytes()[..], &crc, &body].concat();
    let path = made.file(&format!("{:020}.snapshot", 2));
    fs::write(&path, &snapshot).unwrap();
    assert_eq!(bounds(&committed(&made)), 0..0);
    // A damaged one is not believed; the log says the same.
    for at in 0..snapshot.len() {
        let mut damaged = snapshot.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_eq!(bounds(&committed(&made)), 0..0);
    }
    made.append(2, &marker(3, 7, COMMIT));
    fs::write(&path, &snapshot).unwrap();
    let engine = committed(&made);
    assert_eq!((bounds(&engine), offsets(&engine)), (0..4, vec![0, 1, 2]));
}

/// The model: all batches in memory, and for each transactional one the next marker of its
/// producer.
#[test]
fn a_golden_log_with_aborts_is_read_as_a_simple_model_reads_it() {
    let root = golden(&["txn-0"]);
    let folder = root.path().join("txn-0");
    let mut logs: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "log"))
        .collect();
    logs.sort();
    let mut batches = Vec::new();
    for log in logs {
        let bytes = fs::read(log).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = Header::parse(&rest[..HEAD_LEN]).unwrap();
            let (own, after) = rest.split_at(header.len as usize);
            let marker = Opened::open(own.to_vec(), true).unwrap().marker().unwrap();
            batches.push((header, marker));
            rest = after;
        }
    }
    let (mut open_from, mut expected) = (None, BTreeSet::new());
    for (at, (header, _)) in batches.iter().enumerate() {
        let mut later = batches[at..]
            .iter()
            .filter(|it| it.0.producer_id == header.producer_id);
        let ended = later.find_map(|(_, marker)| *marker);
        if header.is_control() || (header.is_transactional() && ended == Some(Marker::Abort)) {
            continue;
        }
        if header.is_transactional() && ended.is_none() {
            open_from.get_or_insert(header.first_offset());
        }
        expected.extend(header.first_offset()..=header.last_offset());
    }
    let end = open_from.unwrap_or(batches.last().unwrap().0.last_offset() + 1);
    let expected: Vec<u64> = expected
        .into_iter()
        .filter(|offset| *offset < end)
        .collect();
    let engine = open(root.path(), Isolation::ReadCommitted).unwrap();
    let found = messages(&engine, "txn", 10);
    let found: Vec<u64> = found
        .iter()
        .map(|it| it.record().queue_offset() as u64)
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        engine.bounds(&topic(&engine, "txn"), 0).unwrap(),
        Some(0..end)
    );
    assert!(found.len() < 1000 && end < 1012);
    // Every range gives its part, also one that begins within a transaction.
    for start in (0..end).step_by(61) {
        let all = Filter::default();
        let topic = topic(&engine, "txn");
        let mut cursor = engine
            .cursor(&topic, 0, start..start + 30, &all, Check::Full)
            .unwrap();
        let mut rows = Rows::default();
        cursor.next(100, &mut rows).unwrap();
        let part = expected
            .iter()
            .filter(|it| (start..start + 30).contains(it))
            .count();
        assert_eq!(rows.rows.len(), part, "from {start}");
    }
}
