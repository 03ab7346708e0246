//! Random operations give the same results on an engine as on the memory engine, its model.
//!
//! Positions and times differ between engines, so the results leave them out. They are checked on
//! each engine separately.

use crate::bed::{Bed, Kind};
use crate::draw::proptest_config;
use forebay::PropertyKind;
use forebay::Rows;
use forebay::{Atomicity, Check, Draft, Durability, Error, Filter, Message, Result};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const TOPICS: [&str; 5] = ["orders", "bills", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "a b"];
/// The first two have the same hash; the last is not a valid key.
const KEYS: [&str; 6] = ["Aa", "BB", "k1", "k2", "schl\u{fc}ssel", "a b"];
/// The first two have the same hash; the last is not a valid tag.
const TAGS: [&str; 4] = ["Aa", "BB", "paid", "*"];
/// The last is above the limit of the tests' stores.
const BODY_LENS: [usize; 6] = [0, 1, 100, 3_000, 16 << 10, (16 << 10) + 1];

#[derive(Clone, Debug)]
enum Operation {
    Send {
        topic: usize,
        row: Row,
        delay: u8,
        durability: Durability,
    },
    Batch {
        topic: usize,
        rows: Vec<Row>,
        atomicity: Atomicity,
    },
    CreateTopic {
        topic: usize,
        queues: u32,
    },
    Read {
        place: (usize, u32, i64),
        max: usize,
        bytes: Option<u64>,
        filter: FilterOf,
    },
    Get {
        place: (usize, u32, i64),
    },
    Scan {
        place: (usize, u32, i64),
        len: u64,
        filter: FilterOf,
    },
    Query {
        topic: usize,
        key: usize,
        max: usize,
    },
    OffsetAt {
        place: (usize, u32, i64),
    },
    Topics,
    Flush,
    Verify,
    Reopen,
}

/// A draft with owned values.
#[derive(Clone, Debug)]
struct Row {
    queue: Option<u32>,
    keys: Vec<usize>,
    tags: Option<usize>,
    body: (usize, u8),
    properties: Vec<(String, String)>,
    flag: i32,
}

#[derive(Clone, Debug)]
struct FilterOf {
    tags: Vec<usize>,
    key: Option<usize>,
}

/// An index below `len`, rarely the last one, which is rejected.
fn mostly_good(len: usize) -> impl Strategy<Value = usize> + Clone {
    prop_oneof![30 => 0..len - 1, 1 => Just(len - 1)]
}

fn topic() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![10 => Just(0), 5 => Just(1), 2 => Just(2), 1 => Just(3), 1 => Just(4)]
}

fn queue() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![10 => Just(0), 4 => 1..4u32, 1 => 4..7u32]
}

fn row() -> impl Strategy<Value = Row> {
    let keys = prop::collection::vec(mostly_good(KEYS.len()), 0..3);
    let tags = prop::option::of(mostly_good(TAGS.len()));
    let properties = prop::collection::vec(("[a-z]{1,4}|KEYS", "[a-z]{1,9}"), 0..2);
    let body = (mostly_good(BODY_LENS.len()), any::<u8>());
    let parts = (
        prop::option::of(queue()),
        keys,
        tags,
        body,
        properties,
        any::<i32>(),
    );
    parts.prop_map(|(queue, keys, tags, body, properties, flag)| Row {
        // Otherwise queues are chosen in turn. The turns restart when a store is opened, so they
        // would differ from the model's.
        queue: queue.or(keys.is_empty().then_some(0)),
        keys,
        tags,
        body,
        properties,
        flag,
    })
}

fn filter() -> impl Strategy<Value = FilterOf> {
    let parts = (
        prop::collection::vec(0..TAGS.len(), 0..3),
        prop::option::weighted(0.3, 0..KEYS.len()),
    );
    prop_oneof![
        1 => parts.prop_map(|(tags, key)| FilterOf { tags, key }),
        1 => Just(FilterOf { tags: Vec::new(), key: None }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let place = (topic(), queue(), -2..60i64);
    let delay = prop_oneof![12 => Just(0u8), 1 => 1..=19u8];
    let durability = prop_oneof![
        6 => Just(Durability::Default),
        1 => Just(Durability::Flushed),
        1 => Just(Durability::Written),
    ];
    let atomicity = prop_oneof![Just(Atomicity::Rows), Just(Atomicity::Whole)];
    let rows = prop::collection::vec(row(), 0..12);
    let bytes = prop::option::weighted(0.3, 0..20_000u64);
    prop_oneof![
        12 => (topic(), row(), delay, durability)
            .prop_map(|(topic, row, delay, durability)| {
                Operation::Send { topic, row, delay, durability }
            }),
        5 => (topic(), rows, atomicity)
            .prop_map(|(topic, rows, atomicity)| Operation::Batch { topic, rows, atomicity }),
        1 => (topic(), 0..8u32)
            .prop_map(|(topic, queues)| Operation::CreateTopic { topic, queues }),
        5 => (place.clone(), 1..40usize, bytes, filter())
            .prop_map(|(place, max, bytes, filter)| Operation::Read { place, max, bytes, filter }),
        3 => place.clone().prop_map(|place| Operation::Get { place }),
        3 => (place.clone(), 0..60u64, filter())
            .prop_map(|(place, len, filter)| Operation::Scan { place, len, filter }),
        3 => (topic(), 0..KEYS.len(), 0..40usize)
            .prop_map(|(topic, key, max)| Operation::Query { topic, key, max }),
        2 => place.prop_map(|place| Operation::OffsetAt { place }),
        1 => Just(Operation::Topics),
        1 => Just(Operation::Flush),
        1 => Just(Operation::Verify),
        2 => Just(Operation::Reopen),
    ]
}

/// Kind of an error, with its row if there is one.
fn kind(error: &Error) -> String {
    if let Error::Row { row, source } = error {
        return format!("row {row}: {}", kind(source));
    }
    let text = format!("{error:?}");
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// All fields of a message except its position and times.
fn describe(message: &Message) -> String {
    let record = message.record();
    let body = message.body().unwrap();
    format!(
        "{}/{}@{} keys {:?} tags {:?} user {:?} system {:?} flag {} body {} {:?}",
        message.topic(),
        record.queue_id(),
        record.queue_offset(),
        message.keys(),
        message.tags(),
        message.properties(PropertyKind::User),
        message.properties(PropertyKind::System),
        record.flag(),
        body.len(),
        body.first(),
    )
}

fn answer<T>(result: Result<T>, describe: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => describe(value),
        Err(error) => kind(&error),
    }
}

impl FilterOf {
    fn filter(&self) -> Filter {
        Filter {
            tags: self.tags.iter().map(|tag| TAGS[*tag].to_owned()).collect(),
            key: self.key.map(|key| KEYS[key].into()),
        }
    }
}

/// Calls `send` with the drafts of `rows`.
fn with_drafts<T>(rows: &[Row], send: impl FnOnce(Vec<Draft<'_>>) -> T) -> T {
    let keys: Vec<Vec<&str>> = rows
        .iter()
        .map(|row| row.keys.iter().map(|key| KEYS[*key]).collect())
        .collect();
    let bodies: Vec<Vec<u8>> = rows
        .iter()
        .map(|row| vec![row.body.1; BODY_LENS[row.body.0]])
        .collect();
    let properties: Vec<Vec<(&str, &str)>> = rows
        .iter()
        .map(|row| row.properties.iter().map(|(n, v)| (&**n, &**v)).collect())
        .collect();
    let drafts = rows.iter().enumerate().map(|(index, row)| Draft {
        body: &bodies[index],
        keys: &keys[index],
        tags: row.tags.map(|tags| TAGS[tags]),
        properties: &properties[index],
        queue: row.queue,
        flag: row.flag,
        ..Draft::default()
    });
    send(drafts.collect())
}

/// Does one operation and returns its result as text.
fn apply(bed: &mut Bed, operation: &Operation) -> String {
    match operation {
        Operation::Send {
            topic,
            row,
            delay,
            durability,
        } => send(bed, TOPICS[*topic], row, *delay, *durability),
        Operation::Batch {
            topic,
            rows,
            atomicity,
        } => send_batch(bed, TOPICS[*topic], rows, *atomicity),
        Operation::CreateTopic { topic, queues } => {
            let created = bed.store.create_topic(TOPICS[*topic], *queues);
            answer(created, |topic| format!("{} queues", topic.write_queues()))
        }
        Operation::Read {
            place,
            max,
            bytes,
            filter,
        } => read(bed, *place, *max, *bytes, &filter.filter()),
        Operation::Get {
            place: (topic, queue, offset),
        } => {
            let found = bed.store.get(TOPICS[*topic], *queue, *offset);
            answer(found, |message| describe(&message))
        }
        Operation::Scan { place, len, filter } => scan(bed, *place, *len, &filter.filter()),
        Operation::Query { topic, key, max } => {
            let (begin, end) = (i64::MIN, i64::MAX);
            let found = bed
                .store
                .query(TOPICS[*topic], KEYS[*key], begin, end, *max);
            answer(found, |found| {
                found.iter().map(describe).collect::<Vec<_>>().join("\n")
            })
        }
        Operation::OffsetAt { place } => offset_at(bed, *place),
        Operation::Topics => list_topics(bed),
        Operation::Flush => {
            let end = bed.store.engine().unwrap().readable_position();
            assert_eq!(bed.store.flush().unwrap(), end);
            "flushed".to_owned()
        }
        Operation::Verify => {
            let report = bed.store.verify(&mut |_, _| true).unwrap();
            let markers = marker_count(bed);
            format!(
                "{} records, damage {:?}",
                report.queue_entries - markers,
                report.damage
            )
        }
        Operation::Reopen => {
            bed.reopen();
            "open".to_owned()
        }
    }
}

/// Number of records that an engine adds around atomic batches.
fn marker_count(bed: &Bed) -> u64 {
    let engine = bed.store.engine().unwrap();
    let own = engine.topics().get("rmq_sys_forebay_atomic");
    own.map_or(0, |topic| {
        engine
            .bounds(&topic, 0)
            .unwrap()
            .map_or(0, |range| range.end)
    })
}

fn send(bed: &Bed, topic: &str, row: &Row, delay: u8, durability: Durability) -> String {
    let sent = with_drafts(std::slice::from_ref(row), |drafts| {
        let producer = bed.store.producer(topic, None)?;
        producer.send(&drafts[0], delay, durability)
    });
    answer(sent, |sent| {
        let message = bed.store.message_at(sent.place.position).unwrap();
        assert_eq!(message.record().store_timestamp(), sent.store_timestamp);
        assert!(sent.durable || durability != Durability::Flushed);
        describe(&message)
    })
}

fn send_batch(bed: &Bed, topic: &str, rows: &[Row], atomicity: Atomicity) -> String {
    let sent = with_drafts(rows, |drafts| {
        let producer = bed.store.producer(topic, None)?;
        producer.send_batch(drafts.into_iter().map(Ok), atomicity, Durability::Default)
    });
    answer(sent, |sent| {
        let messages = sent.rows.iter().map(|place| {
            let message = bed.store.message_at(place.position).unwrap();
            assert_eq!(message.record().queue_offset() as u64, place.offset);
            describe(&message)
        });
        messages.collect::<Vec<_>>().join("\n")
    })
}

fn read(
    bed: &Bed,
    (topic, queue, offset): (usize, u32, i64),
    max: usize,
    bytes: Option<u64>,
    filter: &Filter,
) -> String {
    let batch = bed
        .store
        .read(TOPICS[topic], queue, offset, max, bytes, filter);
    answer(batch, |batch| {
        let messages: Vec<String> = batch.messages.iter().map(describe).collect();
        let bounds = batch.min_offset..batch.max_offset;
        format!(
            "{:?} next {} of {bounds:?} {messages:#?}",
            batch.status, batch.next_offset
        )
    })
}

fn scan(bed: &Bed, (topic, queue, start): (usize, u32, i64), len: u64, filter: &Filter) -> String {
    let start = start.max(0) as u64;
    let found = bed.store.topic(TOPICS[topic]).and_then(|topic| {
        let engine = bed.store.engine()?;
        let mut cursor = engine.cursor(&topic, queue, start..start + len, filter, Check::Full)?;
        let mut found = String::new();
        let mut rows = Rows::default();
        loop {
            rows.clear();
            cursor.next(5, &mut rows)?;
            if rows.rows.is_empty() {
                return Ok(found);
            }
            for row in &rows.rows {
                found += &describe(&rows.message(row).unwrap());
                found.push('\n');
            }
        }
    });
    answer(found, |found| found)
}

/// Times differ between the engines, so this checks the rule of the search instead.
fn offset_at(bed: &Bed, (topic, queue, offset): (usize, u32, i64)) -> String {
    let (name, store) = (TOPICS[topic], &bed.store);
    let Ok(message) = store.get(name, queue, offset) else {
        let ends = [i64::MIN, i64::MAX].map(|time| {
            answer(store.offset_at(name, queue, time), |offset| {
                offset.to_string()
            })
        });
        return ends.join(" ");
    };
    let time = message.record().store_timestamp();
    let found = store.offset_at(name, queue, time).unwrap() as i64;
    let time_of = |offset| {
        let message = store.get(name, queue, offset).unwrap();
        message.record().store_timestamp()
    };
    assert!(found <= offset && time_of(found) == time);
    assert!(found == 0 || time_of(found - 1) < time);
    "found".to_owned()
}

fn list_topics(bed: &Bed) -> String {
    let engine = bed.store.engine().unwrap();
    let describe = |topic: &forebay::Topic| {
        let queues = engine.queues(topic).into_iter();
        let bounds = queues.map(|queue| (queue, engine.bounds(topic, queue).unwrap()));
        let queues = (
            topic.write_queues(),
            topic.read_queues(),
            topic.permissions(),
        );
        format!("{} {queues:?} {:?}", topic.name, bounds.collect::<Vec<_>>())
    };
    let mut topics: Vec<String> = engine
        .topics()
        .all()
        .iter()
        .filter(|topic| !topic.name.starts_with(forebay::internals::OWN_TOPIC_PREFIX))
        .map(|t| describe(t))
        .collect();
    topics.sort_unstable();
    topics.join("\n")
}

suite! {
    /// The memory engine itself is compared with one without an index.
    fn random_operations_give_the_results_of_the_memory_engine(bed) {
        let mut config = proptest_config();
        if std::env::var_os("PROPTEST_CASES").is_none() {
            config.cases = 64;
        }
        let mut runner = TestRunner::new(config);
        let operations = prop::collection::vec(operation(), 1..60);
        let result = runner.run(&operations, |operations| {
            let mut model = Bed::new(Kind::Memory);
            let mut engine = bed.another(|options| options.index = Some(bed.persists()));
            let last = [Operation::Reopen, Operation::Topics, Operation::Verify];
            for operation in operations.iter().chain(&last) {
                let expected = apply(&mut model, operation);
                let found = apply(&mut engine, operation);
                prop_assert_eq!(found, expected, "{:?}", operation);
            }
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}\n{runner}");
        }
    }
}
