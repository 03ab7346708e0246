//! Scans and imports against the memory engine, and against records made by hand.

mod bodies;
mod edge;
mod import;
mod model;
mod scan;
mod spark;

use crate::engine::{Atomicity, Durability};
use crate::record::rocketmq::layout::sys_flag;
use crate::record::{Draft, Form, HostBytes, Message, RecordStyle};
use crate::region::Region;
use crate::{BodyType, Column, Dialect, Options, Producer, Scan, ScanSpec, Store, Stream};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, StructArray};
use std::path::Path;
use std::sync::Arc;

/// An empty store in memory.
fn store() -> Store {
    Store::open(":memory:", Options::default()).unwrap()
}

fn producer(store: &Store, topic: &str) -> Producer {
    store.producer(topic, None).unwrap()
}

fn send(producer: &Producer, draft: &Draft<'_>) -> i64 {
    let sent = producer.send(draft, 0, Durability::Default).unwrap();
    sent.place.position as i64
}

fn send_bodies(store: &Store, topic: &str, queue: u32, bodies: &[&[u8]]) {
    let producer = store.producer(topic, Some(queue)).unwrap();
    for body in bodies {
        let draft = Draft {
            body,
            ..Draft::default()
        };
        send(&producer, &draft);
    }
}

fn topic(name: &str) -> Option<Vec<String>> {
    Some(vec![name.to_owned()])
}

fn stream(store: &Store, spec: ScanSpec) -> Stream {
    Scan::new(store, spec).unwrap().stream().unwrap()
}

/// All batches of a scan, each checked by Arrow's full validation.
fn batches(store: &Store, spec: ScanSpec) -> Vec<RecordBatch> {
    let found: Vec<_> = stream(store, spec).map(Result::unwrap).collect();
    found.iter().for_each(check);
    found
}

fn check(batch: &RecordBatch) {
    assert!(batch.num_rows() > 0, "an empty batch");
    StructArray::from(batch.clone())
        .to_data()
        .validate_full()
        .unwrap();
}

fn queues(batches: &[RecordBatch]) -> Vec<i32> {
    let column = |batch: &RecordBatch| batch["queue"].as_primitive::<Int32Type>().clone();
    let column = batches.iter().map(column);
    column.flat_map(|c| c.values().to_vec()).collect()
}

fn longs(batches: &[RecordBatch], name: &str) -> Vec<i64> {
    let column = |batch: &RecordBatch| batch[name].as_primitive::<Int64Type>().clone();
    let column = batches.iter().map(column);
    column.flat_map(|c| c.values().to_vec()).collect()
}

fn bodies(batches: &[RecordBatch]) -> Vec<Vec<u8>> {
    let of = |batch: &RecordBatch| -> Vec<Vec<u8>> {
        let column = &batch["body"];
        let values: Vec<_> = match column.as_binary_opt::<i32>() {
            Some(plain) => plain.iter().map(|b| b.unwrap().to_vec()).collect(),
            None => column
                .as_binary_view()
                .iter()
                .map(|b| b.unwrap().to_vec())
                .collect(),
        };
        values
    };
    batches.iter().flat_map(of).collect()
}

fn texts(batches: &[RecordBatch], name: &str) -> Vec<Option<String>> {
    let of = |batch: &RecordBatch| -> Vec<Option<String>> {
        let column = batch[name].as_string::<i32>();
        column.iter().map(|t| t.map(str::to_owned)).collect()
    };
    batches.iter().flat_map(of).collect()
}

/// A record that no draft can make: `change` modifies its bytes after encoding.
fn record(draft: &Draft<'_>, offset: u64, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let style = RecordStyle {
        host: HostBytes::new("127.0.0.1:10911".parse().unwrap()),
        checksum: false,
        max_message_size: 64 << 20,
    };
    let mut batch = Form::RocketMq(style).batch();
    batch.push("T", 3, draft, 7).unwrap();
    let mut bytes = batch.seal(0, offset, 1000 * offset, 8).to_vec();
    change(&mut bytes);
    bytes
}

/// A record whose stored body is `packed`, with this kind of compression.
fn packed_record(packed: &[u8], kind: u32, offset: u64) -> Vec<u8> {
    let draft = Draft {
        body: packed,
        ..Draft::default()
    };
    record(&draft, offset, |bytes| {
        let flag = sys_flag::COMPRESSED | kind << 8;
        bytes[36..40].copy_from_slice(&flag.to_be_bytes());
    })
}

/// The records in their own region, `before` bytes after its start.
fn messages(before: usize, records: &[Vec<u8>]) -> Vec<Message> {
    let len = before + records.iter().map(Vec::len).sum::<usize>();
    let region = Arc::new(Region::anonymous(len, Path::new("made-by-hand")).unwrap());
    let mut at = before;
    let mut starts = Vec::new();
    for record in records {
        region.write(at, record).unwrap();
        starts.push(at);
        at += record.len();
    }
    region.publish(len);
    let message = |start| Message::new(Arc::clone(&region), start).unwrap().unwrap();
    starts.into_iter().map(message).collect()
}

fn shape(columns: &[Column], body_type: BodyType) -> crate::arrow::schema::BatchShape {
    crate::arrow::schema::BatchShape {
        columns: columns.to_vec(),
        body_type,
        dialect: Dialect::Arrow,
        batch_rows: 65_536,
        batch_bytes: 16 << 20,
    }
}
