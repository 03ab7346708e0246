//! The commit log returns the same batches as the memory engine.

use super::*;
use crate::Bound;

/// Fills a store with the same messages each time: four topics, queues in turn, many body lengths.
fn fill(store: &Store) {
    for number in 0..2500u32 {
        let name = format!("t{}", number % 4);
        let (key, tag) = (format!("k{}", number % 17), format!("g{}", number % 5));
        let value = number.to_string();
        let body = vec![number as u8; (number as usize * 7) % 300];
        let draft = Draft {
            body: &body,
            keys: &[&key, &value],
            tags: (number % 3 > 0).then_some(&tag),
            properties: &[("number", value.as_str()), ("a", "b")][..number as usize % 3],
            queue: Some(number % 7),
            born_timestamp: Some(i64::from(number)),
            ..Draft::default()
        };
        send(&producer(store, &name), &draft);
    }
}

/// All batches, without the columns in which two stores must differ.
fn common(store: &Store, mut spec: ScanSpec) -> Vec<RecordBatch> {
    let own = [Column::Position, Column::StoreTimestamp, Column::MessageId];
    spec.columns = Some(
        Column::all()
            .filter(|column| !own.contains(column))
            .collect(),
    );
    batches(store, spec)
}

/// Scans that use every path through a store.
fn specs(body_type: BodyType) -> Vec<ScanSpec> {
    let named = Some(vec!["t2".to_owned(), "t0".to_owned()]);
    let offsets = Bound::Offsets([(1, 20), (3, 0)].into());
    let base = ScanSpec {
        body_type,
        batch_rows: 700,
        batch_bytes: 100_000,
        ..ScanSpec::default()
    };
    let (tags, key) = (vec!["g1".to_owned(), "g4".to_owned()], Some(b"k5".to_vec()));
    vec![
        base.clone(),
        ScanSpec {
            tags: tags.clone(),
            ..base.clone()
        },
        ScanSpec {
            topics: named.clone(),
            ..base.clone()
        },
        ScanSpec {
            topics: named.clone(),
            start: offsets.clone(),
            ..base.clone()
        },
        ScanSpec {
            topics: named.clone(),
            end: offsets.clone(),
            tags,
            ..base.clone()
        },
        ScanSpec {
            topics: named.clone(),
            key: key.clone(),
            ..base.clone()
        },
        ScanSpec {
            start: Bound::Time(0),
            key: key.clone(),
            ..base.clone()
        },
        ScanSpec {
            queues: Some(vec![6, 2]),
            key,
            ..base.clone()
        },
        ScanSpec {
            verify: false,
            topics: named.clone(),
            ..base
        },
    ]
}

#[test]
fn the_commit_log_scans_like_the_memory_engine() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        commitlog_file_size: Some(256 << 10),
        ..Options::default()
    };
    let files = Store::open(folder.path().join("store"), options).unwrap();
    let memory = store();
    fill(&files);
    fill(&memory);
    for body_type in [BodyType::Binary, BodyType::BinaryView] {
        for spec in specs(body_type) {
            let expected = common(&memory, spec.clone());
            assert!(!expected.is_empty(), "{spec:?}");
            assert_eq!(common(&files, spec.clone()), expected, "{spec:?}");
        }
    }
}

#[test]
fn views_into_log_files_outlive_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store"), Options::default()).unwrap();
    let body: &[u8] = b"a body that lies in a mapped file";
    send_bodies(&store, "a", 0, &[body]);
    let message = store.get("a", 0, 0).unwrap();
    let region = Arc::clone(message.place().0);
    let spec = ScanSpec {
        topics: topic("a"),
        body_type: BodyType::BinaryView,
        ..ScanSpec::default()
    };
    let found = batches(&store, spec);
    let running = stream(&store, ScanSpec::default());
    store.close().unwrap();
    drop((store, message));
    let buffers = found[0]["body"].as_binary_view().data_buffers();
    let address = buffers[0].as_ptr() as usize;
    assert!((region.address()..region.address() + region.len()).contains(&address));
    drop(region);
    assert_eq!(bodies(&found), [body]);
    assert_eq!(
        bodies(&running.map(Result::unwrap).collect::<Vec<_>>()),
        [body]
    );
}
