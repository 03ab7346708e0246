//! How many messages a group of consumers handles in a second, and how long it takes to save its
//! progress.
//!
//! Groups: `poll`, `table`, `late`. The senders of `table` show whether saving holds them up.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{Consumer, ConsumerOptions, Delay, Draft, Durability, Store};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::load::{Keys, TOPIC, message_count, new_store, options, send_batches};
use support::{Clock, Report, contest, is_wanted, rounds};

const BODY: [u8; 100] = [0x5A; 100];
/// Messages of a poll.
const POLL: usize = 1_000;
/// Groups and queues of the table.
const GROUPS: usize = 1_000;
const QUEUES: u32 = 100;
/// How long senders are measured, with and without saves at the same time.
const SENDING: Duration = Duration::from_secs(2);
/// Messages with a delivery time, and as many with a level.
const TIMED: u64 = 50;
/// The delay of the first level, in ms, and the pause between two messages of it: all are sent
/// before the first is due.
const LEVEL_MS: i64 = 1_000;
const PAUSE: Duration = Duration::from_millis(15);

fn main() {
    let mut report = Report::new("consume");
    if is_wanted("poll") {
        let keys = Keys::new(message_count(BODY.len()).min(2_000_000));
        let (_scratch, store) = new_store(options());
        let producer = store.producer(TOPIC, Some(0)).unwrap();
        send_batches(&producer, &BODY, &keys);
        let groups = Cell::new(0);
        let consume = |name: &str, one_by_one: bool| {
            groups.set(groups.get() + 1);
            let consumer = join(&store, &format!("group-{}", groups.get()));
            let clock = Clock::start();
            let mut taken = 0;
            while taken < keys.len() {
                let messages = consumer.poll(POLL, Duration::MAX).unwrap();
                taken += messages.len();
                let mut receipts = messages.iter().map(|it| &it.receipt);
                match one_by_one {
                    true => receipts.for_each(|receipt| consumer.ack([receipt]).unwrap()),
                    false => consumer.ack(receipts.by_ref()).unwrap(),
                }
            }
            clock.stop().rates(name, "messages/s", taken as f64)
        };
        contest(
            &mut report,
            &mut [
                &mut || consume("poll(1,000) and ack of all", false),
                &mut || consume("poll(1,000) and ack of each", true),
            ],
        );
    }
    if is_wanted("table") {
        table(&mut report);
    }
    if is_wanted("late") {
        late(&mut report);
    }
}

fn join(store: &Store, group: &str) -> Consumer {
    let options = ConsumerOptions {
        max_unsettled: 2 * POLL as u64,
        ..ConsumerOptions::default()
    };
    store.consumer(&[TOPIC], group, options).unwrap()
}

/// Saves the progress of many groups, all of which has changed, while a thread sends.
fn table(report: &mut Report) {
    let (_scratch, store) = new_store(options());
    store.create_topic(TOPIC, QUEUES).unwrap();
    let consumers: Vec<Consumer> = (0..GROUPS)
        .map(|number| join(&store, &format!("group-{number:04}")))
        .collect();
    let mut took = Vec::new();
    for round in 0..=rounds() {
        for queue in 0..QUEUES {
            let producer = store.producer(TOPIC, Some(queue)).unwrap();
            producer
                .send(&Draft::default(), 0, Durability::Default)
                .unwrap();
        }
        for consumer in &consumers {
            let messages = consumer.poll(POLL, Duration::MAX).unwrap();
            consumer.ack(messages.iter().map(|it| &it.receipt)).unwrap();
        }
        store.flush().unwrap();
        let began = Instant::now();
        consumers[0].commit().unwrap();
        // The first save makes the table.
        if round > 0 {
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    report.add("progress of 1,000 groups x 100 queues saved", "ms", &took);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        alone.push(sending(&store, || std::thread::sleep(SENDING)));
        beside.push(sending(&store, || save_again(&store, &consumers)));
    }
    report.add("sends, nothing is saved", "messages/s", &alone);
    report.add(
        "sends, all progress is saved again and again",
        "messages/s",
        &beside,
    );
}

fn save_again(store: &Store, consumers: &[Consumer]) {
    let began = Instant::now();
    while began.elapsed() < SENDING {
        let producer = store.producer(TOPIC, Some(0)).unwrap();
        producer
            .send(&Draft::default(), 0, Durability::Default)
            .unwrap();
        for consumer in consumers {
            let messages = consumer.poll(1, Duration::MAX).unwrap();
            consumer.ack(messages.iter().map(|it| &it.receipt)).unwrap();
        }
        consumers[0].commit().unwrap();
    }
}

/// Messages a second that a thread sends to another topic while `other` runs.
fn sending(store: &Store, other: impl FnOnce()) -> f64 {
    let (done, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let producer = store.producer("other", Some(0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let draft = Draft {
                body: &BODY,
                ..Draft::default()
            };
            while !done.load(Ordering::Relaxed) {
                producer.send(&draft, 0, Durability::Default).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                // Senders pause, because at full speed the disk would be the limit.
                for _ in 0..200 {
                    std::hint::spin_loop();
                }
            }
        });
        let began = Instant::now();
        other();
        let rate = sent.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        rate
    })
}

/// How late messages with a delivery time, and those with a level, reach a consumer that waits.
fn late(report: &mut Report) {
    let (_scratch, store) = new_store(options());
    let consumer = join(&store, "group");
    let first = consumer.poll(POLL, Duration::MAX).unwrap();
    consumer.ack(first.iter().map(|it| &it.receipt)).unwrap();
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let send = |due: i64, delay: Delay| {
        let draft = Draft {
            body: &due.to_le_bytes(),
            ..Draft::default()
        };
        producer
            .send_delayed(&draft, delay, Durability::Default)
            .unwrap();
    };
    let late = || {
        let messages = consumer.poll(1, Duration::MAX).unwrap();
        let now = store.now_ms();
        let due = messages[0].message.body().unwrap();
        let due = i64::from_le_bytes(due[..8].try_into().unwrap());
        consumer.ack(messages.iter().map(|it| &it.receipt)).unwrap();
        (now - due) as f64
    };
    let by_time = (0..TIMED).map(|number| {
        let due = store.now_ms() + 20 + number.cast_signed() % 7;
        send(due, Delay::Until(due));
        late()
    });
    add_late(report, "time", by_time.collect());
    for _ in 0..TIMED {
        send(store.now_ms() + LEVEL_MS, Delay::Level(1));
        std::thread::sleep(PAUSE);
    }
    let by_level = (0..TIMED).map(|_| late());
    add_late(report, "level", by_level.collect());
}

fn add_late(report: &mut Report, of: &str, mut late: Vec<f64>) {
    late.sort_by(f64::total_cmp);
    let name = |what: &str| format!("delivery after its {of}: {what}");
    report.add(&name("p50"), "ms", &[late[late.len() / 2]]);
    report.add(&name("longest"), "ms", &late[late.len() - 1..]);
}
