//! Consumers of a store in memory and of one in files, by a clock that the test moves.

mod blocked;
mod limits;
mod members;
mod set_clock;
mod waiting;

use crate::bound::Bound;
use crate::clock::ManualClock;
use crate::engine::Durability;
use crate::engine::Meanings;
use crate::machine::Machine;
use crate::record::names::{ORIGIN_MESSAGE_ID, RETRY_TOPIC};
use crate::{
    ATTEMPTS_MAX, Consumer, ConsumerOptions, Delivery, Draft, EngineKind, Error, Filter, Options,
    Order, PropertyKind, Receipt, Start, Store, Warning,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) const BEGIN_MS: i64 = 1_700_000_000_000;
const MINUTE_MS: u64 = 60_000;

/// A store, its clock, and where it is.
pub(super) struct Bed {
    pub(super) store: Store,
    pub(super) clock: Arc<ManualClock>,
    pub(super) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bed {
    pub(super) fn new(path: &str) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(BEGIN_MS);
        let path = match path {
            ":memory:" => path.into(),
            name => folder.path().join(name),
        };
        Bed {
            store: open(&path, &clock),
            clock,
            path,
            _folder: folder,
        }
    }

    /// Closes the store and opens it again.
    pub(super) fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = open(&self.path, &self.clock);
    }

    pub(super) fn send(&self, numbers: std::ops::Range<usize>) {
        self.store.create_topic("orders", 4).unwrap();
        for number in numbers {
            let body = number.to_string();
            let draft = Draft {
                body: body.as_bytes(),
                tags: Some(["even", "odd"][number % 2]),
                queue: Some(number as u32 % 4),
                properties: &[("region", "eu")],
                ..Draft::default()
            };
            let producer = self.store.producer("orders", None).unwrap();
            producer.send(&draft, 0, Durability::Default).unwrap();
        }
    }

    pub(super) fn consumer(&self, options: ConsumerOptions) -> Consumer {
        self.store
            .consumer(&["orders"], "billing", options)
            .unwrap()
    }

    pub(super) fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.store.clock_moved().unwrap();
    }
}

pub(super) fn open(path: &Path, clock: &Arc<ManualClock>) -> Store {
    open_as(path, clock, Options::default())
}

pub(super) fn open_as(path: &Path, clock: &Arc<ManualClock>, options: Options) -> Store {
    let machine = Machine {
        clock: Arc::<ManualClock>::clone(clock),
        ..Machine::real()
    };
    Store::open_on(&machine, path, options).unwrap()
}

/// Runs a test on a store in memory and on one in files.
pub(super) fn on_each(test: impl Fn(Bed)) {
    test(Bed::new(":memory:"));
    test(Bed::new("store"));
}

/// The messages that a consumer gets without waiting.
pub(super) fn poll(consumer: &Consumer) -> Vec<Delivery> {
    consumer.poll(1_000, Duration::ZERO).unwrap()
}

/// The messages that a consumer gets; at least one must come.
pub(super) fn wait(consumer: &Consumer) -> Vec<Delivery> {
    let got = consumer.poll(1_000, Duration::from_secs(60)).unwrap();
    assert!(!got.is_empty(), "nothing comes");
    got
}

pub(super) fn body(delivery: &Delivery) -> usize {
    let body = delivery.message.body().unwrap();
    String::from_utf8_lossy(&body).parse().unwrap()
}

pub(super) fn receipts<'a>(
    got: impl IntoIterator<Item = &'a Delivery>,
) -> impl Iterator<Item = &'a Receipt> {
    got.into_iter().map(|it| &it.receipt)
}

pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<usize> {
    let mut bodies: Vec<usize> = deliveries.iter().map(body).collect();
    bodies.sort_unstable();
    bodies
}

pub(super) fn system(delivery: &Delivery) -> BTreeMap<String, String> {
    delivery.message.properties(PropertyKind::System)
}

#[test]
fn messages_are_delivered_once_and_what_is_settled_stays_so() {
    on_each(|mut bed| {
        bed.send(0..100);
        let consumer = bed.consumer(ConsumerOptions::default());
        let got = poll(&consumer);
        assert_eq!(bodies(&got), (0..100).collect::<Vec<_>>());
        assert!(poll(&consumer).is_empty());
        consumer.ack(receipts(&got[..])).unwrap();
        bed.send(100..104);
        assert_eq!(bodies(&wait(&consumer)), [100, 101, 102, 103]);
        drop(consumer);
        if bed.path.ends_with("store") {
            bed.reopen();
        }
        let consumer = bed.consumer(ConsumerOptions::default());
        assert_eq!(bodies(&poll(&consumer)), [100, 101, 102, 103]);
    });
}

/// A hundred messages are delivered, some of them are settled, and the process dies. The next one
/// begins at the smallest that is not settled.
#[test]
fn experiment_of_offset_2101_to_2200() {
    let commit_log = Options {
        commitlog_file_size: Some(1 << 20),
        index: Some(false),
        ..Options::default()
    };
    let partition_log = Options {
        engine: Some(EngineKind::PartitionLog),
        segment_bytes: Some(1 << 20),
        ..Options::default()
    };
    for options in [commit_log, partition_log] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(BEGIN_MS));
        let [path, dead] = ["store", "dead"].map(|name| folder.path().join(name));
        let store = open_as(&path, &clock, options.clone());
        let _open = settle_some_of_2200(&store);
        // What is left if the process dies at this moment: nothing closes consumer and store.
        copy(&path, &dead);
        let store = open_as(&dead, &clock, options);
        let consumer = store.consumer(&["orders"], "billing", ConsumerOptions::default());
        let again: Vec<u64> = poll(&consumer.unwrap()).iter().map(offset).collect();
        assert_eq!(again, (2_120..2_200).collect::<Vec<_>>());
    }
}

/// Returns the consumer, which gives back what it holds when it is dropped.
fn settle_some_of_2200(store: &Store) -> Consumer {
    store.create_topic("orders", 1).unwrap();
    let producer = store.producer("orders", Some(0)).unwrap();
    for _ in 0..2_200 {
        producer
            .send(&Draft::default(), 0, Durability::Default)
            .unwrap();
    }
    let consumer = store.consumer(&["orders"], "billing", ConsumerOptions::default());
    let consumer = consumer.unwrap();
    let first = consumer.poll(2_100, Duration::ZERO).unwrap();
    consumer.ack(receipts(&first)).unwrap();
    let rest = consumer.poll(2_100, Duration::ZERO).unwrap();
    assert_eq!(first.len() + rest.len(), 2_200);
    let settled = rest
        .iter()
        .filter(|it| !(2_120..2_150).contains(&offset(it)));
    consumer.ack(receipts(settled)).unwrap();
    store.flush().unwrap();
    consumer.commit().unwrap();
    consumer
}

fn offset(delivery: &Delivery) -> u64 {
    delivery.receipt.place().2
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn a_message_that_stays_unsettled_comes_back_and_an_extended_one_later() {
    on_each(|bed| {
        bed.send(0..2);
        let consumer = bed.consumer(ConsumerOptions::default());
        let got = poll(&consumer);
        bed.pass(10 * MINUTE_MS);
        let later = got.iter().find(|it| body(it) == 1).unwrap();
        consumer
            .extend(&later.receipt, Duration::from_mins(10))
            .unwrap();
        bed.pass(6 * MINUTE_MS);
        let again = poll(&consumer);
        assert_eq!(bodies(&again), [0]);
        bed.pass(5 * MINUTE_MS);
        assert_eq!(bodies(&poll(&consumer)), [1]);
        let stale = got.iter().find(|it| body(it) == 0).unwrap();
        assert!(matches!(
            consumer.ack(receipts([stale])),
            Err(Error::OwnershipLost { .. })
        ));
        consumer.ack(receipts(&again)).unwrap();
        assert!(matches!(
            consumer.ack(receipts(&again)),
            Err(Error::AlreadySettled { offset: 0, .. })
        ));
    });
}

#[test]
fn a_message_that_is_refused_comes_back_through_the_retry_topic() {
    on_each(|bed| {
        bed.send(7..8);
        let consumer = bed.consumer(ConsumerOptions::default());
        let got = poll(&consumer);
        consumer.nack(&got[0], None).unwrap();
        assert!(poll(&consumer).is_empty());
        // The first retry waits for level 3.
        bed.pass(10_000);
        let again = wait(&consumer);
        assert_eq!(
            (bodies(&again), again[0].receipt.place().0),
            (vec![7], "%RETRY%billing")
        );
        assert_eq!(again[0].message.record().reconsume_times(), 1);
        let system = system(&again[0]);
        assert_eq!(system[RETRY_TOPIC], "orders");
        assert_eq!(system[ORIGIN_MESSAGE_ID], got[0].message.id());
        let user = again[0].message.properties(PropertyKind::User);
        assert_eq!(user["region"], "eu");
        assert_eq!(again[0].message.tags().as_deref(), Some("odd"));
        // Another level, chosen by the caller.
        consumer.nack(&again[0], Some(1)).unwrap();
        bed.pass(1_000);
        let third = wait(&consumer);
        assert_eq!(third[0].message.record().reconsume_times(), 2);
        consumer.ack(receipts(&third)).unwrap();
        assert!(matches!(
            consumer.nack(&third[0], Some(19)),
            Err(Error::InvalidOption { .. })
        ));
    });
}

#[test]
fn a_message_that_fails_too_often_or_is_rejected_becomes_a_dead_letter() {
    on_each(|bed| {
        bed.send(0..2);
        let consumer = bed.consumer(ConsumerOptions::default());
        for delivery in &poll(&consumer) {
            match body(delivery) {
                0 => consumer.nack(delivery, Some(1)).unwrap(),
                _ => consumer
                    .reject(delivery, Some("no\u{1}such order"))
                    .unwrap(),
            }
        }
        for _ in 1..=ATTEMPTS_MAX {
            bed.pass(1_000);
            consumer.nack(&wait(&consumer)[0], Some(1)).unwrap();
        }
        bed.pass(60_000);
        assert!(poll(&consumer).is_empty());
        let dead = bed
            .store
            .read(
                &Meanings::ROCKETMQ.dead_topic("billing"),
                0,
                0,
                10,
                None,
                &Filter::default(),
            )
            .unwrap();
        let found: Vec<_> = dead
            .messages
            .iter()
            .map(|it| (it.body().unwrap().to_vec(), it.record().reconsume_times()))
            .collect();
        assert_eq!(
            found,
            [(b"1".to_vec(), 1), (b"0".to_vec(), ATTEMPTS_MAX + 1)]
        );
        let told = dead.messages[0].properties(PropertyKind::User);
        assert_eq!(told["FOREBAY_REASON"], "no such order");
    });
}

#[test]
fn in_an_ordered_queue_nothing_is_delivered_before_a_message_that_failed() {
    on_each(|bed| {
        bed.send(0..8);
        let consumer = bed.consumer(ConsumerOptions {
            order: Order::Queue,
            retry_in_place: 2,
            ..ConsumerOptions::default()
        });
        let got = poll(&consumer);
        // Queue 0 holds 0 and 4, queue 1 holds 1 and 5.
        let find = |got: &[Delivery], number| got.iter().find(|it| body(it) == number).cloned();
        consumer.nack(&find(&got, 0).unwrap(), None).unwrap();
        consumer
            .ack(receipts([&find(&got, 1).unwrap(), &find(&got, 5).unwrap()]))
            .unwrap();
        bed.send(8..10);
        assert_eq!(bodies(&poll(&consumer)), [9]);
        bed.pass(1_000);
        let again = poll(&consumer);
        assert_eq!(again.iter().map(body).collect::<Vec<_>>(), [0, 4, 8]);
        assert!(matches!(
            consumer.ack(receipts([&find(&got, 4).unwrap()])),
            Err(Error::OwnershipLost { .. })
        ));
        // The second attempt is the last.
        consumer.nack(&again[0], None).unwrap();
        consumer.ack(receipts(&again[1..])).unwrap();
        let dead = Meanings::ROCKETMQ.dead_topic("billing");
        let dead = bed
            .store
            .read(&dead, 0, 0, 10, None, &Filter::default())
            .unwrap();
        assert_eq!(dead.messages.len(), 1);
        let retry = bed.store.topic(&Meanings::ROCKETMQ.retry_topic("billing"));
        assert!(matches!(retry, Err(Error::UnknownTopic { .. })));
    });
}

#[test]
fn queues_are_handed_over_once_their_owner_has_settled() {
    on_each(|bed| {
        bed.send(0..8);
        let one = bed.consumer(ConsumerOptions::default());
        let got = poll(&one);
        assert_eq!(got.len(), 8);
        let two = bed.consumer(ConsumerOptions::default());
        assert_eq!(two.assignment().unwrap().len(), 2);
        assert!(poll(&two).is_empty());
        one.ack(receipts(&got)).unwrap();
        bed.send(8..16);
        let (first, second) = (poll(&one), poll(&two));
        assert_eq!((first.len(), second.len()), (4, 4));
        let both = [bodies(&first), bodies(&second)].concat();
        assert_eq!(both.iter().sum::<usize>(), (8..16).sum::<usize>());
        // A consumer that leaves gives back its unsettled messages at once.
        one.close().unwrap();
        let refused = one.ack(receipts(&first));
        assert!(matches!(refused, Err(Error::ConsumerClosed)));
        bed.pass(1_000);
        assert_eq!(bodies(&poll(&two)), bodies(&first));
    });
}

#[test]
fn a_consumer_that_is_left_without_a_queue_says_so() {
    on_each(|bed| {
        bed.store.create_topic("orders", 2).unwrap();
        let topics: &[&str] = &["orders"];
        let join = || bed.consumer(ConsumerOptions::default());
        let (first, _second) = (join(), join());
        assert!(bed.store.take_warnings().is_empty());
        let third = join();
        let expected = Warning::NoQueue {
            group: "billing".into(),
            topics: topics.iter().map(|topic| (*topic).into()).collect(),
            consumers: 3,
            queues: 2,
        };
        assert_eq!(bed.store.take_warnings(), [expected]);
        assert!(third.assignment().unwrap().is_empty());
        first.close().unwrap();
        assert_eq!(third.assignment().unwrap().len(), 1);
    });
}

#[test]
fn a_group_begins_where_it_is_asked_to_and_only_once() {
    on_each(|bed| {
        bed.send(0..4);
        bed.clock.advance(1_000);
        bed.send(4..8);
        let begin = |group: &str, start: Start| {
            let options = ConsumerOptions {
                start,
                ..ConsumerOptions::default()
            };
            let consumer = bed.store.consumer(&["orders"], group, options).unwrap();
            bodies(&poll(&consumer))
        };
        let everywhere = Start::Everywhere;
        assert_eq!(begin("all", Start::default()).len(), 8);
        assert_eq!(begin("new", everywhere(Bound::Latest)), [0; 0]);
        assert_eq!(
            begin("time", everywhere(Bound::Time(BEGIN_MS + 1))),
            [4, 5, 6, 7]
        );
        let named = Bound::Offsets([(0, 1), (1, 2)].into());
        let named = Start::ByTopic([("orders".to_owned(), named)].into());
        assert_eq!(begin("named", named.clone()), [2, 3, 4, 6, 7]);
        // The offset where a group began is kept.
        bed.send(8..9);
        assert_eq!(begin("new", Start::default()), [8]);
        let beyond = Bound::Offsets([(0, 4)].into());
        let options = ConsumerOptions {
            start: Start::ByTopic([("orders".to_owned(), beyond)].into()),
            ..ConsumerOptions::default()
        };
        assert!(matches!(
            bed.store.consumer(&["orders"], "beyond", options).err(),
            Some(Error::OffsetOutOfRange { max: 3, .. })
        ));
    });
}

#[test]
fn messages_that_no_filter_passes_count_as_settled() {
    on_each(|bed| {
        bed.send(0..40);
        let consumer = bed.consumer(ConsumerOptions {
            filter: Filter {
                tags: vec!["odd".to_owned()],
                ..Filter::default()
            },
            max_unsettled: 3,
            ..ConsumerOptions::default()
        });
        let mut seen = Vec::new();
        loop {
            let got = poll(&consumer);
            if got.is_empty() {
                break;
            }
            seen.extend(bodies(&got));
            consumer.ack(receipts(&got)).unwrap();
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..40).filter(|it| it % 2 == 1).collect::<Vec<_>>());
        let lag: u64 = consumer.assignment().unwrap().iter().map(|it| it.lag).sum();
        assert_eq!(lag, 0);
    });
}

#[test]
fn a_message_that_is_delivered_again_must_pass_the_filter_of_its_consumer() {
    on_each(|bed| {
        bed.send(0..40);
        let consumer = bed.consumer(ConsumerOptions::default());
        assert_eq!(poll(&consumer).len(), 40);
        consumer.close().unwrap();
        let consumer = bed.consumer(ConsumerOptions {
            filter: Filter {
                tags: vec!["odd".to_owned()],
                ..Filter::default()
            },
            ..ConsumerOptions::default()
        });
        // Messages that the filter drops do not count towards the limit of a poll.
        let mut got = consumer.poll(15, Duration::ZERO).unwrap();
        assert_eq!(got.len(), 15);
        got.extend(poll(&consumer));
        assert_eq!(
            bodies(&got),
            (0..40).filter(|it| it % 2 == 1).collect::<Vec<_>>()
        );
        consumer.ack(receipts(&got)).unwrap();
        let lag: u64 = consumer.assignment().unwrap().iter().map(|it| it.lag).sum();
        assert_eq!(lag, 0);
    });
}

#[test]
fn no_more_is_delivered_than_may_be_unsettled() {
    on_each(|bed| {
        bed.send(0..40);
        let consumer = bed.consumer(ConsumerOptions {
            max_unsettled: 2,
            ..ConsumerOptions::default()
        });
        let got = poll(&consumer);
        assert_eq!(got.len(), 4 * 2);
        assert!(poll(&consumer).is_empty());
        // The second message of a queue makes no room while the first is not settled.
        let second = got.iter().filter(|it| it.receipt.place().2 == 1);
        consumer.ack(receipts(second)).unwrap();
        assert!(poll(&consumer).is_empty());
        let first = got.iter().filter(|it| it.receipt.place().2 == 0);
        consumer.ack(receipts(first)).unwrap();
        assert_eq!(poll(&consumer).len(), 4 * 2);
    });
}

#[test]
fn a_delayed_message_is_delivered_at_its_time_and_after_a_restart_at_once() {
    let mut bed = Bed::new("store");
    let consumer = bed.consumer(ConsumerOptions::default());
    let send = |store: &Store, body: &[u8], level: u8| {
        let producer = store.producer("orders", Some(1)).unwrap();
        let draft = Draft {
            body,
            ..Draft::default()
        };
        producer.send(&draft, level, Durability::Default).unwrap();
    };
    send(&bed.store, b"5", 2);
    send(&bed.store, b"1", 1);
    bed.pass(999);
    assert!(poll(&consumer).is_empty());
    bed.pass(1);
    let got = wait(&consumer);
    assert_eq!(
        (bodies(&got), got[0].receipt.place()),
        (vec![1], ("orders", 1, 0))
    );
    bed.pass(4_000);
    assert_eq!(bodies(&wait(&consumer)), [5]);
    send(&bed.store, b"9", 18);
    drop(consumer);
    bed.store.close().unwrap();
    bed.clock.advance(3 * 3_600_000);
    bed.store = open(&bed.path, &bed.clock);
    let consumer = bed.consumer(ConsumerOptions::default());
    let mut seen = bodies(&wait(&consumer));
    while !seen.contains(&9) {
        seen.extend(bodies(&wait(&consumer)));
    }
    // The first two were not settled; the third was delivered once.
    seen.sort_unstable();
    assert_eq!(seen, [1, 5, 9]);
}

#[test]
fn a_delayed_message_for_no_topic_stays_where_it_is_and_the_next_is_delivered() {
    let bed = Bed::new("store");
    let consumer = bed.consumer(ConsumerOptions::default());
    let schedule = bed.store.producer(crate::SCHEDULE_TOPIC, Some(0)).unwrap();
    schedule
        .send(&Draft::default(), 0, Durability::Default)
        .unwrap();
    let producer = bed.store.producer("orders", None).unwrap();
    let draft = Draft {
        body: b"3",
        ..Draft::default()
    };
    producer.send(&draft, 1, Durability::Default).unwrap();
    bed.pass(1_000);
    assert_eq!(bodies(&wait(&consumer)), [3]);
    let warnings = bed.store.take_warnings();
    assert!(
        matches!(
            warnings[..],
            [crate::Warning::Undelivered { position: 0, .. }]
        ),
        "{warnings:?}"
    );
}

#[test]
fn offsets_can_be_reset_and_sought() {
    on_each(|bed| {
        bed.send(0..8);
        let consumer = bed.consumer(ConsumerOptions::default());
        let got = poll(&consumer);
        consumer.ack(receipts(&got)).unwrap();
        consumer.seek(&Start::Everywhere(Bound::Earliest)).unwrap();
        let again = poll(&consumer);
        assert_eq!(again.len(), 8);
        let offsets = Bound::Offsets([(2, 1)].into());
        bed.store
            .reset_offsets("billing", "orders", &offsets)
            .unwrap();
        assert_eq!(bodies(&poll(&consumer)), [6]);
        bed.store
            .reset_offsets("billing", "orders", &Bound::Latest)
            .unwrap();
        assert!(poll(&consumer).is_empty());
        let groups = bed.store.groups().unwrap();
        let of_orders: Vec<_> = groups.iter().filter(|it| &*it.topic == "orders").collect();
        assert_eq!(of_orders.len(), 4);
        assert!(of_orders.iter().all(|it| (it.committed, it.lag) == (2, 0)));
        let unknown = bed.store.reset_offsets("billing", "bills", &Bound::Latest);
        assert!(matches!(unknown, Err(Error::UnknownTopic { .. })));
    });
}

#[test]
fn a_queue_that_ends_before_what_a_group_has_settled_is_refused_by_name() {
    let mut bed = Bed::new("store");
    bed.send(0..4);
    let consumer = bed.consumer(ConsumerOptions::default());
    let got = poll(&consumer);
    consumer.ack(receipts(&got)).unwrap();
    drop(consumer);
    bed.store.close().unwrap();
    let table = bed.path.join("config/consumerOffset.json");
    let text = std::fs::read_to_string(&table).unwrap();
    std::fs::write(&table, text.replace("\"0\": 1", "\"0\": 9")).unwrap();
    bed.store = open(&bed.path, &bed.clock);
    let consumer = bed.consumer(ConsumerOptions::default());
    assert!(matches!(
        consumer.poll(10, Duration::ZERO).err(),
        Some(Error::LogShrunk {
            offset: 9,
            end: 1,
            ..
        })
    ));
    bed.store
        .reset_offsets("billing", "orders", &Bound::Latest)
        .unwrap();
    assert!(poll(&consumer).is_empty());
}

#[test]
fn a_store_that_closes_ends_its_consumers() {
    on_each(|bed| {
        bed.send(0..1);
        let consumer = bed.consumer(ConsumerOptions::default());
        consumer.ack(receipts(&poll(&consumer))).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| consumer.poll(1, Duration::from_secs(600)));
            bed.store.close().unwrap();
            assert!(matches!(waiting.join().unwrap(), Err(Error::Closed { .. })));
        });
        consumer.close().unwrap();
        let refused = bed
            .store
            .consumer(&["orders"], "billing", ConsumerOptions::default());
        assert!(matches!(refused.err(), Some(Error::Closed { .. })));
    });
}
