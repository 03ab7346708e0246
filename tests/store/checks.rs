//! Flipped bits: no way of reading returns a message that was not sent, and all ways agree.

use crate::recovery::{crashed, edit, log_file};
use crate::world::{Place, Sent, World, write};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay::{AtEnd, Step};
use forebay::{
    Bound, Column, Dialect, Error, Filter, Message, Scan, ScanSpec, Store, Stream, Tail,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Positions and bodies that a reader found.
type Found = BTreeMap<u64, Vec<u8>>;

/// Streams that began before the damage.
struct Streams {
    topics: Vec<Stream>,
    all: Stream,
}

const TOPICS: [&str; 3] = ["orders", "bills", "rare"];

fn stream(store: &Store, topics: Option<Vec<String>>) -> Stream {
    let columns = ["position", "body"].map(|name| Column::parse(name, Dialect::Arrow).unwrap());
    let spec = ScanSpec {
        topics,
        columns: Some(columns.to_vec()),
        ..ScanSpec::default()
    };
    assert!(spec.verify, "the default");
    Scan::new(store, spec).unwrap().stream().unwrap()
}

fn rows_of(mut stream: Stream) -> Found {
    let mut found = Found::new();
    while let Some(batch) = stream.next_batch().unwrap() {
        let positions = batch["position"].as_primitive::<Int64Type>();
        let bodies = batch["body"].as_binary::<i32>();
        for (position, body) in positions.values().iter().zip(bodies.iter().flatten()) {
            assert!(found.insert(*position as u64, body.to_vec()).is_none());
        }
    }
    found
}

fn add(found: &mut Found, message: &Message) {
    let position = message.record().position() as u64;
    found.insert(position, message.body().unwrap().into_owned());
}

impl Streams {
    fn begin(store: &Store) -> Streams {
        let own = |topic: &str| stream(store, Some(vec![topic.to_owned()]));
        Streams {
            topics: TOPICS.into_iter().map(own).collect(),
            all: stream(store, None),
        }
    }

    /// The result of each way of reading, by its name.
    fn read(self, store: &Store, world: &World) -> Vec<(&'static str, Found)> {
        let topics = self.topics.into_iter().flat_map(rows_of).collect();
        let mut tails = Found::new();
        for topic in TOPICS {
            // The stream reads ahead, so the damage must exist before it reads on.
            let mut tail = Tail::new(store, topic, &Bound::Earliest, AtEnd::Stop).unwrap();
            while let Step::Message(message) = tail.next(Duration::ZERO).unwrap() {
                add(&mut tails, &message);
            }
        }
        let [mut got, mut by_position, mut read, mut queried] = [(); 4].map(|()| Found::new());
        for ((topic, queue, offset), sent) in &world.sent {
            take(&mut got, store.get(topic, *queue, *offset as i64));
            take(&mut by_position, store.message_at(sent.position));
            for key in &sent.keys {
                let found = store.query(topic, key, i64::MIN, i64::MAX, 100).unwrap();
                found.iter().for_each(|it| add(&mut queried, it));
            }
        }
        for (topic, queue) in world.next.keys() {
            let batch = store.read(topic, *queue, 0, 1000, None, &Filter::default());
            batch
                .unwrap()
                .messages
                .iter()
                .for_each(|it| add(&mut read, it));
        }
        vec![
            ("a scan of each topic", topics),
            ("a scan of all topics", rows_of(self.all)),
            ("tail", tails),
            ("get", got),
            ("by position", by_position),
            ("read", read),
            ("query", queried),
        ]
    }
}

/// Ignores errors: the caller sees which messages are missing.
fn take(found: &mut Found, message: Result<Message, Error>) {
    message.iter().for_each(|message| add(found, message));
}

#[test]
fn no_way_of_reading_returns_a_flipped_bit() {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, 40);
    world.check(&store);
    let log = place.root().join("commitlog/00000000000000000000");
    let log = File::options().read(true).write(true).open(log).unwrap();
    let with_key = |sent: &&Sent| !sent.keys.is_empty() && sent.body.len() == 100;
    let victim = world.sent.values().find(with_key).unwrap().clone();
    let len = store
        .message_at(victim.position)
        .unwrap()
        .record()
        .bytes()
        .len();
    // The last property is the checksum itself; with another name it is an unknown property.
    for at in 0..len - 20 {
        let streams = Streams::begin(&store);
        let (position, mut byte) = (victim.position + at as u64, [0]);
        log.read_exact_at(&mut byte, position).unwrap();
        log.write_all_at(&[byte[0] ^ 1 << (at % 8)], position)
            .unwrap();
        for (way, found) in streams.read(&store, &world) {
            for sent in world.sent.values() {
                let expected = match sent.position == victim.position {
                    true => None,
                    // Without a key no query can find it.
                    false if way == "query" && sent.keys.is_empty() => None,
                    false => Some(&sent.body),
                };
                let place = format!("{way}, byte {at} of {len}, position {}", sent.position);
                assert_eq!(found.get(&sent.position), expected, "{place}");
            }
        }
        log.write_all_at(&byte, position).unwrap();
    }
    world.check(&store);
    store.close().unwrap();
}

/// A process dies, and the checksum of an intact record goes bad. Opening accepts the record by its
/// body, as every later reader does, so each opening finds the same messages.
#[test]
fn a_missing_checksum_of_an_intact_record_loses_no_message() {
    let (place, world) = crashed(100);
    let ((topic, queue, offset), first) = world.sent.first_key_value().unwrap();
    let (path, at) = log_file(&place.root(), first.position);
    let log = fs::read(&path).unwrap();
    let len = log[usize::try_from(at).unwrap()..].first_chunk().unwrap();
    let end = at + u64::from(u32::from_be_bytes(*len));
    edit(&path, end - 20, b"__CRC32?");
    for _ in 0..3 {
        let store = write(&place.root());
        assert_eq!(store.damage(), []);
        assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
        let message = store.get(topic, *queue, (*offset).cast_signed()).unwrap();
        assert_eq!(message.body().unwrap(), first.body);
        store.close().unwrap();
    }
}
