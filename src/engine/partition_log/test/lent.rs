//! Records that are read where they lie, in the memory that batches are read to.

use super::write::writing;
use super::*;
use crate::engine::{Atomicity, Cursor, Durability};
use crate::options::TimestampType;
use crate::record::kafka;
use crate::record::{Draft, Layout, PropertyKind};
use std::collections::BTreeSet;

/// Rows that are wanted at once.
const MANY: usize = 1000;

fn is_in_batch(message: &Message) -> bool {
    let layout = message.record().layout();
    matches!(layout, Layout::Kafka(kafka::Layout::InBatch(_)))
}

/// Everything that a message says of itself.
fn facts(message: &Message) -> Vec<String> {
    let row = message.record();
    let layout = row.layout();
    let known: Vec<_> = row.known().index_keys().map(<[u8]>::to_vec).collect();
    vec![
        format!("{:?}", row.bytes()),
        format!("{} {:?} {}", message.id(), row.topic(), row.queue_id()),
        format!("{} {}", row.queue_offset(), row.position()),
        format!("{} {}", row.store_timestamp(), row.has_append_time()),
        format!("{:?} {:?} {:?}", row.keys(), row.key_bytes(), row.tags()),
        format!("{:?} {:?}", row.headers(), row.raw_properties()),
        format!("{:?}", row.properties(PropertyKind::User)),
        format!("{:?}", row.properties(PropertyKind::System)),
        format!("{:?} {}", row.stored_body(), row.is_null()),
        format!("{known:?} {}", row.reconsume_times()),
        format!("{} {}", layout.total_len(), layout.body_len()),
    ]
}

/// A log of batches of every kind of record.
fn written(root: &Path, timestamp_type: TimestampType) -> PartitionLog {
    let options = Options {
        message_timestamp_type: Some(timestamp_type),
        ..Options::default()
    };
    let engine = writing(root, &options).unwrap();
    let topic = engine.topic_for_append("t").unwrap();
    for first in [0, 150] {
        let mut batch = engine.form().batch();
        for number in first..first + 150_i64 {
            let (key, body) = (format!("key-{number}"), vec![b'v'; number as usize]);
            let keys = [key.as_str(), "further"];
            let headers: [(&str, Option<&[u8]>); 2] = [("h", Some(b"\xFF")), ("null", None)];
            let draft = Draft {
                body: if number % 7 == 3 { b"" } else { &body },
                is_null: number % 7 == 3,
                keys: &keys[..(number % 3) as usize % 3],
                tags: (number % 5 == 0).then_some("paid"),
                headers: &headers[..(number % 2) as usize * 2],
                born_timestamp: Some(1000 + number % 11),
                ..Draft::default()
            };
            let draft = Draft {
                keys: if draft.is_null { &keys } else { draft.keys },
                ..draft
            };
            batch.push("t", 0, &draft, 1000).unwrap();
        }
        let batches = &mut [(&*topic, &mut batch)];
        engine
            .append(batches, Atomicity::Rows, Durability::Written)
            .unwrap();
    }
    engine
}

#[test]
fn a_record_says_the_same_in_its_batch_and_apart_from_it() {
    for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        let root = tempfile::tempdir().unwrap();
        let engine = written(root.path(), timestamp_type);
        let found = messages(&engine, "t", MANY);
        assert_eq!(found.len(), 300);
        let topic = topic(&engine, "t");
        for (offset, message) in (0..).zip(&found) {
            assert!(is_in_batch(message), "{offset}");
            let apart = engine.get(&topic, 0, offset).unwrap().unwrap();
            assert!(!is_in_batch(&apart), "{offset}");
            assert_eq!(facts(message), facts(&apart), "{offset}");
            let again = Message::from_record(&message.record().bytes());
            assert_eq!(facts(&again.unwrap().unwrap()), facts(&apart), "{offset}");
        }
        engine.close().unwrap();
    }
}

fn next(cursor: &mut dyn Cursor) -> Rows {
    let mut rows = Rows::default();
    cursor.next(MANY, &mut rows).unwrap();
    rows
}

/// Several windows, and batches that lie across their ends.
#[test]
fn memory_is_read_to_again_once_no_reader_has_it() {
    let made = Made::new();
    let batches = (0..1200).map(|number| batch(number * 100, &[1000; 100]));
    made.segment(0, &batches.collect::<Vec<_>>());
    let engine = made.open();
    let all = Filter::default();
    let mut cursor = engine
        .cursor(&topic(&engine, "t"), 0, 0..120_000, &all, Check::Full)
        .unwrap();
    let mut expected = 0..;
    let mut addresses = BTreeSet::new();
    let mut held: Option<Message> = None;
    let mut read = 0;
    loop {
        let rows = next(&mut *cursor);
        if rows.rows.is_empty() {
            break;
        }
        let found = rows.rows.iter().map(|row| rows.message(row).unwrap());
        for message in found {
            assert!(is_in_batch(&message));
            let offset = expected.next().unwrap();
            assert_eq!(message.body().unwrap(), offset.to_string().into_bytes());
            held.get_or_insert(message);
            read += 1;
        }
        addresses.extend(rows.regions.iter().map(|region| region.address()));
    }
    assert_eq!(read, 120_000);
    // There are three times as many windows.
    assert!(addresses.len() <= 5, "{addresses:?}");
    assert_eq!(*held.unwrap().body().unwrap(), *b"0");
}
