//! Delay levels that a store is opened with.

use super::consumer::{Bed, bodies, open_as, poll, receipts, wait};
use crate::engine::Durability;
use crate::{
    Consumer, ConsumerOptions, DelayLevels, Draft, Error, Filter, Options, SCHEDULE_TOPIC, Store,
};
use std::fs;

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
