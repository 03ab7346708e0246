//! Retention in a running store: retired messages are gone everywhere, the rest is complete, and no
//! offset is assigned twice. How files are chosen is tested next to that code.

use crate::bed::{Bed, Kind, small_options};
use crate::draw::in_proof;
use crate::world::{Place, World, body_of};
use forebay::Rows;
use forebay::{AtEnd, Step};
use forebay::{
    Bound, Check, Draft, Durability, Error, Filter, Mode, Options, ReadStatus, Scan, ScanSpec,
    Store, Tail,
};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 16 << 10;

/// Keeps the last two log files and flushes often, because retention runs with the flush.
fn options() -> Options {
    Options {
        mode: Mode::Append,
        commitlog_file_size: Some(FILE_LEN),
        queue_file_entries: Some(16),
        max_message_size: Some(8 << 10),
        flush_interval: Duration::from_millis(10),
        retention_bytes: Some(2 * FILE_LEN),
        disk_reserve: Some(0),
        ..small_options()
    }
}

pub fn open(root: &Path) -> Store {
    Store::open(root, options()).unwrap()
}

/// A store that retires nothing.
fn open_keeping(root: &Path) -> Store {
    let options = Options {
        retention_bytes: None,
        ..options()
    };
    Store::open(root, options).unwrap()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Opens the store for reading.
pub fn read(root: &Path) -> Store {
    let options = Options {
        mode: Mode::Read,
        ..options()
    };
    Store::open(root, options).unwrap()
}

/// Waits until everything due is retired and the step has ended; returns the start of the log.
fn retired(store: &Store) -> u64 {
    let published = store.stats().unwrap().published;
    let min = (published / FILE_LEN).saturating_sub(1) * FILE_LEN;
    until("retention is slow", || {
        store.stats().unwrap().min_position == min
            && !has_file_before(store, min)
            && is_recorded(store)
    });
    min
}

/// Whether a log file below `min` is left. The queues move their first offsets before it is
/// removed, and the start of the log moves before that.
fn has_file_before(store: &Store, min: u64) -> bool {
    let before = min.checked_sub(FILE_LEN);
    before.is_some_and(|start| store.path().join(format!("commitlog/{start:020}")).exists())
}

/// Whether the first offsets are in the table: a step writes them last.
fn is_recorded(store: &Store) -> bool {
    let table = fs::read_to_string(store.path().join("forebay.offsets")).unwrap_or_default();
    let engine = store.engine().unwrap();
    let told = table.lines().filter_map(|line| line.strip_prefix("queue "));
    let mut queues = told.map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let topic = store.topic(fields[0]).unwrap();
        let bounds = engine.bounds(&topic, fields[1].parse().unwrap()).unwrap();
        bounds.unwrap().start == fields[2].parse::<u64>().unwrap()
    });
    queues.next() == Some(true) && queues.all(|same| same)
}

fn send(store: &Store, topic: &str, count: usize) -> Vec<u64> {
    let producer = store.producer(topic, Some(0)).unwrap();
    let send = |number: usize| {
        let draft = Draft {
            body: &body_of(number * 10 + 9),
            keys: &["k"],
            ..Draft::default()
        };
        let sent = producer.send(&draft, 0, Durability::Default).unwrap();
        sent.place.offset
    };
    (0..count).map(send).collect()
}

/// A store that has removed its first files.
pub fn retiring(root: &Path) -> Store {
    let store = open(root);
    send(&store, "orders", 30);
    assert!(retired(&store) > FILE_LEN);
    store
}

fn read_all(store: &Store, topic: &str, offset: i64) -> forebay::ReadBatch {
    let all = Filter::default();
    store.read(topic, 0, offset, 1000, None, &all).unwrap()
}

fn query(store: &Store, topic: &str) -> usize {
    let found = store.query(topic, "k", i64::MIN, i64::MAX, 1000);
    found.unwrap().len()
}

fn check_sound(store: &Store) {
    let verified = store.verify(&mut |_, _| true).unwrap();
    assert_eq!(verified.damage, []);
    assert_eq!(store.damage(), []);
}

#[test]
fn retired_messages_are_gone_everywhere_and_the_rest_is_complete() {
    let (place, mut world) = (Place::new(), World::default());
    let store = open(&place.root());
    for _ in 0..3 {
        world.send(&store, 200);
        world.send_batch(&store, 20);
        world.retire(retired(&store));
        world.check(&store);
        check_sound(&store);
    }
    let message = store.message_at(0);
    assert!(matches!(message, Err(Error::InvalidOption { .. })));
    store.close().unwrap();
    for _ in 0..2 {
        world.check(&read(&place.root()));
        let store = open_keeping(&place.root());
        assert!(store.recovery().clean);
        world.check(&store);
        check_sound(&store);
        world.send(&store, 30);
        world.check(&store);
        store.close().unwrap();
    }
}

/// The only fact that is not in the log: the next offset of a queue whose messages are all gone.
#[test]
fn an_emptied_queue_continues_from_its_next_offset() {
    let place = Place::new();
    let store = open(&place.root());
    assert_eq!(send(&store, "gone", 5), [0, 1, 2, 3, 4]);
    send(&store, "other", 40);
    retired(&store);
    let check = |store: &Store| {
        let batch = read_all(store, "gone", 3);
        assert_eq!(batch.status, ReadStatus::OffsetTooSmall);
        assert_eq!((batch.min_offset, batch.max_offset), (5, 5));
        assert_eq!(batch.next_offset, 5);
        let batch = read_all(store, "gone", 5);
        assert_eq!(batch.status, ReadStatus::OffsetOverflowOne);
        let error = store.get("gone", 0, 4).err();
        assert!(matches!(
            error,
            Some(Error::OffsetOutOfRange { min: 5, max: 5, .. })
        ));
        assert_eq!(query(store, "gone"), 0);
        for time in [i64::MIN, 0, i64::MAX] {
            assert_eq!(store.offset_at("gone", 0, time).unwrap(), 5);
        }
    };
    check(&store);
    check(&read(&place.root()));
    // The store as a process that dies here leaves it, with and without the files that are built
    // from the log.
    for lost in ["nothing", "consumequeue/gone", "consumequeue", "index"] {
        let copy = Place::copy_of(&place.root());
        let _ = fs::remove_dir_all(copy.root().join(lost));
        check(&read(&copy.root()));
        let store = open_keeping(&copy.root());
        check(&store);
        check_sound(&store);
        assert_eq!(send(&store, "gone", 2), [5, 6], "without {lost}");
        assert_eq!(query(&store, "gone"), 2);
        store.close().unwrap();
    }
    store.close().unwrap();
    check(&read(&place.root()));
    let store = open_keeping(&place.root());
    check(&store);
    assert_eq!(send(&store, "gone", 1), [5]);
    assert_eq!(read_all(&store, "gone", 5).messages.len(), 1);
}

/// A crash may lose messages whose queue entries reached the disk. Other messages take their place
/// in the log, and after these are retired the entries look like those of real messages.
#[test]
fn an_entry_that_a_crash_left_after_the_end_of_a_queue_never_counts() {
    let place = Place::new();
    let store = open(&place.root());
    send(&store, "gone", 5);
    send(&store, "other", 40);
    let min = retired(&store);
    let copy = Place::copy_of(&place.root());
    let entries = copy.root().join(format!("consumequeue/gone/0/{:020}", 0));
    let mut bytes = fs::read(&entries).unwrap();
    for number in [5, 6] {
        bytes.copy_within(80..100, number * 20);
        let at = min - 1000 + number as u64;
        bytes[number * 20..][..8].copy_from_slice(&at.to_be_bytes());
    }
    fs::write(&entries, &bytes).unwrap();
    assert_eq!(read_all(&read(&copy.root()), "gone", 5).max_offset, 5);
    let store = open_keeping(&copy.root());
    assert_eq!(read_all(&store, "gone", 5).max_offset, 5);
    assert!(
        fs::read(&entries).unwrap()[100..]
            .iter()
            .all(|byte| *byte == 0)
    );
    assert_eq!(send(&store, "gone", 2), [5, 6]);
    check_sound(&store);
}

#[test]
fn a_repeatedly_killed_store_assigns_each_offset_once() {
    let (mut place, mut world) = (Place::new(), World::default());
    for life in 0..6 {
        let retires = life % 2 == 0;
        let store = match retires {
            true => open(&place.root()),
            false => open_keeping(&place.root()),
        };
        world.send(&store, 60 + 50 * life);
        if retires {
            world.retire(retired(&store));
        }
        world.check(&store);
        let copy = Place::copy_of(&place.root());
        store.close().unwrap();
        place = copy;
        let store = open_keeping(&place.root());
        world.retire(store.stats().unwrap().min_position);
        world.check(&store);
        check_sound(&store);
        store.close().unwrap();
    }
}

#[test]
fn messages_of_a_retired_file_stay_valid_and_counted_until_they_are_dropped() {
    let place = Place::new();
    let store = open(&place.root());
    send(&store, "orders", 2);
    let message = store.get("orders", 0, 1).unwrap();
    let body = message.body().unwrap().into_owned();
    send(&store, "orders", 40);
    retired(&store);
    assert_eq!(store.stats().unwrap().retired_bytes_mapped, FILE_LEN);
    assert_eq!(message.body().unwrap(), body);
    assert!(store.get("orders", 0, 1).is_err());
    let copy = message.clone();
    drop(message);
    assert_eq!(store.stats().unwrap().retired_bytes_mapped, FILE_LEN);
    store.close().unwrap();
    assert_eq!(copy.body().unwrap(), body);
}

#[test]
fn the_disk_regains_its_space_when_the_last_reader_drops_the_file() {
    let place = Place::new();
    let store = open(&place.root());
    send(&store, "orders", 2);
    let message = store.get("orders", 0, 1).unwrap();
    send(&store, "orders", 40);
    retired(&store);
    assert_eq!(store.stats().unwrap().retired_bytes_mapped, FILE_LEN);
    drop(message);
    assert_eq!(store.stats().unwrap().retired_bytes_mapped, 0);
}

fn scan(store: &Store, topics: Option<&str>) -> Scan {
    let spec = ScanSpec {
        topics: topics.map(|topic| vec![topic.to_owned()]),
        batch_rows: 3,
        ..ScanSpec::default()
    };
    Scan::new(store, spec).unwrap()
}

#[test]
fn operations_begun_before_files_are_retired_complete() {
    let place = Place::new();
    let store = open_keeping(&place.root());
    send(&store, "orders", 10);
    send(&store, "orders", 40);
    store.close().unwrap();
    let store = open(&place.root());
    let engine = store.engine().unwrap();
    let topic = store.topic("orders").unwrap();
    // Read first: the thread of retention makes its first step at once, perhaps before the readers
    // below begin.
    let first = store.stats().unwrap().min_position;
    let by_queue = scan(&store, Some("orders")).stream().unwrap();
    let by_log = scan(&store, None).stream().unwrap();
    let all = Filter::default();
    let mut cursor = engine.cursor(&topic, 0, 0..50, &all, Check::Full).unwrap();
    let mut tail = Tail::new(&store, "orders", &Bound::Earliest, AtEnd::Stop).unwrap();
    let min = retired(&store);
    assert!(first <= min);
    let left = engine.bounds(&topic, 0).unwrap().unwrap();
    assert!(left.start > 10);
    let rows =
        |stream: forebay::Stream| -> usize { stream.map(|batch| batch.unwrap().num_rows()).sum() };
    let kept = (left.end - left.start) as usize;
    assert!((kept..=50).contains(&rows(by_queue)));
    assert!((kept..=50).contains(&rows(by_log)));
    let mut found = Rows::default();
    cursor.next(1000, &mut found).unwrap();
    assert!((kept..=50).contains(&found.rows.len()));
    assert_eq!(cursor.offset(), 50);
    let mut tailed = 0;
    while let Step::Message(_) = tail.next(Duration::ZERO).unwrap() {
        tailed += 1;
    }
    assert!((kept..=50).contains(&tailed));
    check_sound(&store);
    let whole = rows(scan(&store, Some("orders")).stream().unwrap());
    assert_eq!(whole, kept);
    let start = Bound::Offsets([(0, 0)].into());
    let spec = ScanSpec {
        topics: Some(vec!["orders".to_owned()]),
        start,
        ..ScanSpec::default()
    };
    let gone = Scan::new(&store, spec).unwrap().stream().err();
    assert!(matches!(gone, Some(Error::OffsetOutOfRange { min, .. }) if min == left.start));
}

#[test]
fn a_reader_beside_the_writer_sees_the_start_of_the_log_move() {
    let (place, mut world) = (Place::new(), World::default());
    let store = open_keeping(&place.root());
    send(&store, "gone", 5);
    store.close().unwrap();
    let store = open(&place.root());
    let early = read(&place.root());
    assert_eq!(read_all(&early, "gone", 0).messages.len(), 5);
    let lagging = read(&place.root());
    let deep = read(&place.root());
    let all = Filter::default();
    let topic = deep.topic("gone").unwrap();
    let engine = deep.engine().unwrap();
    let mut cursor = engine.cursor(&topic, 0, 0..5, &all, Check::Full).unwrap();
    for round in 0..3 {
        world.send(&store, 250);
        world.retire(retired(&store));
        let end = store.stats().unwrap().published;
        for reader in [&early, &read(&place.root())] {
            until("the reader is behind", || {
                reader.engine().unwrap().readable_position() >= end
            });
            world.check(reader);
            let error = reader.get("gone", 0, 4).err();
            assert!(matches!(
                error,
                Some(Error::OffsetOutOfRange { min: 5, max: 5, .. })
            ));
            assert_eq!(query(reader, "gone"), 0);
            check_sound(reader);
        }
        assert!(early.stats().unwrap().min_position > 0, "round {round}");
    }
    // One reader that did not refresh meanwhile, and one with a cursor over retired messages.
    world.check(&lagging);
    check_sound(&lagging);
    let mut rows = Rows::default();
    cursor.next(10, &mut rows).unwrap();
    // The reader had the file mapped, so the cursor may continue in it.
    assert!(matches!(rows.rows.len(), 0 | 5));
    assert_eq!(cursor.offset(), 5);
    check_sound(&deep);
    world.check(&deep);
    store.close().unwrap();
    world.check(&early);
}

/// Senders, readers of every kind in this process and in others, and files that are retired under
/// them all the time: nobody gets an error other than that of a retired offset, and nothing counts
/// as damaged.
#[test]
fn retiring_files_disturbs_nobody() {
    let place = Place::new();
    let store = open(&place.root());
    send(&store, "orders", 1);
    // Other processes see only messages that are entered in their queue.
    store.flush().unwrap();
    let beside = read(&place.root());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let files = if in_proof() { 2000 } else { 60 };
            while store.stats().unwrap().min_position <= files * FILE_LEN {
                send(&store, "orders", 20);
                send(&store, "bills", 3);
            }
            done.store(true, Ordering::Release);
        });
        for reader in [&store, &beside] {
            let done = &done;
            let until_done = move |look: &dyn Fn()| {
                while !done.load(Ordering::Acquire) {
                    look();
                }
            };
            scope.spawn(move || {
                let mut next = 0;
                while !done.load(Ordering::Acquire) {
                    let batch = read_all(reader, "orders", next);
                    for message in &batch.messages {
                        let offset = message.record().queue_offset();
                        assert!(offset >= next);
                        next = offset + 1;
                    }
                    next = next.max(batch.next_offset as i64);
                }
            });
            scope.spawn(move || {
                until_done(&|| match reader.get("orders", 0, 0) {
                    Ok(_) => {}
                    Err(Error::OffsetOutOfRange { min, .. }) => {
                        match reader.get("orders", 0, min as i64) {
                            Ok(_) | Err(Error::OffsetOutOfRange { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    Err(error) => panic!("{error}"),
                });
            });
            scope.spawn(move || {
                until_done(&|| {
                    for topics in [Some("orders"), None] {
                        let stream = scan(reader, topics).stream().unwrap();
                        stream.for_each(|batch| drop(batch.unwrap()));
                    }
                    reader.offset_at("orders", 0, 0).unwrap();
                    reader.verify(&mut |_, _| true).unwrap();
                    query(reader, "orders");
                });
            });
        }
    });
    check_sound(&store);
    check_sound(&beside);
    store.close().unwrap();
}

#[test]
fn a_memory_store_rejects_retention() {
    let by_age = Options {
        retention: Some(Duration::from_secs(1)),
        ..Options::default()
    };
    let by_size = Options {
        retention_bytes: Some(1),
        ..Options::default()
    };
    for (options, option) in [(by_age, "retention"), (by_size, "retention_bytes")] {
        let refused = Store::open(":memory:", options).err();
        assert!(matches!(refused, Some(Error::InvalidOption { name, .. }) if name == option));
    }
    // Options that only modify retention are not rejected.
    let bed = Bed::with_options(Kind::Memory, small_options());
    assert_eq!(bed.store.stats().unwrap().retired_bytes_mapped, 0);
}

#[test]
fn invalid_options_are_rejected() {
    let with = |change: fn(&mut Options)| {
        let mut options = Options {
            retention: Some(Duration::from_secs(1)),
            ..Options::default()
        };
        change(&mut options);
        match options.check() {
            Ok(()) => String::new(),
            Err(Error::InvalidOption { name, .. }) => name,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(with(|o| o.retention = Some(Duration::ZERO)), "retention");
    assert_eq!(with(|o| o.retention_bytes = Some(0)), "retention_bytes");
    for hours in ["", "24", "4;", "-1", "a", "4,5"] {
        let options = Options {
            delete_when: Some(hours.to_owned()),
            retention: Some(Duration::from_secs(1)),
            ..Options::default()
        };
        let name = match options.check().err() {
            Some(Error::InvalidOption { name, .. }) => name,
            other => panic!("{hours:?}: {other:?}"),
        };
        assert_eq!(name, "delete_when");
    }
    assert_eq!(with(|o| o.delete_when = Some("00; 4;23".to_owned())), "");
    for ratio in [0.0, -0.5, 1.01, 90.0, f64::NAN] {
        let options = Options {
            disk_warning_ratio: Some(ratio),
            retention_bytes: Some(1),
            ..Options::default()
        };
        assert!(options.check().is_err(), "{ratio}");
    }
    assert_eq!(with(|o| o.disk_warning_ratio = Some(1.0)), "");
    let alone = |o: &mut Options| {
        o.retention = None;
        o.delete_when = Some("04".to_owned());
    };
    assert_eq!(with(alone), "delete_when");
    let alone = |o: &mut Options| {
        o.retention = None;
        o.disk_warning_ratio = Some(0.9);
    };
    assert_eq!(with(alone), "disk_warning_ratio");
}
