//! The columns and types of Spark's dialect.

use super::*;
use crate::Error;
use arrow_array::types::TimestampMicrosecondType;
use arrow_schema::{DataType, TimeUnit};

fn spec(columns: &[&str]) -> ScanSpec {
    let columns = columns
        .iter()
        .map(|name| Column::parse(name, Dialect::Spark).unwrap());
    ScanSpec {
        columns: Some(columns.collect()),
        dialect: Dialect::Spark,
        ..ScanSpec::default()
    }
}

const KAFKA: [&str; 8] = [
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
];

#[test]
fn types_are_accepted_by_spark_and_every_column_is_nullable() {
    let store = store();
    let names: Vec<&str> = KAFKA
        .into_iter()
        .chain(
            Column::all()
                .map(Column::name)
                .filter(|n| !KAFKA.contains(n)),
        )
        .collect();
    let schema = Scan::new(&store, spec(&names)).unwrap().schema();
    assert!(schema.fields().iter().all(|field| field.is_nullable()));
    let found: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(found, names);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    for (name, expected) in [
        ("key", DataType::Binary),
        ("value", DataType::Binary),
        ("topic", DataType::Utf8),
        ("partition", DataType::Int32),
        ("timestamp", time.clone()),
        ("timestampType", DataType::Int32),
        ("store_timestamp", time.clone()),
        ("born_timestamp", time),
        ("body", DataType::Binary),
    ] {
        assert_eq!(
            schema.field_with_name(name).unwrap().data_type(),
            &expected,
            "{name}"
        );
    }
}

#[test]
fn columns_hold_what_the_messages_hold() {
    let store = store();
    let producer = store.producer("orders", Some(2)).unwrap();
    let draft = Draft {
        body: b"hello",
        keys: &["k1", "k2"],
        properties: &[("z", "1"), ("a", "x")],
        born_timestamp: Some(1_700_000_000_123),
        ..Draft::default()
    };
    send(&producer, &draft);
    send(&producer, &Draft::default());
    send_bodies(&store, "bills", 0, &[b"other"]);
    let mut spec = spec(&KAFKA);
    spec.topics = Some(vec!["orders".to_owned(), "bills".to_owned()]);
    let found = batches(&store, spec);
    assert_eq!(found.len(), 1);
    let batch = &found[0];
    let keys: Vec<_> = batch["key"].as_binary::<i32>().iter().collect();
    assert_eq!(keys, [Some(&b"k1"[..]), None, None]);
    let values: Vec<_> = batch["value"].as_binary::<i32>().iter().flatten().collect();
    assert_eq!(values, [&b"hello"[..], b"", b"other"]);
    let topics: Vec<_> = texts(&found, "topic").into_iter().flatten().collect();
    assert_eq!(topics, ["orders", "orders", "bills"]);
    let partitions = batch["partition"].as_primitive::<Int32Type>();
    assert_eq!(partitions.values(), &[2, 2, 0]);
    assert_eq!(longs(&found, "offset"), [0, 1, 0]);
    let times = batch["timestamp"].as_primitive::<TimestampMicrosecondType>();
    let stored = store
        .get("orders", 2, 0)
        .unwrap()
        .record()
        .store_timestamp();
    assert_eq!(times.value(0), stored * 1000);
    let types = batch["timestampType"].as_primitive::<Int32Type>();
    assert_eq!(types.values(), &[1, 1, 1]);
    let headers = batch["headers"].as_list::<i32>();
    assert_eq!((headers.is_null(0), headers.is_null(1)), (false, true));
    let first = headers.value(0);
    let names = first.as_struct().column(0).as_string::<i32>();
    assert_eq!(names.iter().flatten().collect::<Vec<_>>(), ["z", "a"]);
}

#[test]
fn a_time_out_of_the_range_of_microseconds_is_clamped() {
    let born = |time: i64| {
        let draft = Draft::default();
        record(&draft, 0, |bytes| {
            bytes[40..48].copy_from_slice(&time.to_be_bytes());
        })
    };
    let mut shape = shape(&[Column::BornTimestamp], BodyType::Binary);
    shape.dialect = Dialect::Spark;
    let source = crate::arrow::source::Source::found(messages(0, &[born(i64::MIN), born(7)]));
    let mut stream = Stream::new(source, shape, Default::default());
    let batch = stream.next_batch().unwrap().unwrap();
    let times = batch["born_timestamp"].as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values(), &[i64::MIN, 7000]);
}

#[test]
fn columns_and_types_missing_in_a_dialect_are_rejected() {
    let store = store();
    let mut wrong = spec(&["partition"]);
    wrong.dialect = Dialect::Arrow;
    let error = Scan::new(&store, wrong).err().unwrap();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    assert!(error.to_string().contains("\"partition\""), "{error}");
    let mut wrong = spec(&["value"]);
    wrong.body_type = BodyType::BinaryView;
    let error = Scan::new(&store, wrong).err().unwrap();
    assert!(error.to_string().contains("binary_view"), "{error}");
}
