//! Messages that linger, as a producer sends them.

use crate::{Delay, Draft, Durability, EngineKind, Error, Options, Store};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn options() -> Options {
    Options {
        engine: Some(EngineKind::PartitionLog),
        linger: HOUR,
        default_queues: Some(4),
        ..Options::default()
    }
}

fn draft(body: &[u8]) -> Draft<'_> {
    Draft {
        body,
        ..Draft::default()
    }
}

#[test]
fn messages_without_a_key_go_to_one_queue_until_its_batch_is_appended() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), options()).unwrap();
    let producer = store.producer("t", None).unwrap();
    let mut queues = Vec::new();
    for _ in 0..4 {
        let sent = || producer.send_nowait(&draft(b"x"), Delay::None).unwrap();
        let tickets = [sent(), sent(), sent()];
        assert!(
            tickets
                .iter()
                .all(|it| it.sent().is_none() && !it.is_done())
        );
        store.flush().unwrap();
        let places = tickets.map(|it| it.wait(HOUR).unwrap().unwrap().place);
        assert_eq!(places.map(|it| it.offset), [0, 1, 2]);
        assert!(places.iter().all(|it| it.queue == places[0].queue));
        queues.push(places[0].queue);
    }
    queues.sort_unstable();
    assert_eq!(queues, [0, 1, 2, 3]);
}

#[test]
fn every_ticket_of_messages_that_linger_is_completed_when_the_store_closes() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), options()).unwrap();
    let producer = store.producer("t", Some(0)).unwrap();
    let sent = |_| producer.send_nowait(&draft(b"x"), Delay::None).unwrap();
    let tickets: Vec<_> = (0..1000).map(sent).collect();
    store.close().unwrap();
    for (offset, ticket) in tickets.iter().enumerate() {
        assert!(ticket.is_done());
        let sent = ticket.wait(Duration::ZERO).unwrap().unwrap();
        assert!(sent.durable);
        assert_eq!(sent.place.offset, offset as u64);
    }
    let refused = producer.send_nowait(&draft(b"x"), Delay::None);
    assert!(matches!(refused, Err(Error::Closed { .. })));
}

#[test]
fn a_message_that_names_a_queue_or_has_a_key_goes_where_any_other_goes() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), options()).unwrap();
    let producer = store.producer("t", None).unwrap();
    for number in 0..20 {
        let key = number.to_string();
        let keyed = Draft {
            keys: &[&key],
            ..draft(b"x")
        };
        let now = producer.send(&keyed, 0, Durability::Written).unwrap();
        let later = producer.send_nowait(&keyed, Delay::None).unwrap();
        let named = Draft {
            queue: Some(3),
            ..keyed
        };
        let named = producer.send_nowait(&named, Delay::None).unwrap();
        store.flush().unwrap();
        assert_eq!(later.sent().unwrap().place.queue, now.place.queue);
        assert_eq!(named.sent().unwrap().place.queue, 3);
    }
}

#[test]
fn sends_batches_and_delayed_messages_do_not_linger() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), options()).unwrap();
    let producer = store.producer("t", Some(0)).unwrap();
    let later = Delay::For(HOUR);
    let delayed = producer.send_nowait(&draft(b"x"), later).unwrap();
    assert!(delayed.sent().is_some());
    let at_once = producer.send_at_once(&draft(b"x"), Delay::None).unwrap();
    assert_eq!(at_once.sent().unwrap().place.offset, 0);
    producer.send_nowait(&draft(b"x"), Delay::None).unwrap();
    let sent = producer.send(&draft(b"x"), 0, Durability::Written).unwrap();
    assert_eq!(sent.place.offset, 2);
}

#[test]
fn only_a_partition_log_lets_messages_linger_and_only_as_long_as_allowed() {
    let name_of = |options: Options| match Store::open(":memory:", options) {
        Err(Error::InvalidOption { name, .. }) => name,
        other => panic!("{:?}", other.err()),
    };
    let linger = Duration::from_millis(1);
    let given = Options {
        linger,
        ..Options::default()
    };
    assert_eq!(name_of(given), "linger");
    let given = Options {
        linger: Duration::from_secs(3601),
        ..options()
    };
    assert!(matches!(given.check(), Err(Error::InvalidOption { name, .. }) if name == "linger"));
    for (linger, batch_bytes) in [(Duration::ZERO, 100), (linger, (16 << 20) + 1)] {
        let given = Options {
            linger,
            batch_bytes: Some(batch_bytes),
            ..options()
        };
        let refused = given.check();
        assert!(matches!(refused, Err(Error::InvalidOption { name, .. }) if name == "batch_bytes"));
    }
}
