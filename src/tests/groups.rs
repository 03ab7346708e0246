//! Groups from outside, and the switches that RocketMQ's table of subscriptions has for them.

use super::consumer::{BEGIN_MS, Bed, bodies, on_each, poll, receipts, wait};
use crate::engine::Meanings;
use crate::{ConsumerOptions, Delivery, Error, Filter, GroupQueue, Mode, Options, Order, Store};
use std::fs;

fn group(store: &Store, topic: &str, queue: u32) -> GroupQueue {
    let mut groups = store.groups().unwrap().into_iter();
    let found = groups.find(|it| &*it.topic == topic && it.queue == queue);
    found.unwrap()
}

fn subscribe(bed: &Bed, switches: &str) {
    let config = bed.path.join("config");
    fs::create_dir_all(&config).unwrap();
    let text =
        format!("{{\"subscriptionGroupTable\":{{\"billing\":{{{switches}}}}},\"more\":{{1:[2]}}}}");
    fs::write(config.join("subscriptionGroup.json"), text).unwrap();
}

fn dead(bed: &Bed) -> Vec<(Vec<u8>, i32)> {
    let topic = Meanings::ROCKETMQ.dead_topic("billing");
    let all = Filter::default();
    let read = bed.store.read(&topic, 0, 0, 100, None, &all).unwrap();
    let letters = read.messages.iter();
    letters
        .map(|it| (it.body().unwrap().to_vec(), it.record().reconsume_times()))
        .collect()
}

#[test]
fn a_group_shows_its_lag_its_owners_and_when_it_last_moved() {
    on_each(|bed| {
        bed.send(0..2);
        bed.pass(1_000);
        bed.send(4..6);
        let consumer = bed.consumer(ConsumerOptions::default());
        let got = poll(&consumer);
        bed.pass(2_000);
        let record_len = |it: &Delivery| it.message.record().layout().total_len();
        let of_first: u32 = got
            .iter()
            .filter(|it| it.receipt.place().1 == 0)
            .map(record_len)
            .sum();
        let first = group(&bed.store, "orders", 0);
        assert_eq!((first.committed, first.max_offset, first.lag), (0, 2, 2));
        assert_eq!(first.lag_bytes, u64::from(of_first));
        assert_eq!(
            (first.lag_ms, first.unsettled, first.retries),
            (3_000, 2, 0)
        );
        assert_eq!(first.owned, Some(BEGIN_MS + 1_000));
        assert!(first.owner.is_some() && first.moved.is_none());
        assert_eq!(group(&bed.store, "orders", 3).lag_ms, 0);
        let zero = got.iter().find(|it| it.receipt.place() == ("orders", 0, 0));
        consumer.ack(receipts(zero)).unwrap();
        let one = got.iter().find(|it| it.receipt.place() == ("orders", 1, 0));
        consumer.nack(one.unwrap(), None).unwrap();
        let first = group(&bed.store, "orders", 0);
        assert_eq!((first.committed, first.lag, first.lag_ms), (1, 1, 2_000));
        assert_eq!(first.moved, Some(BEGIN_MS + 3_000));
        assert_eq!(group(&bed.store, "orders", 1).retries, 1);
        // Messages that time out are delivered again.
        bed.pass(16 * 60_000);
        let mut again = 0;
        while again < 2 + 1 {
            again += wait(&consumer).len();
        }
        assert_eq!(group(&bed.store, "orders", 0).retries, 1);
        assert_eq!(group(&bed.store, "orders", 1).retries, 2);
        drop(consumer);
        let first = group(&bed.store, "orders", 0);
        assert_eq!((first.owner, first.owned, first.unsettled), (None, None, 1));
    });
}

#[test]
fn what_an_iterator_gives_back_unseen_is_no_retry() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions::default());
        for _ in 0..3 {
            let got = poll(&consumer);
            consumer.give_back(receipts(&got));
        }
        assert_eq!(poll(&consumer).len(), 1);
        assert_eq!(group(&bed.store, "orders", 0).retries, 0);
    });
}

#[test]
fn a_reader_sees_groups_by_the_table_and_topics_that_come_later() {
    let bed = Bed::new("store");
    bed.send(0..8);
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let reader = Store::open(&bed.path, options).unwrap();
    assert_eq!(reader.groups().unwrap(), []);
    let consumer = bed.consumer(ConsumerOptions::default());
    consumer.ack(receipts(&poll(&consumer))).unwrap();
    consumer.commit().unwrap();
    bed.send(8..9);
    // A reader in another process sees only dispatched messages.
    bed.store
        .read("orders", 0, 2, 1, None, &Filter::default())
        .unwrap();
    let first = group(&reader, "orders", 0);
    assert_eq!((first.committed, first.max_offset, first.lag), (2, 3, 1));
    assert!(first.lag_bytes > 0 && first.owner.is_none() && first.moved.is_none());
    let refused = reader.reset_offsets("billing", "orders", &crate::Bound::Earliest);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })));
}

#[test]
fn a_row_that_another_process_has_changed_is_reset_too() {
    let bed = Bed::new("store");
    bed.send(0..4);
    let reset = |to| bed.store.reset_offsets("billing", "orders", &to).unwrap();
    reset(crate::Bound::Earliest);
    let row = crate::ProgressRow {
        topic: "orders".into(),
        group: "billing".into(),
        queue: 0,
        offset: 1,
    };
    let disk = crate::machine::Machine::real().disk;
    crate::record_progress(&disk, &bed.path, &[row]).unwrap();
    assert_eq!(group(&bed.store, "orders", 0).committed, 1);
    reset(crate::Bound::Earliest);
    assert_eq!(group(&bed.store, "orders", 0).committed, 0);
}

#[test]
fn a_group_that_may_not_consume_is_refused_by_name() {
    let bed = Bed::new("store");
    subscribe(&bed, "\"consumeEnable\":false");
    let join = |group| {
        bed.store
            .consumer(&["orders"], group, ConsumerOptions::default())
    };
    let Some(Error::InvalidOption { name, reason, .. }) = join("billing").err() else {
        panic!("the group consumes");
    };
    assert_eq!(name, "group");
    let reason = reason.to_string();
    assert!(reason.contains("consumeEnable is false"), "{reason}");
    assert!(join("other").is_ok());
    let table = bed.path.join("config/subscriptionGroup.json");
    let forbidden = r#"{"forbiddenTable":{"other":{"bills":4,"orders":3}}}"#;
    fs::write(&table, forbidden).unwrap();
    assert!(join("other").is_ok());
    let refused = |group| {
        let topics = ["orders", "bills"];
        let options = ConsumerOptions::default();
        bed.store.consumer(&topics, group, options).err()
    };
    let Some(Error::InvalidOption { name, reason, .. }) = refused("other") else {
        panic!("the group consumes");
    };
    assert_eq!(name, "topics");
    let reason = reason.to_string();
    assert!(reason.contains("forbiddenTable"), "{reason}");
    assert!(refused("third").is_none());
    fs::write(&table, "{torn").unwrap();
    assert!(matches!(join("other").err(), Some(Error::Corrupt { .. })));
}

#[test]
fn a_group_has_as_many_retries_and_retry_queues_as_its_subscription_says() {
    let bed = Bed::new("store");
    subscribe(&bed, "\"retryMaxTimes\":1,\"retryQueueNums\":3");
    bed.send(0..6);
    let consumer = bed.consumer(ConsumerOptions::default());
    for delivery in &poll(&consumer) {
        consumer.nack(delivery, Some(1)).unwrap();
    }
    let retry = bed
        .store
        .topic(&Meanings::ROCKETMQ.retry_topic("billing"))
        .unwrap();
    assert_eq!(retry.write_queues(), 3);
    bed.pass(1_000);
    let mut again = Vec::new();
    while again.len() < 6 {
        again.extend(wait(&consumer));
    }
    let queues: std::collections::BTreeSet<u32> =
        again.iter().map(|it| it.receipt.place().1).collect();
    assert_eq!(queues.len(), 3);
    assert!(dead(&bed).is_empty());
    for delivery in &again {
        consumer.nack(delivery, Some(1)).unwrap();
    }
    assert_eq!(dead(&bed).len(), 6);
    // Without retry queues no message is retried, and none is lost.
    subscribe(&bed, "\"retryQueueNums\":0");
    drop(consumer);
    let consumer = bed.consumer(ConsumerOptions::default());
    bed.send(6..7);
    consumer.nack(&wait(&consumer)[0], None).unwrap();
    assert_eq!(dead(&bed).last().unwrap().0, b"6");
}

#[test]
fn a_dead_letter_of_an_ordered_group_counts_its_attempts() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions {
            order: Order::Queue,
            retry_in_place: 3,
            ..ConsumerOptions::default()
        });
        for _ in 0..3 {
            consumer.nack(&poll(&consumer)[0], None).unwrap();
            bed.pass(30_000);
        }
        assert_eq!(dead(&bed), [(b"0".to_vec(), 3)]);
    });
}

/// RocketMQ's other tables belong to a broker and are never changed, whatever they hold.
#[test]
fn tables_of_subscriptions_and_filters_stay_as_they_are() {
    let mut bed = Bed::new("store");
    subscribe(&bed, "\"retryMaxTimes\":16,\"attributes\":{\"+a\":\"b\"}");
    let config = bed.path.join("config");
    let filter = r#"{"filterDataByTopic":{"orders":{"filterDataMap":{"billing":{"expression":
        "a > 1","expressionType":"SQL92","clientVersion":1}},"topic":"orders"}}}"#;
    fs::write(config.join("consumerFilter.json"), filter).unwrap();
    let tables = ["consumerFilter.json", "subscriptionGroup.json"];
    let read = |bed: &Bed| tables.map(|name| fs::read(bed.path.join("config").join(name)).unwrap());
    let before = read(&bed);
    bed.reopen();
    bed.send(0..2);
    let consumer = bed.consumer(ConsumerOptions::default());
    let got = poll(&consumer);
    assert_eq!(bodies(&got), [0, 1]);
    consumer.nack(&got[0], Some(1)).unwrap();
    consumer.reject(&got[1], None).unwrap();
    consumer.close().unwrap();
    bed.reopen();
    assert_eq!(read(&bed), before);
    for name in tables {
        assert!(!config.join(format!("{name}.bak")).exists());
    }
}
