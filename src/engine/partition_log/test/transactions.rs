//! Which messages of transactions are read.

use super::golden::golden;
use super::*;
use crate::record::kafka::{HEAD_LEN, Header, Opened, TransactionMarker};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

pub(super) const ABORT: &[u8] = &[0, 0, 0, 0];
pub(super) const COMMIT: &[u8] = &[0, 0, 0, 1];

pub(super) fn data(base: u64, producer: i64) -> Vec<u8> {
    let spec = Spec {
        base,
        times: &[1],
        producer: Some(producer),
        attributes: TRANSACTIONAL,
        ..Spec::default()
    };
    spec.bytes()
}

pub(super) fn marker(base: u64, producer: i64, key: &[u8]) -> Vec<u8> {
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
        if header.is_control()
            || (header.is_transactional() && ended == Some(TransactionMarker::Abort))
        {
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

/// The offsets that are read, and those that are reported as lost, by the position of the damage.
fn shown(made: &Made) -> (Vec<i64>, Vec<(u64, Vec<u64>)>) {
    let engine = committed(made);
    let found = offsets(&engine);
    let mut lost: Vec<_> = engine
        .report()
        .damage()
        .into_iter()
        .map(|place| {
            let mut lost: Vec<u64> = place.lost.iter().map(|it| it.2).collect();
            lost.sort_unstable();
            (place.position, lost)
        })
        .collect();
    lost.sort_unstable();
    (found, lost)
}

/// The marker of offset 2 is damaged, in one byte after another. The next one of the producer is
/// not taken for it, whatever it says; other producers' messages are read.
#[test]
fn a_damaged_marker_leaves_its_transaction_undecided() {
    let before = [data(0, 7), data(1, 7)];
    let at = before.concat().len();
    let damaged = marker(2, 7, COMMIT);
    for (key, others) in [(COMMIT, vec![3, 4, 6]), (ABORT, vec![4, 6])] {
        let after = [
            data(3, 7),
            batch(4, &[1]),
            marker(5, 7, key),
            batch(6, &[1]),
        ];
        let len = damaged.len();
        for byte in (16..len).chain([8]) {
            let made = Made::new();
            let mut bytes = damaged.clone();
            bytes[byte] ^= 0x41;
            made.segment(0, &[before.concat(), bytes, after.concat()]);
            made.segment(7, &[batch(7, &[1])]);
            // If no header can be believed, the index has the next batch.
            let entry = [3u32.to_be_bytes(), ((at + len) as u32).to_be_bytes()].concat();
            fs::write(made.file(&format!("{:020}.index", 0)), entry).unwrap();
            let (found, lost) = shown(&made);
            let others = [&others[..], &[7]].concat();
            assert_eq!(found, others, "byte {byte} of {len}");
            assert_eq!(lost[0].0, at as u64, "byte {byte} of {len}");
            assert!(lost[0].1.starts_with(&[0, 1]), "byte {byte}: {lost:?}");
        }
    }
}

/// No marker follows. The transaction does not keep later messages from being read.
#[test]
fn a_transaction_whose_marker_is_damaged_is_not_open() {
    let made = Made::new();
    let mut damaged = marker(1, 7, COMMIT);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    made.segment(0, &[data(0, 7), damaged, batch(2, &[1]), data(3, 8)]);
    let engine = committed(&made);
    assert_eq!((bounds(&engine), offsets(&engine)), (0..3, vec![2]));
    let lost = engine.get(&topic(&engine, "t"), 0, 0).unwrap_err();
    assert!(
        matches!(lost, crate::error::Error::Corrupt { .. }),
        "{lost}"
    );
    made.append(0, &marker(4, 8, COMMIT));
    assert_eq!((bounds(&engine), offsets(&engine)), (0..5, vec![2, 3]));
    assert_eq!(offsets(&made.open()), [0, 2, 3]);
}

/// A transaction of many batches, read in small steps. Each step searched for its marker from its
/// own batch on.
#[test]
fn small_reads_of_a_long_transaction_search_its_marker_once() {
    const COUNT: u64 = 4000;
    let made = Made::new();
    let mut batches: Vec<_> = (0..COUNT).map(|offset| data(offset, 7)).collect();
    batches.push(marker(COUNT, 7, COMMIT));
    made.segment(0, &batches);
    made.segment(COUNT + 1, &[batch(COUNT + 1, &[1])]);
    let len = fs::metadata(made.log(0)).unwrap().len();
    let engine = committed(&made);
    assert_eq!(bounds(&engine), 0..COUNT + 2);
    super::super::segments::reader::counted::take();
    let (topic, all) = (topic(&engine, "t"), Filter::default());
    let (mut next, mut found, mut reads) = (0, 0, 0);
    while next < COUNT {
        let range = next..next + 20;
        let mut cursor = engine.cursor(&topic, 0, range, &all, Check::Full).unwrap();
        let mut rows = Rows::default();
        cursor.next(20, &mut rows).unwrap();
        found += rows.rows.len() as u64;
        next = cursor.offset();
        reads += 1;
    }
    assert_eq!(found, COUNT);
    let most = reads * (3 * (32 << 10)) + 3 * len;
    let read = super::super::segments::reader::counted::take();
    assert!(read < most, "{read} bytes of {len}, at most {most}");
}

/// Random transactions of a few producers, read from anywhere, in any order and in steps of any
/// size, give what a model gives that knows all markers.
fn check_reads(drawn: &[(u8, i64)], reads: &[(u64, u64)]) {
    let made = Made::new();
    let mut open: HashMap<i64, Vec<u64>> = HashMap::new();
    let (mut expected, mut batches) = (BTreeSet::new(), Vec::new());
    for (offset, (kind, producer)) in (0..).zip(drawn) {
        match kind {
            0 => {
                batches.push(batch(offset, &[1]));
                expected.insert(offset);
            }
            1 | 2 => {
                let key = if *kind == 1 { COMMIT } else { ABORT };
                batches.push(marker(offset, *producer, key));
                let ended = open.remove(producer).unwrap_or_default();
                expected.extend(ended.into_iter().filter(|_| *kind == 1));
            }
            _ => {
                batches.push(data(offset, *producer));
                open.entry(*producer).or_default().push(offset);
            }
        }
    }
    let (first, second) = batches.split_at(batches.len() / 3);
    made.segment(0, first);
    made.segment(first.len() as u64, second);
    let end = open.values().flatten().min().copied();
    let end = end.unwrap_or(batches.len() as u64);
    let engine = committed(&made);
    assert_eq!(bounds(&engine), 0..end);
    let (topic, all) = (topic(&engine, "t"), Filter::default());
    for (from, len) in reads {
        let range = from % (end + 1)..(from % (end + 1) + len).min(end);
        let cursor = engine.cursor(&topic, 0, range.clone(), &all, Check::Full);
        let (mut cursor, mut rows) = (cursor.unwrap(), Rows::default());
        while cursor.step(7, &mut rows).unwrap() {}
        let found: Vec<u64> = rows
            .rows
            .iter()
            .map(|row| rows.record(row).unwrap().queue_offset() as u64)
            .collect();
        let wanted: Vec<u64> = expected.range(range).copied().collect();
        assert_eq!(found, wanted);
    }
}

proptest! {
    #![proptest_config(crate::seeds::proptest_cases(40))]

    #[test]
    fn what_is_remembered_of_markers_is_what_the_log_says(
        drawn in proptest::collection::vec((0..6u8, 0..5i64), 3..300),
        reads in proptest::collection::vec((0..300u64, 1..60u64), 60),
    ) {
        check_reads(&drawn, &reads);
    }
}
