//! Record batches that are sent as messages.

use super::*;
use crate::arrow::{Imported, send_arrow};
use crate::record::PropertyKind;
use crate::{Error, Result};
use arrow_array::builder::{ListBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::*;
use arrow_schema::{ArrowError, DataType, Field, Schema};

type Columns = Vec<(&'static str, ArrayRef)>;

fn batch(columns: Columns) -> RecordBatch {
    let with_null = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(with_null).unwrap()
}

fn import_with(store: &Store, all: Vec<RecordBatch>, atomicity: Atomicity) -> Result<Imported> {
    let schema = all[0].schema();
    let reader = RecordBatchIterator::new(all.into_iter().map(Ok), schema);
    let producer = producer(store, "a");
    let default = Durability::Default;
    send_arrow(&producer, reader, atomicity, default, &mut || true)
}

fn import(store: &Store, all: Vec<RecordBatch>) -> Result<Imported> {
    import_with(store, all, Atomicity::Rows)
}

/// All messages in the order in which they were sent.
fn sent(store: &Store) -> Vec<Message> {
    let end = store.engine().unwrap().readable_position();
    (0..end)
        .map(|position| store.message_at(position).unwrap())
        .collect()
}

fn sent_bodies(store: &Store) -> Vec<Vec<u8>> {
    let body = |message: &Message| message.record().stored_body().to_vec();
    sent(store).iter().map(body).collect()
}

fn array<A: Array + 'static>(array: A) -> ArrayRef {
    Arc::new(array)
}

#[test]
fn bodies_of_every_type_are_sent_and_offsets_of_slices_count() {
    let long = "a body that no view can hold inline";
    let values = ["skipped", "", "short", long, "skipped"];
    let dictionary: DictionaryArray<types::Int8Type> = values.into_iter().collect();
    let same_len = ["skipped", "seven7.", "seven8.", "seven9.", "skipped"];
    let fixed = FixedSizeBinaryArray::try_from_iter(same_len.iter().map(|v| v.as_bytes())).unwrap();
    let raw: Vec<&[u8]> = values.iter().map(|v| v.as_bytes()).collect();
    let arrays: Vec<ArrayRef> = vec![
        array(BinaryArray::from_vec(raw.clone())),
        array(LargeBinaryArray::from_vec(raw.clone())),
        array(BinaryViewArray::from_iter_values(raw)),
        array(StringArray::from(values.to_vec())),
        array(LargeStringArray::from(values.to_vec())),
        array(StringViewArray::from_iter_values(values)),
        array(dictionary),
        array(fixed),
    ];
    for bodies in arrays {
        let shown = bodies.data_type().to_string();
        let expected = match bodies.data_type() {
            DataType::FixedSizeBinary(_) => &same_len,
            _ => &values,
        };
        for name in ["body", "value"] {
            let store = store();
            let whole = batch(vec![(name, Arc::clone(&bodies))]);
            let imported = import(&store, vec![whole.slice(1, 3)]).unwrap();
            let found = sent_bodies(&store);
            let expected: Vec<_> = expected[1..4].iter().map(|v| v.as_bytes()).collect();
            assert_eq!(found, expected, "{shown}");
            assert_eq!(imported.count, 3);
        }
    }
}

type Pairs<'a> = &'a [(&'a str, Option<&'a str>)];

/// A map array with one row for each list of pairs.
fn map(rows: &[Option<Pairs<'_>>]) -> ArrayRef {
    let names = MapFieldNames {
        entry: "entries".into(),
        key: "key".into(),
        value: "value".into(),
    };
    let mut map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for row in rows {
        for (key, value) in row.unwrap_or_default() {
            map.keys().append_value(key);
            map.values().append_option(*value);
        }
        map.append(row.is_some()).unwrap();
    }
    Arc::new(map.finish())
}

fn lists(rows: &[Option<&[&str]>]) -> ArrayRef {
    let mut list = ListBuilder::new(StringBuilder::new());
    for row in rows {
        for value in row.unwrap_or_default() {
            list.values().append_value(value);
        }
        list.append(row.is_some());
    }
    Arc::new(list.finish())
}

#[test]
fn every_column_reaches_the_message() {
    let store = store();
    let tags: DictionaryArray<types::Int32Type> =
        [Some("paid"), None, Some("paid")].into_iter().collect();
    let columns: Columns = vec![
        ("tags", array(tags)),
        ("body", array(BinaryArray::from_vec(vec![b"0", b"1", b"2"]))),
        (
            "keys",
            array(StringArray::from(vec![Some("a b"), None, Some("")])),
        ),
        (
            "properties",
            map(&[Some(&[("x", Some("1")), ("y", Some("2"))]), None, Some(&[])]),
        ),
        (
            "queue",
            array(UInt16Array::from(vec![Some(5), None, Some(7)])),
        ),
        (
            "timestamp",
            array(
                TimestampMicrosecondArray::from(vec![Some(-1), Some(2_999), None])
                    .with_timezone("UTC"),
            ),
        ),
    ];
    let imported = import(&store, vec![batch(columns)]).unwrap();
    let messages = sent(&store);
    assert_eq!(messages[0].keys(), ["a", "b"]);
    assert!(messages[1].keys().is_empty() && messages[2].keys().is_empty());
    let tags: Vec<_> = messages.iter().map(Message::tags).collect();
    assert_eq!(tags, [Some("paid".into()), None, Some("paid".into())]);
    let own = messages[0].properties(PropertyKind::User);
    assert_eq!(
        own.into_iter().collect::<Vec<_>>(),
        [("x".into(), "1".into()), ("y".into(), "2".into())]
    );
    assert!(messages[1].properties(PropertyKind::User).is_empty());
    let queue = |row: usize| messages[row].record().queue_id();
    assert_eq!((queue(0), queue(2)), (5, 7));
    let born: Vec<_> = messages
        .iter()
        .map(|m| m.record().born_timestamp())
        .collect();
    assert_eq!(born[..2], [-1, 2], "rounded down, even before the epoch");
    assert!(
        born[2] > 1_600_000_000_000,
        "the current time if none is given"
    );
    assert_eq!(imported.count, 3);
    assert_eq!(imported.ranges[&5], vec![0..1; 1]);
    assert_eq!(imported.ranges.len(), 3);
}

#[test]
fn keys_are_text_or_lists_and_one_key_is_not_split() {
    let body = || array(BinaryArray::from_vec(vec![b"0", b"1"]));
    let run = |name: &'static str, keys: ArrayRef| -> Result<Vec<Vec<String>>> {
        let store = store();
        import(&store, vec![batch(vec![("body", body()), (name, keys)])])?;
        let keys = |m: &Message| m.keys().iter().map(ToString::to_string).collect();
        Ok(sent(&store).iter().map(keys).collect())
    };
    let two = [vec!["k1".to_owned(), "k2".to_owned()], vec![]];
    assert_eq!(
        run(
            "keys",
            array(StringViewArray::from(vec![Some("k1 k2"), None]))
        )
        .unwrap(),
        two
    );
    assert_eq!(
        run("keys", lists(&[Some(&["k1", "k2"]), None])).unwrap(),
        two
    );
    assert_eq!(
        run("key", lists(&[Some(&["k1", "k2"]), Some(&[])])).unwrap(),
        two
    );
    let bytes = BinaryArray::from_opt_vec(vec![Some(b"k1"), None]);
    assert_eq!(
        run("key", array(bytes)).unwrap(),
        [vec!["k1".to_owned()], vec![]]
    );
    let error = run("key", array(StringArray::from(vec![Some("k1 k2"), None]))).unwrap_err();
    assert!(
        error.to_string().starts_with("row 0: key is \"k1 k2\""),
        "{error}"
    );
    let nulls = run("key", array(NullArray::new(2))).unwrap();
    assert_eq!(
        nulls,
        [vec![], Vec::<String>::new()],
        "a column of type null has no values"
    );
}

#[test]
fn an_unsuitable_schema_is_rejected_with_column_and_type() {
    let body = || array(BinaryArray::from_vec(vec![b"0"]));
    let number = || array(Int32Array::from(vec![1]));
    let cases: Vec<(Columns, &[&str])> = vec![
        (
            vec![("body", body()), ("colour", number())],
            &["\"colour\"", "unknown", "timestamp"],
        ),
        (vec![("body", number())], &["\"body\"", "Int32", "binary"]),
        (
            vec![("body", body()), ("tags", number())],
            &["\"tags\"", "Int32"],
        ),
        (
            vec![("body", body()), ("keys", number())],
            &["\"keys\"", "Int32", "list"],
        ),
        (
            vec![("body", body()), ("properties", body())],
            &["\"properties\"", "Binary", "map"],
        ),
        (
            vec![("body", body()), ("queue", body())],
            &["\"queue\"", "Binary", "integer"],
        ),
        (
            vec![("body", body()), ("timestamp", number())],
            &["\"timestamp\"", "Int32"],
        ),
        (
            vec![
                ("body", body()),
                (
                    "timestamp",
                    array(TimestampMicrosecondArray::from(vec![Some(1)])),
                ),
            ],
            &["\"timestamp\"", "Timestamp", "zone", "int64"],
        ),
        (
            vec![("tags", array(StringArray::from(vec!["x"])))],
            &["\"tags\"", "body", "needed"],
        ),
        (
            vec![("body", body()), ("value", body())],
            &["\"value\"", "one column"],
        ),
        (
            vec![("body", array(NullArray::new(1)))],
            &["\"body\"", "Null"],
        ),
        (
            vec![("body", body()), ("key", body()), ("keys", body())],
            &["\"keys\"", "one column"],
        ),
    ];
    for (columns, words) in cases {
        let store = store();
        let error = import(&store, vec![batch(columns)]).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(sent(&store).len(), 0);
    }
}

#[test]
fn a_rejected_row_is_numbered_over_all_batches_and_its_chunk_is_not_sent() {
    let good = || array(BinaryArray::from_vec(vec![b"0", b"1"]));
    let not_text = BinaryArray::from_vec(vec![b"fine", b"\xFFine"]);
    let rows: Vec<(Columns, &str)> = vec![
        (
            vec![(
                "body",
                array(BinaryArray::from_opt_vec(vec![Some(b"0"), None])),
            )],
            "body is None: the engines commitlog and memory have no tombstones",
        ),
        (
            vec![("body", good()), ("tags", array(not_text))],
            "not UTF-8",
        ),
        (
            vec![
                ("body", good()),
                ("tags", array(StringArray::from(vec!["a", " "]))),
            ],
            "tag",
        ),
        (
            vec![
                ("body", good()),
                ("queue", array(Int8Array::from(vec![0, -1]))),
            ],
            "queue must be between 0 and 65535, got -1",
        ),
        (
            vec![
                ("body", good()),
                ("queue", array(UInt64Array::from(vec![0, u64::MAX]))),
            ],
            "queue must be",
        ),
        (
            vec![
                ("body", good()),
                ("queue", array(Int64Array::from(vec![0, 8]))),
            ],
            "no queue 8",
        ),
        (
            vec![
                ("body", good()),
                ("properties", map(&[None, Some(&[("KEYS", Some("x"))])])),
            ],
            "reserved",
        ),
        (
            vec![
                ("body", good()),
                ("properties", map(&[None, Some(&[("n", None)])])),
            ],
            "null",
        ),
    ];
    for (columns, words) in rows {
        let store = store();
        let bad = batch(columns);
        let error = import(&store, vec![bad.slice(0, 1), bad]).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Row { row: 2, .. }), "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(sent(&store).len(), 0, "{text}");
    }
}

#[test]
fn batches_of_one_reader_are_sent_as_one_batch() {
    let store = store();
    let part = |from: u8| {
        batch(vec![(
            "body",
            array(BinaryArray::from_vec(vec![&[from], &[from + 1]])),
        )])
    };
    let empty = part(0).slice(0, 0);
    let all = vec![empty.clone(), part(0), empty, part(2), part(4)];
    let imported = import(&store, all).unwrap();
    assert_eq!(sent_bodies(&store), [[0], [1], [2], [3], [4], [5]]);
    let queues: std::collections::HashSet<_> =
        sent(&store).iter().map(|m| m.record().queue_id()).collect();
    assert_eq!(
        queues.len(),
        1,
        "rows without queue and key go to one queue"
    );
    assert_eq!(imported.ranges.values().next().unwrap(), &vec![0..6; 1]);
    assert_eq!(
        (imported.count, imported.end, imported.durable),
        (6, 6, true)
    );
    let nothing = import(&store, vec![part(0).slice(0, 0)]).unwrap();
    assert_eq!((nothing.count, nothing.ranges.len()), (0, 0));
}

#[test]
fn ranges_join_over_chunks_of_one_queue() {
    let store = store();
    let body = vec![7u8; 1 << 20];
    let bodies: Vec<&[u8]> = vec![&body; 10];
    let imported = import(
        &store,
        vec![batch(vec![("body", array(BinaryArray::from_vec(bodies)))])],
    );
    let imported = imported.unwrap();
    assert_eq!(
        imported.ranges.into_values().collect::<Vec<_>>(),
        [vec![0..10; 1]]
    );
}

#[test]
fn an_atomic_import_is_bounded_and_sends_all_or_nothing() {
    let store = store();
    let body = vec![7u8; 4 << 20];
    let bodies: Vec<&[u8]> = vec![&body; 9];
    let part = batch(vec![("body", array(BinaryArray::from_vec(bodies)))]);
    let error =
        import_with(&store, vec![part.clone(), part.clone()], Atomicity::Whole).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(sent(&store).len(), 0);
    assert_eq!(
        import_with(&store, vec![part], Atomicity::Whole)
            .unwrap()
            .count,
        9
    );
}

#[test]
fn a_scan_can_be_sent() {
    let store = store();
    let draft = Draft {
        body: b"a body that is longer than a view",
        keys: &["k1", "k2"],
        tags: Some("t"),
        properties: &[("p", "v")],
        ..Draft::default()
    };
    send(&producer(&store, "from"), &draft);
    for body_type in [BodyType::Binary, BodyType::BinaryView] {
        let columns = [
            Column::Body,
            Column::Keys,
            Column::Tags,
            Column::Properties,
            Column::Queue,
        ];
        let spec = ScanSpec {
            topics: topic("from"),
            columns: Some(columns.to_vec()),
            body_type,
            ..ScanSpec::default()
        };
        import(&store, batches(&store, spec)).unwrap();
        let copy = sent(&store).pop().unwrap();
        assert_eq!(copy.topic(), "a");
        assert_eq!(copy.body().unwrap(), draft.body);
        assert_eq!(copy.keys(), ["k1", "k2"]);
        assert_eq!(copy.tags().unwrap(), "t");
        assert_eq!(copy.properties(PropertyKind::User)["p"], "v");
    }
}

#[test]
fn a_reader_that_fails_or_panics_is_an_error() {
    struct Bad(Arc<Schema>, bool);
    impl Iterator for Bad {
        type Item = std::result::Result<RecordBatch, ArrowError>;
        fn next(&mut self) -> Option<Self::Item> {
            assert!(!self.1, "the test panics here");
            Some(Err(ArrowError::ComputeError("a failed computation".into())))
        }
    }
    impl RecordBatchReader for Bad {
        fn schema(&self) -> Arc<Schema> {
            Arc::clone(&self.0)
        }
    }
    let store = store();
    let schema = Arc::new(Schema::new(vec![Field::new(
        "body",
        DataType::Binary,
        true,
    )]));
    for (panics, words) in [(false, "a failed computation"), (true, "breaks the rules")] {
        let bad = Bad(Arc::clone(&schema), panics);
        let producer = producer(&store, "a");
        let (rows, default) = (Atomicity::Rows, Durability::Default);
        let error = send_arrow(&producer, bad, rows, default, &mut || true).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    // A batch that does not match the schema is rejected.
    let other = batch(vec![("body", array(Int32Array::from(vec![1])))]);
    let reader = RecordBatchIterator::new(vec![Ok(other)], schema);
    let result = send_arrow(
        &producer(&store, "a"),
        reader,
        Atomicity::Rows,
        Durability::Default,
        &mut || true,
    );
    assert!(matches!(result, Err(Error::InvalidOption { .. })));
    assert_eq!(sent(&store).len(), 0);
}

#[test]
fn a_send_that_is_stopped_keeps_whole_chunks_or_nothing() {
    for (atomicity, kept) in [(Atomicity::Rows, 1), (Atomicity::Whole, 0)] {
        let store = store();
        // Slightly more than three chunks.
        let bodies = vec![[0_u8; 1024].as_slice(); 13_000];
        let all = batch(vec![("body", array(BinaryArray::from(bodies)))]);
        let reader = RecordBatchIterator::new([Ok(all.clone())], all.schema());
        let producer = producer(&store, "a");
        let mut calls = 0;
        let mut go_on = || {
            calls += 1;
            calls <= 7
        };
        let default = Durability::Default;
        let stopped = send_arrow(&producer, reader, atomicity, default, &mut go_on).unwrap();
        assert_eq!(calls, 8);
        let rows = sent(&store).len() as u64;
        assert_eq!(rows, stopped.count);
        // Seven times 1024 rows were taken: more than one chunk of 4 MiB, less than two.
        assert_eq!(rows > 0, kept > 0, "{rows}");
        assert!(rows < 7 * 1024);
    }
}
