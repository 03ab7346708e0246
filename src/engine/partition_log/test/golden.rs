//! Logs that Kafka wrote, read through the engine.

use super::*;
use crate::engine::Durability;
use crate::error::Error;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;

/// A log directory with these golden partitions; with all if none is named.
pub(super) fn golden(names: &[&str]) -> TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/kafka");
    let root = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".tar.gz") else {
            continue;
        };
        if names.is_empty() || names.contains(&name) {
            let packed = GzDecoder::new(File::open(&path).unwrap());
            tar::Archive::new(packed).unpack(root.path()).unwrap();
        }
    }
    root
}

fn digests() -> BTreeMap<String, Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("tests/golden/kafka/digests.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn check(engine: &PartitionLog, name: &str, known: &Value) {
    let name = name.strip_suffix("-0").unwrap();
    let all = messages(engine, name, 97);
    assert_eq!(all.len() as u64, known["records"], "{name}");
    let topic = topic(engine, name);
    let range = engine.bounds(&topic, 0).unwrap().unwrap();
    // The last offset of `txn-0` is that of a marker.
    assert!(range.end > known["lastOffset"].as_u64().unwrap(), "{name}");
    let times: Vec<i64> = all.iter().map(|it| it.record().store_timestamp()).collect();
    for wanted in (0..all.len()).step_by(23) {
        let (message, time) = (&all[wanted], times[wanted]);
        let offset = message.record().queue_offset() as u64;
        let found = engine.get(&topic, 0, offset).unwrap().unwrap();
        assert_eq!(found.record().bytes(), message.record().bytes(), "{name}");
        for time in [time, time + 1] {
            let late = times.iter().position(|it| *it >= time);
            let late = late.map_or(range.end, |at| all[at].record().queue_offset() as u64);
            let found = engine.offset_at(&topic, 0, Point::Time(time)).unwrap();
            assert_eq!(found, late, "{name} at {time}");
        }
    }
}

#[test]
fn messages_are_found_by_offset_and_time_also_without_indexes() {
    let root = golden(&[]);
    let engine = open(root.path(), Isolation::ReadUncommitted).unwrap();
    let digests = digests();
    for (name, known) in &digests {
        check(&engine, name, known);
    }
    let found = engine.verify(&mut |_, _| true).unwrap();
    let total = digests
        .values()
        .map(|known| known["records"].as_u64().unwrap());
    assert_eq!((found.records, found.damage), (total.sum(), Vec::new()));
    assert!(found.queue_entries > 100);
    for folder in fs::read_dir(root.path()).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|it| it != "log") {
                fs::remove_file(path).unwrap();
            }
        }
    }
    let bare = open(root.path(), Isolation::ReadUncommitted).unwrap();
    for (name, known) in &digests {
        check(&bare, name, known);
    }
}

#[test]
fn an_index_is_only_a_hint() {
    let root = golden(&["none-0", "compacted-0", "v1gzip-0"]);
    for garbage in [0xFF, 0x00, 0x5A] {
        for folder in fs::read_dir(root.path()).unwrap() {
            for file in fs::read_dir(folder.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.to_string_lossy().ends_with("index") {
                    let len = fs::read(&path).unwrap().len();
                    fs::write(&path, vec![garbage; len + 5]).unwrap();
                }
            }
        }
        let engine = open(root.path(), Isolation::ReadUncommitted).unwrap();
        for (name, known) in &digests() {
            if engine.topics().get(name.trim_end_matches("-0")).is_some() {
                check(&engine, name, known);
            }
        }
    }
}

#[test]
fn a_gap_that_compaction_left_names_the_next_message() {
    let root = golden(&["compacted-0"]);
    let engine = open(root.path(), Isolation::ReadUncommitted).unwrap();
    let topic = topic(&engine, "compacted");
    let first = messages(&engine, "compacted", 1)[0].record().queue_offset();
    assert_eq!(first, 6);
    let missing = engine.get(&topic, 0, 0).unwrap_err();
    assert!(matches!(
        missing,
        Error::OffsetOutOfRange {
            offset: 0,
            min: 6,
            max: 2000,
            ..
        }
    ));
    assert!(engine.get(&topic, 0, 2000).unwrap().is_none());
    let all = Filter::default();
    let mut cursor = engine.cursor(&topic, 0, 0..3, &all, Check::Full).unwrap();
    let mut rows = Rows::default();
    cursor.next(10, &mut rows).unwrap();
    // The cursor knows how far the gap goes.
    assert_eq!((rows.rows.len(), cursor.offset()), (0, 6));
}

#[test]
fn a_message_is_found_by_its_key_and_its_id() {
    let root = golden(&["none-0"]);
    let engine = open(root.path(), Isolation::ReadUncommitted).unwrap();
    let topic = topic(&engine, "none");
    let all = messages(&engine, "none", 1000);
    let own: Vec<&Message> = all
        .iter()
        .filter(|message| message.key_bytes().as_deref() == Some(b"key-1"))
        .collect();
    let query_while = |max, go_on: &mut dyn FnMut() -> bool| {
        let found = engine.query(&topic, b"key-1", i64::MIN, i64::MAX, max, go_on);
        found.unwrap()
    };
    let query = |max| query_while(max, &mut || true);
    assert!(query_while(usize::MAX, &mut || false).is_empty());
    let found = query(usize::MAX);
    assert!(found.len() > 1 && found.len() == own.len());
    let places = |it: &Message| (it.record().store_timestamp(), it.record().queue_offset());
    assert!(
        found
            .windows(2)
            .all(|two| places(&two[0]) > places(&two[1]))
    );
    assert_eq!(query(1)[0].id(), found[0].id());
    let by_id = |id: &str| (&engine as &dyn Engine).message_with_id(id);
    let again = by_id(&found[0].id()).unwrap();
    assert_eq!(again.record().bytes(), found[0].record().bytes());
    assert!(matches!(by_id("none-0"), Err(Error::InvalidOption { .. })));
    assert!(matches!(
        by_id("none-0@99999"),
        Err(Error::OffsetOutOfRange { .. })
    ));
    assert!(matches!(
        engine.message_at(0),
        Err(Error::Unsupported { .. })
    ));
}

#[test]
fn a_search_that_finds_nothing_asks_whether_to_go_on() {
    let (path, options) = (TempDir::new().unwrap(), Options::default());
    let engine = PartitionLog::open(&Machine::real(), path.path(), &options).unwrap();
    // The search asks before each step of up to 1024 messages.
    let created = engine.create_topic("orders", 1, Durability::Written);
    created.unwrap();
    for _ in 0..5 {
        write::send(&engine, "orders", &[(0, b"x".as_slice()); 1000]);
    }
    let mut asked = 0;
    let mut go_on = || {
        asked += 1;
        true
    };
    let topic = topic(&engine, "orders");
    let found = engine.query(&topic, b"absent", i64::MIN, i64::MAX, 32, &mut go_on);
    assert!(found.unwrap().is_empty());
    assert!(asked > 4, "{asked}");
    // The result is the newest messages, even if a step finds more.
    let found = engine.query(&topic, b"a", i64::MIN, i64::MAX, 3, &mut || true);
    let found = found.unwrap().into_iter();
    let offsets: Vec<_> = found.map(|it| it.record().queue_offset()).collect();
    assert_eq!(offsets, [4999, 4998, 4997]);
    engine.close().unwrap();
}

#[test]
fn nothing_can_be_written_by_a_reader_or_to_a_brokers_directory() {
    let root = golden(&["none-0"]);
    let engine = open(root.path(), Isolation::ReadUncommitted).unwrap();
    assert!(matches!(
        engine.topic_for_append("none"),
        Err(Error::ReadOnly { .. })
    ));
    let refused = |mode| {
        let options = Options {
            mode,
            ..Options::default()
        };
        PartitionLog::open(&Machine::real(), root.path(), &options).err()
    };
    assert!(matches!(refused(Mode::Append), Some(Error::Foreign { .. })));
    assert!(matches!(refused(Mode::Create), Some(Error::Exists { .. })));
    assert!(matches!(refused(Mode::Share), Some(Error::Foreign { .. })));
    engine.close().unwrap();
    assert!(matches!(
        engine.bounds(&topic(&engine, "none"), 0),
        Err(Error::Closed { .. })
    ));
}
