//! Each status of a read, and how a consumer reacts to it.

use super::consumer::{BEGIN_MS, Bed, bodies, body, open_as, poll, receipts, wait};
use crate::clock::ManualClock;
use crate::engine::Durability;
use crate::plant;
use crate::{
    Bound, Consumer, ConsumerOptions, Draft, Error, Filter, Options, ReadStatus, Store, Warning,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn send(store: &Store, body: &[u8]) -> u64 {
    let producer = store.producer("orders", Some(0)).unwrap();
    let draft = Draft {
        body,
        tags: Some("paid"),
        ..Draft::default()
    };
    let sent = producer.send(&draft, 0, Durability::Default).unwrap();
    sent.place.position
}

fn send_some(store: &Store, count: usize) {
    for _ in 0..count {
        send(store, b"0");
    }
}

/// Status and next offset of a read of queue 0.
fn read(store: &Store, offset: i64, tags: &[&str]) -> (ReadStatus, u64) {
    let filter = Filter {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        key: None,
    };
    let read = store.read("orders", 0, offset, 1, None, &filter).unwrap();
    (read.status, read.next_offset)
}

fn consumer(store: &Store, tags: &[&str]) -> Consumer {
    let mut options = ConsumerOptions::default();
    options.filter.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    store.consumer(&["orders"], "billing", options).unwrap()
}

fn committed(consumer: &Consumer) -> u64 {
    let assigned = consumer.assignment().unwrap();
    assigned.iter().find(|it| it.queue == 0).unwrap().committed
}

#[test]
fn where_there_is_nothing_yet_a_consumer_waits() {
    super::consumer::on_each(|bed| {
        let store = &bed.store;
        assert_eq!(read(store, 0, &[]), (ReadStatus::NoMatchedLogicQueue, 0));
        let reader = consumer(store, &[]);
        assert_eq!(read(store, 0, &[]), (ReadStatus::NoMessageInQueue, 0));
        assert!(poll(&reader).is_empty());
        send(store, b"0");
        assert_eq!(read(store, 0, &[]), (ReadStatus::Found, 1));
        let got = wait(&reader);
        assert_eq!(bodies(&got), [0]);
        reader.ack(receipts(&got)).unwrap();
        assert_eq!(read(store, 1, &[]), (ReadStatus::OffsetOverflowOne, 1));
        assert!(poll(&reader).is_empty());
        send(store, b"1");
        assert_eq!(bodies(&wait(&reader)), [1]);
    });
}

#[test]
fn what_no_filter_passes_is_settled_by_a_consumer() {
    super::consumer::on_each(|bed| {
        send(&bed.store, b"0");
        assert_eq!(
            read(&bed.store, 0, &["open"]),
            (ReadStatus::NoMatchedMessage, 1)
        );
        let reader = consumer(&bed.store, &["open"]);
        assert!(poll(&reader).is_empty());
        assert_eq!(committed(&reader), 1);
    });
}

#[test]
fn a_message_that_is_lost_to_damage_is_passed_over_by_a_consumer() {
    let mut bed = Bed::new("store");
    send(&bed.store, b"0");
    let position = send(&bed.store, b"the body that is damaged");
    bed.store.close().unwrap();
    let file = bed.path.join("commitlog/00000000000000000000");
    let mut bytes = vec![0; 500];
    let log = std::fs::File::options().read(true).write(true).open(file);
    let log = log.unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&log, &mut bytes, position).unwrap();
    let at = bytes.windows(8).position(|it| it == b"the body").unwrap();
    std::os::unix::fs::FileExt::write_all_at(&log, b"T", position + at as u64).unwrap();
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    assert_eq!(read(&bed.store, 1, &[]), (ReadStatus::OffsetFoundNull, 2));
    let reader = consumer(&bed.store, &[]);
    let got = poll(&reader);
    assert_eq!(bodies(&got), [0]);
    reader.ack(receipts(&got)).unwrap();
    assert_eq!(committed(&reader), 2);
    let warnings = bed.store.take_warnings();
    assert!(matches!(warnings[..], [Warning::Damage(_)]), "{warnings:?}");
}

#[test]
fn a_queue_that_ends_before_the_progress_of_a_group_stops_its_consumer() {
    let bed = Bed::new("store");
    send(&bed.store, b"0");
    let reader = consumer(&bed.store, &[]);
    reader.ack(receipts(&wait(&reader))).unwrap();
    reader.close().unwrap();
    bed.store.close().unwrap();
    let config = bed.path.join("config");
    // Another log took the place of this one.
    let other = bed.path.with_file_name("other");
    let store = open_as(&other, &bed.clock, Options::default());
    store.create_topic("orders", 1).unwrap();
    store.close().unwrap();
    for table in ["consumerOffset.json", "topics.json"] {
        let _ = std::fs::copy(config.join(table), other.join("config").join(table));
    }
    let store = open_as(&other, &bed.clock, Options::default());
    let reader = consumer(&store, &[]);
    let shrunk = reader.poll(1, Duration::ZERO).unwrap_err();
    assert!(
        matches!(
            shrunk,
            Error::LogShrunk {
                offset: 1,
                end: 0,
                ..
            }
        ),
        "{shrunk}"
    );
    send(&store, b"0");
    store
        .reset_offsets("billing", "orders", &Bound::Earliest)
        .unwrap();
    assert_eq!(read(&store, 3, &[]), (ReadStatus::OffsetOverflowBadly, 1));
    assert_eq!(bodies(&wait(&reader)), [0]);
}

/// A store that retires log files which are five minutes old, and does not wait for groups.
fn retiring(bed: &Bed) -> Store {
    let options = Options {
        commitlog_file_size: Some(16 << 10),
        queue_file_entries: Some(64),
        index: Some(false),
        retention: Some(Duration::from_mins(5)),
        keep_unconsumed: false,
        disk_reserve: Some(0),
        flush_interval: Duration::from_millis(10),
        ..Options::default()
    };
    open_as(&bed.path.with_file_name("retiring"), &bed.clock, options)
}

/// Lets ten minutes pass, and waits until all sealed files are retired.
fn retire(store: &Store, clock: &Arc<ManualClock>) {
    clock.advance(600_000);
    let end = store.stats().unwrap().published;
    let last = end / (16 << 10) * (16 << 10);
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.stats().unwrap().min_position < last {
        assert!(Instant::now() < deadline, "retention is slow");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn where_messages_were_removed_a_consumer_goes_on_at_the_first_one_left() {
    let bed = Bed::new("store");
    let store = retiring(&bed);
    let bodies: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    for body in &bodies {
        send(&store, body.as_bytes());
    }
    let reader = consumer(&store, &[]);
    retire(&store, &bed.clock);
    let (status, first) = read(&store, 0, &[]);
    assert_eq!(status, ReadStatus::OffsetTooSmall);
    assert!(first > 0 && first < 300);
    let got = poll(&reader);
    assert_eq!(body(&got[0]) as u64, first);
    assert_eq!(committed(&reader), first);
    let retired = Warning::Retired {
        topic: "orders".into(),
        queue: 0,
        messages: first,
    };
    assert!(store.take_warnings().contains(&retired));
}

#[test]
fn messages_that_are_removed_during_a_read_are_said_to_be() {
    let bed = Bed::new("store");
    let store = retiring(&bed);
    let producer = store.producer("orders", Some(0)).unwrap();
    let drafts = std::iter::repeat_with(|| Ok(Draft::default())).take(5_000);
    let (rows, written) = (crate::Atomicity::Rows, Durability::Written);
    producer.send_batch(drafts, rows, written).unwrap();
    let none = Filter {
        tags: vec!["none".to_owned()],
        key: None,
    };
    let mut go_on = || {
        retire(&store, &bed.clock);
        true
    };
    let most = (10_000, None);
    let read = store.read_while(("orders", 0, 0), most, &none, &mut go_on);
    let read = read.unwrap();
    assert_eq!(read.status, ReadStatus::MessageWasRemoving);
    assert!(read.min_offset > 0 && read.next_offset >= read.min_offset);
    assert!(store.now_ms() > BEGIN_MS);
}

/// A store that retires files, with `count` messages.
fn of_many(bed: &Bed, count: usize) -> Store {
    let store = retiring(bed);
    let bodies: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    for body in &bodies {
        send(&store, body.as_bytes());
    }
    store
}

/// The warning that retention has removed `messages` messages.
fn retired(messages: u64) -> Warning {
    Warning::Retired {
        topic: "orders".into(),
        queue: 0,
        messages,
    }
}

#[test]
fn where_messages_are_removed_while_it_reads_a_consumer_goes_on_at_the_first_one_left() {
    let bed = Bed::new("store");
    let store = of_many(&bed, 300);
    let reader = consumer(&store, &[]);
    let (removing, clock) = (store.clone(), Arc::clone(&bed.clock));
    plant::at(plant::Point::Bounded, move || retire(&removing, &clock));
    let got = poll(&reader);
    let first = body(&got[0]) as u64;
    assert!(first > 0 && first < 300);
    assert_eq!(committed(&reader), first);
    assert!(store.take_warnings().contains(&retired(first)));
}

#[test]
fn where_messages_are_removed_before_they_come_again_a_consumer_says_so() {
    let bed = Bed::new("store");
    let store = of_many(&bed, 300);
    let reader = consumer(&store, &[]);
    let got = reader.poll(20, Duration::ZERO).unwrap();
    assert_eq!(got.len(), 20);
    reader.ack([&got[3].receipt]).unwrap();
    retire(&store, &bed.clock);
    bed.clock.advance(600_000);
    let left = poll(&reader);
    let first = body(&left[0]) as u64;
    assert!(first > 20 && first < 300);
    assert_eq!(committed(&reader), first);
    let warnings = store.take_warnings();
    // One warning for the delivered messages except the settled one, and one for those never
    // delivered.
    for expected in [retired(19), retired(first - 20)] {
        assert!(warnings.contains(&expected), "{warnings:?}");
    }
}

/// A store is restored to an earlier state and continues. The table of offsets stays, and its
/// offsets then belong to other messages.
#[test]
fn a_log_that_came_back_shorter_and_has_grown_again_stops_its_consumer() {
    let mut bed = Bed::new("store");
    let copy = bed.path.with_file_name("copy");
    send_some(&bed.store, 2);
    bed.store.close().unwrap();
    let copied = std::process::Command::new("cp")
        .args(["-a".as_ref(), bed.path.as_os_str(), copy.as_os_str()])
        .status();
    assert!(copied.unwrap().success());
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    send_some(&bed.store, 4);
    let reader = consumer(&bed.store, &[]);
    reader.ack(receipts(&poll(&reader))).unwrap();
    assert_eq!(committed(&reader), 6);
    reader.close().unwrap();
    bed.store.close().unwrap();
    let table = "config/consumerOffset.json";
    std::fs::create_dir_all(copy.join("config")).unwrap();
    std::fs::copy(bed.path.join(table), copy.join(table)).unwrap();

    // An epoch is identified by its number and the time when it began.
    bed.clock.advance(1);
    for _ in 0..2 {
        // A later opening notices it, too.
        let store = open_as(&copy, &bed.clock, Options::default());
        send_some(&store, 10);
        let reader = consumer(&store, &[]);
        let shrunk = reader.poll(1, Duration::ZERO).unwrap_err();
        assert!(
            matches!(shrunk, Error::LogShrunk { offset: 6, .. }),
            "{shrunk}"
        );
        store.close().unwrap();
    }
    let store = open_as(&copy, &bed.clock, Options::default());
    let reader = consumer(&store, &[]);
    store
        .reset_offsets("billing", "orders", &Bound::Earliest)
        .unwrap();
    reader.ack(receipts(&poll(&reader))).unwrap();
    assert_eq!(committed(&reader), 22);
    store.close().unwrap();
    let store = open_as(&copy, &bed.clock, Options::default());
    assert!(poll(&consumer(&store, &[])).is_empty());
}
