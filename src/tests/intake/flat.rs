//! Commits to a partition log: flat files, Kafka's placement and bytes, markers in a topic.

use super::*;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::clock::ManualClock;
use crate::disk::{Call, HookedDisk};
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Check, QueueLogs, Rows};
use crate::error::Error;
use crate::options::{EngineKind, Flush};
use crate::record::{Contents, Labels};
use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::{Int32Array, TimestampMillisecondArray};
use arrow_schema::{DataType, Field, Fields};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The options of a partition log.
fn options() -> Options {
    Options {
        engine: Some(EngineKind::PartitionLog),
        default_queues: Some(3),
        ..Options::default()
    }
}

fn open(root: &Path) -> Store {
    Store::open(root, options()).unwrap()
}

/// Stages the rows of one batch.
fn staged(root: &Path, query: &str, topic: Option<&str>, rows: &RecordBatch) -> Stage {
    let stager = Stager::new(Arc::new(RealDisk), root, query, topic).unwrap();
    let mut stager = stager.cut_at(500);
    stager.write(rows).unwrap();
    stager.finish().unwrap().unwrap()
}

fn contents(stages: &[Stage]) -> Contents {
    let mut all = Contents::default();
    stages.iter().for_each(|it| all.add(it.contents));
    all
}

/// Each value of a topic, with key and queue.
fn rows_of(store: &Store, topic: &str) -> Vec<(Option<Vec<u8>>, Vec<u8>, u32)> {
    let engine = store.engine().unwrap();
    let topic = store.topic(topic).unwrap();
    let mut found = Vec::new();
    for queue in engine.queues(&topic) {
        let bounds = engine.bounds(&topic, queue).unwrap().unwrap();
        let cursor = engine.cursor(&topic, queue, bounds, &Filter::default(), Check::Full);
        let (mut cursor, mut rows) = (cursor.unwrap(), Rows::default());
        while cursor.refill(64, &mut rows).unwrap() {
            for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
                let mut labels = Labels::default();
                record.read_labels(&mut labels, true);
                let key = labels.key().map(|key| key.to_vec());
                found.push((key, record.stored_body().to_vec(), queue));
            }
        }
    }
    found
}

/// Names of the files in the directory, without those of partitions.
fn files(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn stages_of_a_partition_log_are_flat_files_that_are_gone_after_the_commit() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = open(root);
    let stages = [stage(root, "q", &[vec![1], vec![2]], 500)];
    publish(root, "q", &stages, 500);
    let begin = |names: Vec<String>| {
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| name.starts_with("forebay.stages"))
            .collect();
        names.sort();
        names
    };
    let wanted = [
        "forebay.stages.q.commit-0".to_owned(),
        format!("forebay.stages.q.{}", stages[0].name),
    ];
    assert_eq!(begin(files(root)), wanted);
    let folders = std::fs::read_dir(root).unwrap().count() - files(root).len();
    assert_eq!(folders, 0, "no topic was created, so there are no folders");
    assert!(
        !store
            .holds_commit(("q", 0), contents(&stages), false)
            .unwrap()
    );
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), 2);
    assert_eq!(begin(files(root)), Vec::<String>::new());
    assert!(
        store
            .holds_commit(("q", 0), contents(&stages), false)
            .unwrap()
    );
    assert!(!store.last_marker("q").unwrap().unwrap().is_empty());
    commit::close(&RealDisk, root, "q").unwrap();
    store.close().unwrap();
    let again = open(root);
    assert!(
        again
            .holds_commit(("q", 0), contents(&stages), false)
            .unwrap()
    );
    assert!(again.recovery().clean);
}

/// A batch with all columns, and some of their edge cases.
fn all_columns() -> RecordBatch {
    let keys: [Option<&[u8]>; 5] = [Some(b"k1"), Some(b""), None, Some(&[0xFF, 0]), Some(b"a b")];
    let values: [Option<&[u8]>; 5] = [Some(b"v1"), Some(b""), Some(b"v3"), None, Some(&[0xFE])];
    let fields = Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ]);
    let entry = StructBuilder::new(
        fields,
        vec![
            Box::new(StringBuilder::new()),
            Box::new(BinaryBuilder::new()),
        ],
    );
    let mut headers = ListBuilder::new(entry);
    for row in 0..5 {
        let entry = headers.values();
        let name = entry.field_builder::<StringBuilder>(0).unwrap();
        name.append_value(format!("h{row}"));
        let value = entry.field_builder::<BinaryBuilder>(1).unwrap();
        value.append_option((row != 2).then_some([0xFF, row]));
        entry.append(true);
        headers.append(true);
    }
    let times = [1_000, 2_000, 3_000, 4_000, 5_000];
    let columns: [(&str, ArrayRef); 6] = [
        ("key", Arc::new(BinaryArray::from_iter(keys))),
        ("value", Arc::new(BinaryArray::from_iter(values))),
        ("topic", Arc::new(StringArray::from(vec!["a.b"; 5]))),
        (
            "partition",
            Arc::new(Int32Array::from(vec![None, None, None, None, Some(4)])),
        ),
        ("headers", Arc::new(headers.finish())),
        (
            "timestamp",
            Arc::new(TimestampMillisecondArray::from(times.to_vec())),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn a_staged_row_has_its_bytes_and_the_queue_of_a_kafka_producer() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = open(root);
    publish(root, "q", &[staged(root, "q", None, &all_columns())], 500);
    store.take_commits().unwrap();
    let mut found = rows_of(&store, "a.b");
    found.sort();
    let keyless = found[0].2;
    let mut wanted = vec![
        (None, b"v3".to_vec(), keyless),
        // Kafka's producer puts these keys there among three partitions.
        (Some(b"".to_vec()), b"".to_vec(), 0),
        (Some(b"a b".to_vec()), vec![0xFE], 4),
        (Some(b"k1".to_vec()), b"v1".to_vec(), 2),
        (Some(vec![0xFF, 0]), b"".to_vec(), 1),
    ];
    wanted.sort();
    assert_eq!(found, wanted);
    assert_eq!(store.topic("a.b").unwrap().write_queues(), 5);
    let message = store.get("a.b", 4, 0).unwrap();
    let record = message.record();
    assert!(!record.is_null());
    assert_eq!(record.born_timestamp(), 5_000);
    let mut headers = Labels::default();
    record.read_labels(&mut headers, true);
    assert_eq!(
        headers.own,
        [("h4".into(), Some(&[0xFF, 4][..]))],
        "the header keeps its bytes"
    );
    let tombstone = store.get("a.b", 1, {
        let at = rows_of(&store, "a.b");
        let own = at.iter().filter(|row| row.2 == 1);
        let place = own
            .clone()
            .position(|row| row.0.as_deref() == Some(&[0xFF, 0]));
        place.unwrap() as i64
    });
    assert!(tombstone.unwrap().record().is_null());
}

#[test]
fn rows_are_staged_for_topics_of_every_length_that_kafka_allows() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = open(root);
    let topics = [1, 127, 128, 249].map(|len| "t.".repeat(125)[..len].to_owned());
    for attempt in 0..2 {
        let values = BinaryArray::from_iter_values([b"v"; 4]);
        let columns: [(&str, ArrayRef); 2] = [
            ("value", Arc::new(values)),
            (
                "topic",
                Arc::new(StringArray::from_iter_values(topics.iter())),
            ),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let stages = [staged(root, "q", None, &rows)];
        publish(root, "q", &stages, 500);
        store.take_commits().unwrap();
        for topic in &topics {
            let found = rows_of(&store, topic);
            assert_eq!(found.len(), 1, "{topic} in attempt {attempt}");
            assert_eq!(found[0].1, b"v");
        }
    }
    let long = "t".repeat(250);
    let stager = Stager::new(Arc::new(RealDisk), root, "q", Some(&long));
    let error = stager.err().unwrap().to_string();
    assert!(error.contains("250 bytes, limit 249"), "{error}");
}

/// A manifest may name a stage that was made for a partition log.
#[test]
fn a_commit_log_refuses_a_staged_row_for_a_topic_that_it_cannot_have() {
    let flat = tempfile::tempdir().unwrap();
    open(flat.path()).close().unwrap();
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let store = Store::open(root, Options::default()).unwrap();
    let values = BinaryArray::from_iter_values([b"v"]);
    let columns: [(&str, ArrayRef); 1] = [("value", Arc::new(values))];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let long = "t".repeat(128);
    let stages = [staged(flat.path(), "q", Some(&long), &rows)];
    let from = StagePlace::flat(flat.path()).query("q").unwrap();
    let to = StagePlace::nested(root).make(&RealDisk, "q").unwrap();
    let name = &stages[0].name;
    std::fs::rename(from.path(name), to.path(name)).unwrap();
    publish(root, "q", &stages, 500);
    store.take_commits().unwrap();
    let reason = refusal(root, "q");
    assert!(reason.contains("128 bytes, limit 127"), "{reason}");
    assert!(store.verify(&mut |_, _| true).unwrap().damage.is_empty());
}

#[test]
fn a_batch_of_many_parts_is_appended_once_however_often_it_is_committed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let bodies: Vec<Vec<u8>> = (0..60u8).map(|n| vec![n; 100]).collect();
    let mut store = open(root);
    for attempt in 0..3 {
        let stages = [stage(root, "q", &bodies, 500)];
        publish(root, "q", &stages, 500);
        store.take_commits().unwrap();
        assert_eq!(count(&store, "t"), 60, "attempt {attempt}");
        assert!(
            store
                .holds_commit(("q", 0), contents(&stages), false)
                .unwrap()
        );
        if attempt == 1 {
            store.close().unwrap();
            store = open(root);
        }
    }
    assert!(count(&store, marker::TOPIC) > 10, "a marker for each part");
    // Other rows under its number are no retry.
    let other = [stage(root, "q", &[vec![7]], 500)];
    publish(root, "q", &other, 500);
    store.take_commits().unwrap();
    assert!(refusal(root, "q").contains("other rows"));
    assert_eq!(count(&store, "t"), 60);
    assert!(store.verify(&mut |_, _| true).unwrap().damage.is_empty());
}

#[test]
fn a_row_without_a_key_for_a_compacted_topic_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let options = Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            ..Compaction::default()
        },
        ..options()
    };
    let store = Store::open(root, options).unwrap();
    publish(root, "q", &[stage(root, "q", &[vec![1]], 500)], 500);
    store.take_commits().unwrap();
    assert!(refusal(root, "q").contains("compacted"));
    let values = BinaryArray::from_iter_values([b"v"]);
    let keys = BinaryArray::from_iter_values([b""]);
    let columns: [(&str, ArrayRef); 2] = [("value", Arc::new(values)), ("key", Arc::new(keys))];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let stages = [staged(root, "q", Some("t"), &rows)];
    publish_batch(root, "q", 1, &stages, 500);
    store.take_commits().unwrap();
    assert_eq!(count(&store, "t"), 1);
}

/// The markers have the query as key: compaction keeps the last of each, and no batch comes twice.
#[test]
fn compaction_and_retention_keep_the_last_marker_of_a_stream() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let clock = ManualClock::at(1_700_000_000_000);
    let machine = Machine {
        clock: Arc::<ManualClock>::clone(&clock),
        ..Machine::stepped(Arc::new(RealDisk))
    };
    let options = Options {
        flush: Some(Flush::Async),
        retention_bytes: Some(1),
        ..options()
    };
    let opened = Opened::<PartitionLog>::open(&machine, root, &options).unwrap();
    let engine: &PartitionLog = &opened;
    let put = |query: &str, batch: u64| {
        let stages = [stage(root, query, &[vec![1]], 500)];
        publish_batch(root, query, batch, &stages, 500);
        opened.take_commits().unwrap();
        contents(&stages)
    };
    let mut time = Instant::now();
    let mut retain = || {
        engine.roll().unwrap();
        time += Duration::from_secs(2);
        clock.advance(2000);
        engine.step_retention(1_700_000_000_000, time);
    };
    let old = put("old", 0);
    retain();
    let marks = || {
        let topic = engine.topics().get(marker::TOPIC).unwrap();
        engine.bounds(&topic, 0).unwrap().unwrap()
    };
    assert_eq!(marks().start, 0, "a marker that is needed went");
    for batch in 0..40 {
        put("new", batch);
        engine.roll().unwrap();
    }
    retain();
    retain();
    assert!(marks().start > 20, "markers that nobody needs stay");
    assert!(opened.holds_commit(("old", 0), old, false).unwrap());
    let before = opened.stats().published;
    assert_eq!(put("old", 0), old);
    assert_eq!(opened.stats().published, before, "the batch came again");
}

#[test]
fn the_thread_of_a_partition_log_starts_once_somebody_stages() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let machine = Machine::real();
    let opened = Opened::<PartitionLog>::open(&machine, root, &options()).unwrap();
    let intake = opened.intake.as_ref().unwrap();
    assert!(!intake.has_thread());
    for batch in 0..2 {
        let stages = [stage(root, "q", &[vec![1]], 500)];
        publish_batch(root, "q", batch, &stages, 500);
        let patience = &mut Patience::new(Duration::from_secs(600));
        let slice = Duration::from_secs(600);
        let waited = commit::wait(&RealDisk, root, ("q", batch), patience, slice);
        assert_eq!(waited.unwrap(), (CommitState::Gone, true));
        assert!(
            opened
                .holds_commit(("q", batch), contents(&stages), false)
                .unwrap()
        );
    }
    assert!(intake.has_thread());
    for service in opened.services() {
        service.end();
    }
    assert!(!intake.has_thread());
    opened.engine.close().unwrap();
}

#[test]
fn rows_are_staged_for_a_log_that_another_process_makes_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    let is_made = AtomicBool::new(false);
    let disk = HookedDisk::shared(move |call, _: &Path| {
        if call == Call::List && !is_made.swap(true, Ordering::AcqRel) {
            let other = open(&path);
            other.create_topic("orders", 1).unwrap();
            other.close().unwrap();
        }
        Ok(())
    });
    let target = crate::check_target(&*disk, root.path(), Some("orders")).unwrap();
    assert_eq!(target, Some(EngineKind::PartitionLog));
}

#[test]
fn rows_are_staged_for_a_directory_of_forebays_only() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    open(root).close().unwrap();
    let target = crate::check_target(&RealDisk, root, Some("a.b")).unwrap();
    assert_eq!(target, Some(EngineKind::PartitionLog));
    let long = "a".repeat(250);
    assert!(crate::check_target(&RealDisk, root, Some(&long)).is_err());
    std::fs::create_dir(root.join("t-0")).unwrap();
    std::fs::write(root.join("t-0").join(format!("{:020}.log", 0)), b"").unwrap();
    std::fs::remove_file(root.join("forebay.partitionlog")).unwrap();
    let error = crate::check_target(&RealDisk, root, None).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}
