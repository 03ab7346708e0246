//! Stores written by the real RocketMQ are read message for message, as they were left and after
//! they are adopted.
//!
//! Each store comes with a listing of its contents as RocketMQ itself reported them. The repository
//! has small copies; the whole set is also read if the environment or the neighbouring folder has
//! it.

use crate::draw::Draw;
use crate::folder;
use base64_decode::decode;
use forebay::PropertyKind;
use forebay::Row;
use forebay::{Draft, Durability, Error, Filter, Message, Mode, Options, Store};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Place of a message: topic, queue, offset.
pub(crate) type Place = (String, u32, u64);

/// An unpacked store with its expected contents.
pub(crate) struct Golden {
    name: String,
    pub(crate) root: PathBuf,
    _dir: TempDir,
    /// Messages in queues.
    pub(crate) listed: BTreeMap<Place, Value>,
    /// Messages that are only in the log.
    hidden: Vec<Value>,
    digest: String,
}

fn small_set() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rocketmq")
}

/// The folder of the whole set, if it exists.
fn whole_set() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let folder = std::env::var_os("FOREBAY_FIXTURES").map_or(beside, PathBuf::from);
    Some(folder.join("rocketmq")).filter(|folder| folder.is_dir())
}

impl Golden {
    pub(crate) fn small(name: &str) -> Golden {
        Golden::unpack(&small_set(), name, name)
    }

    /// The files of `name`, checked against the listing under `listing`.
    fn unpack(set: &Path, name: &str, listing: &str) -> Golden {
        let dir = tempfile::tempdir().unwrap();
        let archive = open(set, &format!("{name}.tar"));
        tar::Archive::new(archive).unpack(dir.path()).unwrap();
        let mut text = String::new();
        open(set, &format!("{listing}.jsonl"))
            .read_to_string(&mut text)
            .unwrap();
        let (mut listed, mut hidden) = (BTreeMap::new(), Vec::new());
        for line in text.lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            match message["inQueue"].as_bool().unwrap() {
                true => drop(listed.insert(place_of(&message), message)),
                false => hidden.push(message),
            }
        }
        let verified = fs::read_to_string(set.join(format!("{listing}.verify.jsonl"))).unwrap();
        let totals: Value = serde_json::from_str(verified.lines().last().unwrap()).unwrap();
        assert_eq!(totals["messages"].as_u64().unwrap(), listed.len() as u64);
        Golden {
            name: name.to_owned(),
            root: dir.path().join(name),
            _dir: dir,
            listed,
            hidden,
            digest: totals["digest"].as_str().unwrap().to_owned(),
        }
    }

    pub(crate) fn read_only(&self) -> Store {
        let options = Options {
            mode: Mode::Read,
            ..Options::default()
        };
        Store::open(&self.root, options).unwrap()
    }

    fn adopt(&self) -> Store {
        folder::without_delayed_messages(&self.root);
        let options = Options {
            adopt: true,
            ..Options::default()
        };
        Store::open(&self.root, options).unwrap()
    }
}

/// A file of a set, unpacked according to its ending.
fn open(set: &Path, name: &str) -> Box<dyn Read> {
    let gz = set.join(format!("{name}.gz"));
    if gz.exists() {
        return Box::new(flate2::read::GzDecoder::new(fs::File::open(gz).unwrap()));
    }
    let zst = fs::File::open(set.join(format!("{name}.zst"))).unwrap();
    Box::new(zstd::Decoder::new(zst).unwrap())
}

fn long(message: &Value, field: &str) -> i64 {
    message[field].as_i64().unwrap()
}

fn place_of(message: &Value) -> Place {
    let topic = message["topic"].as_str().unwrap().to_owned();
    let (queue, offset) = (long(message, "queueId"), long(message, "queueOffset"));
    (topic, queue as u32, offset as u64)
}

/// Properties by the rules of the format, decoded independently by the test.
fn raw_properties(record: &Row<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for piece in record.raw_properties().split(|byte| *byte == 2) {
        let Some(at) = piece.iter().position(|byte| *byte == 1) else {
            continue;
        };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if at > 0 && at + 1 < piece.len() {
            found.insert(text(&piece[..at]), text(&piece[at + 1..]));
        }
    }
    found
}

fn listed_properties(listed: &Value) -> BTreeMap<String, String> {
    let properties = listed["properties"].as_object().unwrap().iter();
    properties
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

/// The host of a listing, `address|port`, as a socket address.
fn listed_host(listed: &Value, field: &str) -> std::net::SocketAddr {
    let (ip, port) = listed[field].as_str().unwrap().rsplit_once('|').unwrap();
    std::net::SocketAddr::new(ip.parse().unwrap(), port.parse().unwrap())
}

fn assert_equal(message: &Message, listed: &Value) {
    let record = message.record();
    let place = place_of(listed);
    assert_eq!(message.topic(), place.0);
    let longs = [
        ("queueId", i64::from(record.queue_id())),
        ("queueOffset", record.queue_offset()),
        ("physicalOffset", record.position()),
        ("size", i64::try_from(record.bytes().len()).unwrap()),
        ("magic", i64::from(record.rocketmq().magic().cast_signed())),
        ("storeTimestamp", record.store_timestamp()),
        ("bornTimestamp", record.born_timestamp()),
        ("flag", i64::from(record.flag())),
        ("sysFlag", i64::from(record.sys_flag())),
        ("reconsumeTimes", i64::from(record.reconsume_times())),
        (
            "preparedTransactionOffset",
            record.rocketmq().prepared_transaction_offset(),
        ),
        ("bodyCRC", i64::from(record.rocketmq().body_crc())),
        (
            "bodyLength",
            i64::try_from(record.stored_body().len()).unwrap(),
        ),
    ];
    for (field, value) in longs {
        assert_eq!(value, long(listed, field), "{field} of {place:?}");
    }
    assert_eq!(
        record.born_host(),
        listed_host(listed, "bornHost"),
        "{place:?}"
    );
    assert_eq!(
        record.store_host(),
        listed_host(listed, "storeHost"),
        "{place:?}"
    );
    // A long body is listed by its checksum.
    match listed["body"].as_str() {
        Some(body) => assert_eq!(record.stored_body(), decode(body), "{place:?}"),
        None => assert_eq!(
            hex(&Sha256::digest(record.stored_body())),
            listed["bodySha256"].as_str().unwrap(),
            "{place:?}"
        ),
    }
    let properties = listed_properties(listed);
    assert_eq!(raw_properties(&record), properties, "{place:?}");
    assert_eq!(
        message.tags().as_deref(),
        listed["tags"].as_str(),
        "{place:?}"
    );
    let keys = listed["keys"].as_str().unwrap_or_default();
    let parts: Vec<&str> = keys.split(' ').filter(|key| !key.is_empty()).collect();
    assert_eq!(message.keys(), parts, "{place:?}");
    let mut told = message.properties(PropertyKind::User);
    told.extend(message.properties(PropertyKind::System));
    let own = ["KEYS", "TAGS", "__CRC32#"];
    let rest = properties
        .into_iter()
        .filter(|(name, _)| !own.contains(&&**name));
    assert!(told.into_iter().eq(rest), "{place:?}");
    assert!(message.body().is_ok());
}

/// All messages of all queues, read in steps.
pub(crate) fn read_all(store: &Store) -> BTreeMap<Place, Message> {
    let mut found = BTreeMap::new();
    let engine = store.engine().unwrap();
    engine.refresh(None).unwrap();
    for topic in engine.topics().all() {
        for queue in engine.queues(&topic) {
            let bounds = engine.bounds(&topic, queue).unwrap().unwrap();
            let mut offset = bounds.start;
            while offset < bounds.end {
                let at = i64::try_from(offset).unwrap();
                let all = Filter::default();
                let batch = store.read(&topic.name, queue, at, 100, None, &all).unwrap();
                for message in batch.messages {
                    let offset = message.record().queue_offset() as u64;
                    found.insert((topic.name.to_string(), queue, offset), message);
                }
                assert!(batch.next_offset > offset);
                offset = batch.next_offset;
            }
        }
    }
    found
}

fn assert_messages(found: &BTreeMap<Place, Message>, listed: &BTreeMap<Place, Value>) {
    let (have, want): (Vec<_>, Vec<_>) = (found.keys().collect(), listed.keys().collect());
    assert_eq!(have, want);
    for (place, message) in found {
        assert_equal(message, &listed[place]);
    }
}

/// The digest, computed by the rule of the listings.
fn digest(found: &BTreeMap<Place, Message>) -> String {
    fn text(hash: &mut Sha256, bytes: &[u8]) {
        hash.update(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        hash.update(bytes);
    }
    let mut hash = Sha256::new();
    for message in found.values() {
        let record = message.record();
        text(&mut hash, record.topic());
        hash.update(record.queue_id().to_be_bytes());
        for value in [
            record.queue_offset(),
            record.position(),
            record.store_timestamp(),
            record.born_timestamp(),
        ] {
            hash.update(value.to_be_bytes());
        }
        let properties = raw_properties(&record);
        for name in ["TAGS", "KEYS"] {
            text(&mut hash, properties.get(name).map_or("", |v| v).as_bytes());
        }
        hash.update(u32::try_from(properties.len()).unwrap().to_be_bytes());
        for (name, value) in &properties {
            text(&mut hash, name.as_bytes());
            text(&mut hash, value.as_bytes());
        }
        text(&mut hash, record.stored_body());
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every part of KEYS and every unique id of the listing finds exactly its messages; one key in
/// `share` is queried.
///
/// Prepared messages are indexed too, but not those that were rolled back.
fn assert_keys(store: &Store, golden: &Golden, share: usize) {
    let mut by_key: BTreeMap<(String, String), BTreeSet<i64>> = BTreeMap::new();
    let is_indexed = |message: &&Value| long(message, "sysFlag") & 0xC != 0xC;
    let all = golden.listed.values().chain(&golden.hidden);
    for message in all.filter(is_indexed) {
        let topic = message["topic"].as_str().unwrap();
        let keys = message["keys"].as_str().unwrap_or_default().split(' ');
        let unique = message["properties"]["UNIQ_KEY"]
            .as_str()
            .unwrap_or_default();
        for key in keys.chain([unique]).filter(|key| !key.is_empty()) {
            let key = (topic.to_owned(), key.to_owned());
            by_key
                .entry(key)
                .or_default()
                .insert(long(message, "physicalOffset"));
        }
    }
    let count = by_key.len().div_ceil(share);
    let drawn = Draw::new().some(count, by_key.into_iter().collect());
    for ((topic, key), positions) in &drawn {
        let found = store.query(topic, key, i64::MIN, i64::MAX, 10_000).unwrap();
        let found: Vec<i64> = found.iter().map(|m| m.record().position()).collect();
        let newest_first: Vec<i64> = positions.iter().rev().copied().collect();
        assert_eq!(found, newest_first, "{topic} {key}");
    }
}

/// First read as it was left, then adopted.
fn assert_all_keys(golden: &Golden) {
    // For each query, a reader searches the log for keys that the index lacks.
    for (store, share) in [(golden.read_only(), 5), (golden.adopt(), 1)] {
        assert_keys(&store, golden, share);
        store.close().unwrap();
    }
}

fn assert_ids(store: &Store, found: &BTreeMap<Place, Message>) {
    for (place, message) in found {
        let id = message.id();
        let record = message.record();
        let host = record.store_host();
        let ip = match host.ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let port = u32::from(host.port()).to_be_bytes();
        let position = record.position().to_be_bytes();
        let hex: String = ip
            .iter()
            .chain(&port)
            .chain(&position)
            .map(|byte| format!("{byte:02X}"))
            .collect();
        assert_eq!(id, hex, "{place:?}");
        let again = store.message_by_id(&id).unwrap();
        assert_eq!(again.record().bytes(), record.bytes(), "{place:?}");
        assert_eq!(
            store.get(&place.0, place.1, place.2 as i64).unwrap().id(),
            id
        );
    }
}

/// The first offset at or after a time, for times before, at, between and after those of a queue.
fn assert_times(store: &Store, found: &BTreeMap<Place, Message>) {
    let mut queues: BTreeMap<(&str, u32), Vec<(u64, i64)>> = BTreeMap::new();
    for ((topic, queue, offset), message) in found {
        let time = message.record().store_timestamp();
        queues
            .entry((topic, *queue))
            .or_default()
            .push((*offset, time));
    }
    for ((topic, queue), entries) in queues {
        let (first, last) = (entries[0].1, entries[entries.len() - 1].1);
        let next = entries[entries.len() - 1].0 + 1;
        let between = entries[entries.len() / 2].1;
        let times = [
            i64::MIN,
            first - 1,
            first,
            first + 1,
            between,
            last,
            last + 1,
            i64::MAX,
        ];
        for time in times {
            let found = entries.iter().find(|(_, at)| *at >= time);
            let expected = found.map_or(next, |(offset, _)| *offset);
            let offset = store.offset_at(topic, queue, time).unwrap();
            assert_eq!(offset, expected, "{topic} {queue} at {time}");
        }
    }
}

fn assert_hidden(store: &Store, golden: &Golden, found: &BTreeMap<Place, Message>) {
    for listed in &golden.hidden {
        let position = long(listed, "physicalOffset");
        let message = store.message_at(position as u64).unwrap();
        assert_equal(&message, listed);
        assert!(!found.values().any(|m| m.record().position() == position));
    }
}

/// Sends to every topic of the listing that accepts messages, and returns the places.
fn send_more(store: &Store, listed: &BTreeMap<Place, Value>, round: usize) -> Vec<(Place, String)> {
    let topics: BTreeSet<&String> = listed.keys().map(|(topic, ..)| topic).collect();
    let mut sent = Vec::new();
    for topic in topics {
        let Ok(producer) = store.producer(topic, Some(0)) else {
            continue;
        };
        for number in 0..20 {
            let body = format!("{topic} {round} {number}");
            let draft = Draft {
                body: body.as_bytes(),
                keys: &["forebay", &format!("key-{round}-{number}")],
                tags: Some("more"),
                ..Draft::default()
            };
            let place = producer.send(&draft, 0, Durability::Default).unwrap().place;
            sent.push(((topic.clone(), place.queue, place.offset), body));
        }
    }
    assert!(!sent.is_empty());
    sent
}

fn assert_sent(store: &Store, sent: &[(Place, String)]) {
    for ((topic, queue, offset), body) in sent {
        let message = store.get(topic, *queue, *offset as i64).unwrap();
        assert_eq!(message.body().unwrap(), body.as_bytes());
        let key = body.rsplit(' ').take(2).collect::<Vec<_>>();
        let key = format!("key-{}-{}", key[1], key[0]);
        let found = store.query(topic, &key, i64::MIN, i64::MAX, 10).unwrap();
        assert_eq!(found.len(), 1, "{topic} {key}");
        assert_eq!(found[0].record().position(), message.record().position());
    }
}

/// Entries of the queue files, by place: position, size, tag code.
fn queue_entries(root: &Path) -> BTreeMap<Place, (i64, i32, i64)> {
    let mut found = BTreeMap::new();
    for path in folder::files(&root.join("consumequeue")) {
        let parts: Vec<String> = path
            .strip_prefix(root)
            .unwrap()
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let start: u64 = parts[3].parse().unwrap();
        for (number, entry) in fs::read(&path).unwrap().chunks_exact(20).enumerate() {
            let position = i64::from_be_bytes(entry[..8].try_into().unwrap());
            let size = i32::from_be_bytes(entry[8..12].try_into().unwrap());
            let code = i64::from_be_bytes(entry[12..].try_into().unwrap());
            if size > 0 && size < i32::MAX {
                let offset = start / 20 + number as u64;
                let place = (parts[1].clone(), parts[2].parse().unwrap(), offset);
                found.insert(place, (position, size, code));
            }
        }
    }
    found
}

fn assert_queue_files(golden: &Golden) {
    let entries = queue_entries(&golden.root);
    for (place, listed) in &golden.listed {
        let expected = (
            long(listed, "physicalOffset"),
            i32::try_from(long(listed, "size")).unwrap(),
            long(listed, "tagsCode"),
        );
        assert_eq!(entries.get(place), Some(&expected), "{place:?}");
    }
}

/// Reads a store as it was left: everything equals the listing, and no name, byte or time in the
/// directory changes.
fn reads_as_it_was_left(golden: &Golden) {
    let before = folder::listing(&golden.root);
    let store = golden.read_only();
    let found = read_all(&store);
    assert_messages(&found, &golden.listed);
    assert_eq!(digest(&found), golden.digest, "{}", golden.name);
    let step = if golden.root.join("index").is_dir() {
        1
    } else {
        40
    };
    assert_keys(&store, golden, step);
    assert_ids(&store, &found);
    assert_times(&store, &found);
    assert_hidden(&store, golden, &found);
    let verified = store.verify(&mut |_, _| true).unwrap();
    // The index of a torn store points to the torn record.
    let torn = usize::from(golden.name == "torn-tail");
    assert_eq!(verified.damage.len(), torn, "{:?}", verified.damage);
    let all = golden.listed.len() + golden.hidden.len();
    assert_eq!(verified.records, all as u64);
    assert_eq!(verified.queue_entries, golden.listed.len() as u64);
    store.close().unwrap();
    drop(store);
    assert_eq!(folder::listing(&golden.root), before);
}

/// Adopts a copy: the same messages, then more of ours, closed and opened again.
fn is_adopted(golden: &Golden) {
    let refused = Store::open(&golden.root, Options::default()).err();
    assert!(
        matches!(refused, Some(Error::Foreign { .. })),
        "{refused:?}"
    );
    let store = golden.adopt();
    let found = read_all(&store);
    assert_messages(&found, &golden.listed);
    assert_eq!(digest(&found), golden.digest, "{}", golden.name);
    let mut sent = send_more(&store, &golden.listed, 0);
    assert_keys(&store, golden, 3);
    assert_sent(&store, &sent);
    store.close().unwrap();
    assert_queue_files(golden);
    for round in 1..3 {
        // From then on it is Forebay's store.
        let store = Store::open(&golden.root, Options::default()).unwrap();
        assert!(store.recovery().clean);
        let mut found = read_all(&store);
        assert_sent(&store, &sent);
        let places: BTreeSet<&Place> = sent.iter().map(|(place, _)| place).collect();
        found.retain(|place, _| !places.contains(place));
        assert_messages(&found, &golden.listed);
        assert_keys(&store, golden, 7);
        assert_hidden(&store, golden, &found);
        assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
        sent.extend(send_more(&store, &golden.listed, round));
        store.close().unwrap();
    }
}

macro_rules! golden {
    ($($module:ident: $name:literal),*) => {
        $(mod $module {
            #[test]
            fn is_read_as_it_was_left() {
                super::reads_as_it_was_left(&super::Golden::small($name));
            }

            #[test]
            fn is_adopted() {
                super::is_adopted(&super::Golden::small($name));
            }
        })*
    };
}

golden!(
    clean: "clean",
    crashed: "crashed",
    undispatched: "undispatched",
    lost_queues: "lost-queues",
    torn_tail: "torn-tail",
    propcrc: "propcrc",
    big: "big",
    broker: "broker"
);

/// Bounds of the damage in `torn-hole`: start of the first damaged record, end of the last.
const HOLE: std::ops::Range<i64> = 1_867_720..1_891_330;
/// The damaged records.
const DAMAGED: [i64; 4] = [1_867_720, 1_868_148, 1_870_842, 1_871_122];

/// `torn-hole` with the listing of `crashed`, of which it is a damaged copy, and the lost messages.
fn torn_hole(set: &Path) -> (Golden, BTreeMap<Place, Value>) {
    let mut golden = Golden::unpack(set, "torn-hole", "crashed");
    let is_lost = |message: &Value| DAMAGED.contains(&long(message, "physicalOffset"));
    let lost: BTreeMap<Place, Value> = golden
        .listed
        .iter()
        .filter(|(_, message)| is_lost(message))
        .map(|(place, message)| (place.clone(), message.clone()))
        .collect();
    golden.listed.retain(|_, message| !is_lost(message));
    assert_eq!((golden.listed.len(), lost.len()), (2156, 4));
    (golden, lost)
}

fn assert_hole(store: &Store, lost: &BTreeMap<Place, Value>) {
    let damage = store.damage();
    assert!(!damage.is_empty());
    let mut named = BTreeSet::new();
    for damage in &damage {
        let (from, len) = (damage.position as i64, damage.length as i64);
        assert!(
            HOLE.contains(&from) && HOLE.contains(&(from + len - 1)),
            "{damage:?}"
        );
        assert!(
            damage.path.ends_with("commitlog/00000000000001048576"),
            "{damage:?}"
        );
        named.extend(damage.lost.iter().cloned());
    }
    assert_eq!(damage[0].position, 1_867_720);
    assert!(named.iter().eq(lost.keys()), "{named:?}");
    for (topic, queue, offset) in lost.keys() {
        let error = store.get(topic, *queue, *offset as i64).err();
        let Some(Error::Corrupt { .. } | Error::OffsetOutOfRange { .. }) = error else {
            panic!("{error:?}");
        };
    }
}

#[test]
fn intact_messages_after_a_hole_are_read_and_lost_ones_reported() {
    let (golden, lost) = torn_hole(&small_set());
    let before = folder::listing(&golden.root);
    let store = golden.read_only();
    assert_hole(&store, &lost);
    let found = read_all(&store);
    assert_messages(&found, &golden.listed);
    assert_keys(&store, &golden, 1);
    assert_ids(&store, &found);
    assert_hidden(&store, &golden, &found);
    store.close().unwrap();
    assert_eq!(folder::listing(&golden.root), before);
}

#[test]
fn a_store_with_a_hole_is_adopted_and_continues_after_it() {
    let (golden, lost) = torn_hole(&small_set());
    let store = golden.adopt();
    assert_hole(&store, &lost);
    assert_messages(&read_all(&store), &golden.listed);
    let sent = send_more(&store, &golden.listed, 0);
    // Offsets of lost messages are never assigned again.
    assert!(sent.iter().all(|(place, _)| !lost.contains_key(place)));
    store.close().unwrap();
    for _ in 0..2 {
        let store = Store::open(&golden.root, Options::default()).unwrap();
        let mut found = read_all(&store);
        assert_sent(&store, &sent);
        found.retain(|place, _| golden.listed.contains_key(place));
        assert_messages(&found, &golden.listed);
        assert_keys(&store, &golden, 5);
        let verified = store.verify(&mut |_, _| true).unwrap();
        assert!(
            verified
                .damage
                .iter()
                .any(|d| HOLE.contains(&(d.position as i64)))
        );
        store.close().unwrap();
    }
}

#[test]
fn a_hole_loses_no_more_if_queues_and_index_are_lost_too() {
    for kept in [None, Some("index"), Some("consumequeue")] {
        let (golden, lost) = torn_hole(&small_set());
        for name in ["consumequeue", "index"] {
            if kept != Some(name) {
                fs::remove_dir_all(golden.root.join(name)).unwrap();
            }
        }
        let _ = fs::remove_file(golden.root.join("checkpoint"));
        let before = folder::listing(&golden.root);
        let store = golden.read_only();
        assert_hole(&store, &lost);
        assert_messages(&read_all(&store), &golden.listed);
        store.close().unwrap();
        assert_eq!(folder::listing(&golden.root), before);
        let store = golden.adopt();
        assert_hole(&store, &lost);
        assert_messages(&read_all(&store), &golden.listed);
        assert_keys(&store, &golden, 5);
        store.close().unwrap();
    }
}

/// A broker lost its power before some pages of the index reached the disk.
#[test]
fn index_pages_lost_in_a_power_failure_lose_no_key() {
    let torn = |tear: &dyn Fn(&mut [u8])| {
        let golden = Golden::small("crashed");
        let index = fs::read_dir(golden.root.join("index")).unwrap();
        let path = index.map(|entry| entry.unwrap().path()).max().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        tear(&mut bytes);
        fs::write(&path, bytes).unwrap();
        golden
    };
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    // As in `tests/golden`: 500 slots, 2,000 entries.
    let entry_at = |number: u32| 40 + 4 * 500 + 20 * number as usize;
    for golden in [
        // Sectors of slots, of entries, of the last entries.
        torn(&|bytes| bytes[512..1024].fill(0)),
        torn(&|bytes| bytes[5120..5632].fill(0)),
        torn(&|bytes| {
            let last = entry_at(word(bytes, 36) - 1);
            bytes[last - 100..last + 20].fill(0);
        }),
        // A slot as it was before its newest entry.
        torn(&|bytes| {
            let slot = (0..500).map(|slot| 40 + 4 * slot);
            let newest = slot.max_by_key(|slot| word(bytes, *slot)).unwrap();
            let before = word(bytes, entry_at(word(bytes, newest)) + 16);
            bytes[newest..newest + 4].copy_from_slice(&before.to_be_bytes());
        }),
        // A header as it was 100 entries before.
        torn(&|bytes| {
            let count = word(bytes, 36) - 100;
            let end: [u8; 8] = bytes[entry_at(count - 1) + 4..][..8].try_into().unwrap();
            bytes[24..32].copy_from_slice(&end);
            bytes[36..40].copy_from_slice(&count.to_be_bytes());
        }),
    ] {
        assert_all_keys(&golden);
    }
}

#[test]
fn an_adopted_store_has_its_keys_even_if_the_index_is_lost_at_once() {
    let golden = Golden::small("clean");
    let store = golden.adopt();
    let died = Golden::small("clean");
    fs::remove_dir_all(&died.root).unwrap();
    folder::snapshot(&golden.root, &died.root);
    store.close().unwrap();
    fs::remove_dir_all(died.root.join("index")).unwrap();
    assert_all_keys(&died);
}

#[test]
fn config_files_of_a_broker_stay_as_they_are() {
    let golden = Golden::small("broker");
    let config = golden.root.join("config");
    let before = folder::listing(&config);
    let store = golden.adopt();
    send_more(&store, &golden.listed, 0);
    store.close().unwrap();
    let after = folder::listing(&config);
    for (path, fact) in &before {
        let name = path.to_string_lossy();
        // The table of delivery belongs to the system that delivers.
        let is_kept = ["topics.json", "delayOffset.json"]
            .iter()
            .any(|it| name.starts_with(it));
        if !name.is_empty() && !is_kept {
            assert_eq!(after.get(path), Some(fact), "{name}");
        }
    }
    let topics = fs::read_to_string(config.join("topics.json")).unwrap();
    let topics: Value = serde_json::from_str(&topics).unwrap();
    let orders = &topics["topicConfigTable"]["fx-orders"];
    assert_eq!(orders["perm"], 6);
    assert_eq!(orders["topicFilterType"], "SINGLE_TAG");
}

#[test]
fn the_whole_set_is_read_if_it_exists() {
    let Some(set) = whole_set() else {
        println!("skipped: the folder of the whole set does not exist");
        return;
    };
    for entry in fs::read_dir(&set).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".tar.zst") else {
            continue;
        };
        if name == "torn-hole" {
            let (golden, lost) = torn_hole(&set);
            let store = golden.read_only();
            assert_hole(&store, &lost);
            assert_messages(&read_all(&store), &golden.listed);
            continue;
        }
        let golden = Golden::unpack(&set, name, name);
        reads_as_it_was_left(&golden);
    }
}

/// Standard base64, the encoding of bodies in a listing.
mod base64_decode {
    pub(super) fn decode(text: &str) -> Vec<u8> {
        let value = |byte: u8| match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{byte} is not base64"),
        };
        let mut bytes = Vec::new();
        for part in text.trim_end_matches('=').as_bytes().chunks(4) {
            let bits = part
                .iter()
                .fold(0u32, |bits, b| bits << 6 | u32::from(value(*b)));
            let bits = bits << (6 * (4 - part.len()));
            bytes.extend_from_slice(&bits.to_be_bytes()[1..part.len()]);
        }
        bytes
    }
}
