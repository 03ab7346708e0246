//! Delay levels that a store is opened with.

use super::consumer::{Bed, bodies, open_as, poll, receipts, wait};
use crate::engine::{Durability, Meanings};
use crate::{
    Consumer, ConsumerOptions, DelayLevels, Draft, Error, Filter, Mode, Options, SCHEDULE_TOPIC,
    Store, Warning,
};
use std::fs;
use std::time::{Duration, Instant};

fn with_levels(levels: &str) -> Options {
    Options {
        delay_levels: DelayLevels::parse(levels),
        ..Options::default()
    }
}

fn reopen(bed: &mut Bed, options: Options) {
    bed.store.close().unwrap();
    bed.store = open_as(&bed.path, &bed.clock, options);
}

fn send(store: &Store, body: &[u8], level: u8) -> crate::Result<()> {
    let draft = Draft {
        body,
        ..Draft::default()
    };
    let producer = store.producer("orders", Some(0))?;
    producer.send(&draft, level, Durability::Default).map(drop)
}

fn consumer(bed: &Bed) -> Consumer {
    bed.consumer(ConsumerOptions::default())
}

/// A broker may have saved its table before its log was durable: after a power loss the table is
/// that of a longer log. Messages that got the offsets in between were never delivered.
#[test]
fn a_table_of_a_longer_log_hides_no_message() {
    let mut bed = Bed::new("store");
    let reader = consumer(&bed);
    send(&bed.store, b"1", 1).unwrap();
    bed.pass(1_000);
    let got = wait(&reader);
    assert_eq!(bodies(&got), [1]);
    reader.ack(receipts(&got)).unwrap();
    bed.store.close().unwrap();
    let table = bed.path.join("config/delayOffset.json");
    fs::write(table, r#"{"offsetTable":{1:3}}"#).unwrap();
    bed.store = open_as(&bed.path, &bed.clock, Options::default());
    let reader = consumer(&bed);
    for number in 2..=4 {
        send(&bed.store, number.to_string().as_bytes(), 1).unwrap();
        bed.pass(1_000);
        let got = wait(&reader);
        assert_eq!(bodies(&got), [number]);
        reader.ack(receipts(&got)).unwrap();
    }
}

/// The table was compared with the queue as it was at the first step. Before that, so many messages
/// may have been sent that the queue had reached the offset in the table.
#[test]
fn a_table_of_a_longer_log_hides_no_message_of_a_shared_store_either() {
    let bed = Bed::new("store");
    let reader = consumer(&bed);
    send(&bed.store, b"1", 1).unwrap();
    bed.pass(1_000);
    let got = wait(&reader);
    reader.ack(receipts(&got)).unwrap();
    bed.store.close().unwrap();
    let table = bed.path.join("config/delayOffset.json");
    // No step can read it before all messages are sent.
    fs::write(&table, "{").unwrap();
    let _ = fs::remove_file(bed.path.join("config/delayOffset.json.bak"));
    let shared = || {
        let options = Options {
            mode: Mode::Share,
            ..Options::default()
        };
        open_as(&bed.path, &bed.clock, options)
    };
    let (first, second) = (shared(), shared());
    for number in 2..=4 {
        send(&first, number.to_string().as_bytes(), 1).unwrap();
    }
    fs::write(&table, r#"{"offsetTable":{1:3}}"#).unwrap();
    bed.clock.advance(1_000);
    assert_eq!(delivered(&first, 3), [2, 3, 4]);
    // The first process has saved the table, which the second one believes.
    first.close().unwrap();
    send(&second, b"5", 1).unwrap();
    bed.clock.advance(1_000);
    assert_eq!(delivered(&second, 1), [5]);
    second.close().unwrap();
}

/// Settles the next messages until there are `count` of them. Returns their numbers.
fn delivered(store: &Store, count: usize) -> Vec<usize> {
    let options = ConsumerOptions::default();
    let reader = store.consumer(&["orders"], "billing", options).unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < count {
        // A process delivers once it leads.
        store.clock_moved().unwrap();
        let got = poll(&reader);
        reader.ack(receipts(&got)).unwrap();
        numbers.extend(bodies(&got));
    }
    reader.close().unwrap();
    numbers
}

#[test]
fn messages_wait_as_long_as_the_levels_of_the_store_say() {
    let mut bed = Bed::new("store");
    reopen(&mut bed, with_levels("2s 1m"));
    // The store saves its levels.
    reopen(&mut bed, Options::default());
    let reader = consumer(&bed);
    send(&bed.store, b"2", 2).unwrap();
    send(&bed.store, b"1", 1).unwrap();
    let error = send(&bed.store, b"3", 3).unwrap_err();
    assert!(error.to_string().contains("between 1 and 2"), "{error}");
    bed.pass(1_999);
    assert!(poll(&reader).is_empty());
    bed.pass(1);
    let got = wait(&reader);
    assert_eq!(bodies(&got), [1]);
    let refused = reader.nack(&got[0], Some(3)).unwrap_err();
    assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
    // The first retry has level 3, and the last level is 2.
    reader.nack(&got[0], None).unwrap();
    bed.pass(57_999);
    assert!(poll(&reader).is_empty());
    bed.pass(1);
    assert_eq!(bodies(&wait(&reader)), [2]);
    bed.pass(2_000);
    assert_eq!(bodies(&wait(&reader)), [1]);
}

#[test]
fn a_store_may_have_more_levels_than_rocketmq_and_fewer_later() {
    let mut bed = Bed::new("store");
    let levels = "1s ".repeat(19) + "3d";
    reopen(&mut bed, with_levels(&levels));
    let reader = consumer(&bed);
    send(&bed.store, b"20", 20).unwrap();
    send(&bed.store, b"19", 19).unwrap();
    bed.pass(1_000);
    assert_eq!(bodies(&wait(&reader)), [19]);
    let all = Filter::default();
    let waiting = bed
        .store
        .read(SCHEDULE_TOPIC, 19, 0, 1, None, &all)
        .unwrap();
    assert_eq!(waiting.messages.len(), 1);
    assert_eq!(bed.store.topic(SCHEDULE_TOPIC).unwrap().write_queues(), 20);
    let verified = bed.store.verify(&mut |_, _| true).unwrap();
    assert!(verified.damage.is_empty());
    // Messages that wait in a queue above the last level have the delay of the last level.
    drop(reader);
    reopen(&mut bed, with_levels("1s 1h"));
    let reader = consumer(&bed);
    let mut seen = bodies(&poll(&reader));
    bed.pass(3_598_999);
    seen.extend(bodies(&poll(&reader)));
    assert!(!seen.contains(&20), "{seen:?}");
    bed.pass(1);
    assert_eq!(bodies(&wait(&reader)), [20]);
}

/// Small files, of which retention leaves two.
fn removing(keep_unconsumed: bool) -> Options {
    Options {
        commitlog_file_size: Some(64 << 10),
        queue_file_entries: Some(64),
        index: Some(false),
        retention_bytes: Some(128 << 10),
        keep_unconsumed,
        disk_reserve: Some(0),
        flush_interval: Duration::from_millis(10),
        ..Options::default()
    }
}

/// Fills several files.
fn fill(store: &Store) {
    let producer = store.producer("filler", Some(0)).unwrap();
    let draft = Draft {
        body: &[0; 1_000],
        ..Draft::default()
    };
    for _ in 0..400 {
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
}

/// Waits until retention has removed a part of the log that ends above `position`.
fn removed_above(store: &Store, position: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.stats().unwrap().min_position <= position {
        assert!(Instant::now() < deadline, "nothing was removed");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn position(store: &Store, topic: &str, queue: u32, offset: i64) -> u64 {
    let message = store.get(topic, queue, offset).unwrap();
    message.record().position().cast_unsigned()
}

/// The warnings of messages that were removed too early.
fn retired(store: &Store) -> Vec<Warning> {
    let mut warnings = store.take_warnings();
    warnings.retain(|it| matches!(it, Warning::Retired { .. }));
    warnings
}

/// Once its original is settled, a refused message waits nowhere else. Retention once removed it
/// there, and also from the retry topic if no consumer of the group had begun to read that.
#[test]
fn retention_leaves_messages_that_wait_for_their_level_and_retries_that_nobody_has_seen() {
    for keep_unconsumed in [true, false] {
        let bed = Bed::new("store");
        let path = bed.path.with_file_name("removing");
        let store = open_as(&path, &bed.clock, removing(keep_unconsumed));
        let pass = |ms| {
            bed.clock.advance(ms);
            store.clock_moved().unwrap();
        };
        let join = || {
            let options = ConsumerOptions::default();
            store.consumer(&["orders"], "billing", options).unwrap()
        };
        fill(&store);
        let reader = join();
        send(&store, b"1", 0).unwrap();
        reader.nack(&wait(&reader)[0], Some(18)).unwrap();
        // The retry topic exists since the refusal, and the group has no progress there.
        drop(reader);
        send(&store, b"2", 17).unwrap();
        let refused = position(&store, SCHEDULE_TOPIC, 17, 0);
        fill(&store);
        removed_above(&store, 0);
        assert_eq!(store.keep_from().unwrap(), refused);
        pass(2 * 3_600_000);
        // The progress of the delivery is saved.
        pass(5_000);
        let of_retry = match keep_unconsumed {
            true => position(&store, &Meanings::ROCKETMQ.retry_topic("billing"), 0, 0),
            false => u64::MAX,
        };
        assert_eq!(store.keep_from().unwrap(), of_retry);
        if keep_unconsumed {
            fill(&store);
            removed_above(&store, refused);
        }
        let (reader, mut got) = (join(), Vec::new());
        while got.len() < 2 {
            got.extend(wait(&reader));
        }
        assert_eq!(bodies(&got), [1, 2]);
        assert_eq!(retired(&store), []);
        drop(reader);
        store.close().unwrap();
    }
}

/// The retention of a broker does not wait for them.
#[test]
fn messages_that_were_removed_before_their_delivery_are_reported_once() {
    let bed = Bed::new("store");
    let path = bed.path.with_file_name("removing");
    let store = open_as(&path, &bed.clock, removing(true));
    for number in 0..3 {
        send(&store, format!("{number}").as_bytes(), 1).unwrap();
    }
    let last = position(&store, SCHEDULE_TOPIC, 0, 2);
    for ms in [1_000, 5_000] {
        bed.clock.advance(ms);
        store.clock_moved().unwrap();
    }
    fill(&store);
    removed_above(&store, last);
    store.close().unwrap();
    let table = path.join("config/delayOffset.json");
    fs::write(table, r#"{"offsetTable":{1:1}}"#).unwrap();
    let store = open_as(&path, &bed.clock, removing(true));
    store.clock_moved().unwrap();
    let expected = Warning::Retired {
        topic: SCHEDULE_TOPIC.into(),
        queue: 0,
        messages: 2,
    };
    assert_eq!(retired(&store), [expected]);
    store.clock_moved().unwrap();
    assert_eq!(retired(&store), []);
}
