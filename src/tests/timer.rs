//! Messages with a delivery time, by a clock that the test moves.

mod refused;
mod set_clock;

use super::consumer::{BEGIN_MS, Bed, bodies, body, on_each, poll, receipts, system, wait};
use crate::clock::ManualClock;
use crate::disk::{Call, Disk, HookedDisk, RealDisk};
use crate::engine::{Atomicity, Durability};
use crate::machine::Machine;
use crate::record::names::{DELIVER_AT, REAL_QID, REAL_TOPIC, TIMER_OFFSET};
use crate::table::timer::TimerTable;
use crate::{
    ConsumerOptions, Delay, Delivery, Draft, EngineKind, Error, Filter, Flush, Options, Sent,
    Store, TIMER_TOPIC, Warning,
};
use std::fs;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

fn send(store: &Store, number: usize, delay: Delay) -> Sent {
    let producer = store.producer("orders", Some(1)).unwrap();
    let text = number.to_string();
    let draft = Draft {
        body: text.as_bytes(),
        properties: &[("region", "eu")],
        tags: Some("paid"),
        ..Draft::default()
    };
    producer
        .send_delayed(&draft, delay, Durability::Default)
        .unwrap()
}

fn after(ms: u64) -> Delay {
    Delay::For(Duration::from_millis(ms))
}

/// Messages with numbers from here on only show that a step has run.
const MARKER: usize = 1_000;

/// The numbers of all messages in the topic, in order.
fn numbers(store: &Store) -> Vec<usize> {
    let all = Filter::default();
    let read = store.read("orders", 1, 0, 1_000, None, &all).unwrap();
    let messages = read.messages.iter();
    let bodies = messages.map(|it| String::from_utf8_lossy(&it.body().unwrap()).into_owned());
    bodies.map(|it| it.parse().unwrap()).collect()
}

/// The numbers of the delivered messages, in order.
fn delivered(store: &Store) -> Vec<usize> {
    let mut numbers = numbers(store);
    numbers.retain(|number| *number < MARKER);
    numbers
}

/// Waits until `count` messages are in the topic, and for one more step, which could deliver one
/// twice.
fn settled(store: &Store, count: usize) -> Vec<usize> {
    until(|| delivered(store).len() >= count);
    let marker = MARKER + numbers(store).len();
    send(store, marker, Delay::Until(0));
    until(|| numbers(store).contains(&marker));
    delivered(store)
}

fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn messages_are_delivered_at_their_time_and_in_the_order_of_times() {
    on_each(|bed| {
        let consumer = bed.consumer(ConsumerOptions::default());
        send(&bed.store, 4, after(4_000));
        send(&bed.store, 3, Delay::Until(BEGIN_MS + 3_000));
        send(&bed.store, 2, after(2_000));
        send(&bed.store, 1, Delay::Until(BEGIN_MS - 1));
        let first = wait(&consumer);
        assert_eq!(bodies(&first), [1]);
        assert_eq!(first[0].receipt.place(), ("orders", 1, 0));
        bed.pass(1_999);
        assert!(poll(&consumer).is_empty());
        bed.pass(1);
        let second = wait(&consumer);
        assert_eq!(bodies(&second), [2]);
        let told = system(&second[0]);
        assert_eq!(told[DELIVER_AT], (BEGIN_MS + 2_000).to_string());
        assert_eq!(told[TIMER_OFFSET], "2");
        assert!(!told.contains_key(REAL_TOPIC));
        let user = second[0].message.properties(crate::PropertyKind::User);
        assert_eq!(user["region"], "eu");
        assert_eq!(second[0].message.tags().as_deref(), Some("paid"));
        bed.pass(10_000);
        until(|| delivered(&bed.store).len() == 4);
        assert_eq!(delivered(&bed.store), [1, 2, 3, 4]);
    });
}

#[test]
fn a_delay_of_more_than_366_days_is_refused() {
    on_each(|bed| {
        let year = 366 * 24 * 3_600 * 1_000;
        send(&bed.store, 1, after(year));
        let producer = bed.store.producer("orders", None).unwrap();
        let draft = Draft::default();
        let refused = producer.send_delayed(&draft, after(year + 1), Durability::Default);
        let Err(Error::InvalidOption { name, .. }) = refused else {
            panic!("the delay is too long");
        };
        assert_eq!(name, "delay");
        bed.pass(year - 1);
        assert!(bed.store.topic("orders").is_ok());
        assert_eq!(delivered(&bed.store), [0; 0]);
        bed.pass(1);
        assert_eq!(settled(&bed.store, 1), [1]);
    });
}

#[test]
fn after_a_restart_what_is_overdue_comes_at_once_and_nothing_twice() {
    let mut bed = Bed::new("store");
    for number in 1..=5 {
        send(&bed.store, number, after(number as u64 * 1_000));
    }
    bed.pass(2_000);
    until(|| delivered(&bed.store).len() == 2);
    bed.store.close().unwrap();
    assert!(bed.path.join("forebay.delay").exists());
    bed.clock.advance(1_000);
    bed.reopen();
    assert_eq!(settled(&bed.store, 3), [1, 2, 3]);
    bed.pass(2_000);
    assert_eq!(settled(&bed.store, 5), [1, 2, 3, 4, 5]);
}

/// The table is a cache: the deliveries are in the log. A process that dies leaves an older table,
/// or none.
#[test]
fn without_its_table_or_with_an_older_one_a_store_delivers_nothing_twice() {
    for keeps in [true, false] {
        let mut bed = Bed::new("store");
        let table = bed.path.join("forebay.delay");
        for number in 1..=5 {
            send(&bed.store, number, after(number as u64 * 1_000));
        }
        bed.pass(1_000);
        until(|| delivered(&bed.store).len() == 1);
        bed.reopen();
        until(|| table.exists());
        let older = fs::read(&table).unwrap();
        bed.pass(2_000);
        until(|| delivered(&bed.store).len() == 3);
        bed.store.close().unwrap();
        assert_ne!(fs::read(&table).unwrap(), older);
        match keeps {
            true => fs::write(&table, older).unwrap(),
            false => fs::remove_file(&table).unwrap(),
        }
        bed.clock.advance(1_000);
        bed.reopen();
        assert_eq!(settled(&bed.store, 4), [1, 2, 3, 4]);
        bed.pass(1_000);
        assert_eq!(settled(&bed.store, 5), [1, 2, 3, 4, 5]);
    }
}

/// A table that covers more than the log has belongs to another log.
#[test]
fn a_table_of_a_longer_log_hides_no_message() {
    let bed = Bed::new("store");
    for number in 1..=3 {
        send(&bed.store, number, after(1_000));
    }
    settled(&bed.store, 0);
    bed.store.close().unwrap();
    let table = TimerTable::load(&RealDisk, &bed.path.join("forebay.delay")).unwrap();
    // A process may keep the description of an earlier one.
    let kept = TimerTable {
        low: 3,
        end: 0,
        position: 0,
        ..table.clone()
    };
    for table in [table, kept] {
        let mut shorter = Bed::new("store");
        send(&shorter.store, 7, after(1_000));
        shorter.store.close().unwrap();
        let path = shorter.path.join("forebay.delay");
        table.save(&RealDisk, &path).unwrap();
        shorter.clock.advance(1_000);
        shorter.reopen();
        assert_eq!(settled(&shorter.store, 1), [7]);
    }
}

#[test]
fn what_waits_is_carried_forward_before_its_file_goes() {
    for forgets in [false, true] {
        let mut bed = Bed::new("store");
        for number in 1..=4 {
            send(&bed.store, number, after(number as u64 * 1_000));
        }
        bed.pass(1_000);
        until(|| delivered(&bed.store).len() == 1);
        let end = bed.store.engine().unwrap().readable_position();
        until(|| bed.store.let_go(end).unwrap());
        let of_timer = |store: &Store| {
            let all = Filter::default();
            let read = store.read(TIMER_TOPIC, 0, 4, 100, None, &all).unwrap();
            read.messages.len()
        };
        assert_eq!(of_timer(&bed.store), 3);
        // The second time, no message is left to be appended again.
        until(|| bed.store.let_go(end).unwrap());
        assert_eq!(of_timer(&bed.store), 3);
        bed.pass(1_000);
        assert_eq!(settled(&bed.store, 2), [1, 2]);
        bed.store.close().unwrap();
        if forgets {
            fs::remove_file(bed.path.join("forebay.delay")).unwrap();
        }
        bed.clock.advance(1_000);
        bed.reopen();
        assert_eq!(settled(&bed.store, 3), [1, 2, 3]);
        bed.pass(1_000);
        assert_eq!(settled(&bed.store, 4), [1, 2, 3, 4]);
    }
}

#[test]
fn retention_takes_old_files_and_loses_no_message_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(BEGIN_MS);
    let machine = Machine {
        clock: Arc::<ManualClock>::clone(&clock),
        ..Machine::real()
    };
    let options = Options {
        commitlog_file_size: Some(64 << 10),
        queue_file_entries: Some(64),
        index_slots: Some(10),
        index_entries: Some(40),
        retention_bytes: Some(128 << 10),
        disk_reserve: Some(0),
        flush_interval: Duration::from_millis(10),
        ..Options::default()
    };
    let store = Store::open_on(&machine, folder.path(), options).unwrap();
    let first = send(&store, 1, after(3_600_000));
    let largest = send_largest(&store, 2, after(3_600_000));
    let filler = store.producer("filler", Some(0)).unwrap();
    let draft = Draft {
        body: &[0; 1_000],
        ..Draft::default()
    };
    for _ in 0..400 {
        filler.send(&draft, 0, Durability::Default).unwrap();
    }
    assert!(largest.place.position > first.place.position);
    until(|| store.stats().unwrap().min_position > largest.place.position);
    assert!(matches!(
        store.get(TIMER_TOPIC, 0, 1).err(),
        Some(Error::OffsetOutOfRange { min: 2.., .. })
    ));
    clock.advance(3_600_000);
    store.clock_moved().unwrap();
    assert_eq!(settled(&store, 2), [1, 2]);
    store.close().unwrap();
}

/// Sends a message with as many bytes of properties as are accepted.
fn send_largest(store: &Store, number: usize, delay: Delay) -> Sent {
    let producer = store.producer("orders", Some(1)).unwrap();
    let text = number.to_string();
    largest(|value| {
        let draft = Draft {
            body: text.as_bytes(),
            properties: &[("a", value)],
            ..Draft::default()
        };
        producer.send_delayed(&draft, delay, Durability::Default)
    })
}

/// The result of `send` for the longest value of a property that it accepts.
fn largest<T>(send: impl Fn(&str) -> crate::Result<T>) -> T {
    let value = "x".repeat(32_767);
    let Err(Error::TooLarge { size, limit, .. }) = send(&value) else {
        panic!("a value of {} bytes is accepted", value.len());
    };
    send(&value[(size - limit) as usize..]).unwrap()
}

/// Earlier versions left no room for the offset that a delivered message states.
#[test]
fn a_message_without_room_for_its_offset_is_delivered_and_those_after_it_too() {
    on_each(|bed| {
        // An offset of three digits takes more room than names of one character leave.
        for number in 0..100 {
            send(&bed.store, number, Delay::Until(0));
        }
        let engine = bed.store.engine().unwrap();
        let waiting = engine.topic_for_append(TIMER_TOPIC).unwrap();
        let at = (BEGIN_MS + 1_000).to_string();
        let system = [(DELIVER_AT, &*at), (REAL_TOPIC, "t"), (REAL_QID, "0")];
        let appended = largest(|value| {
            let draft = Draft {
                properties: &[("a", value)],
                system_properties: &system,
                ..Draft::default()
            };
            let mut batch = engine.form().batch();
            batch.push(TIMER_TOPIC, 0, &draft, BEGIN_MS)?;
            let batches = &mut [(&*waiting, &mut batch)];
            engine.append(batches, Atomicity::Rows, Durability::Default)
        });
        assert_eq!(appended.rows.len(), 1);
        send(&bed.store, 100, after(1_000));
        bed.pass(1_000);
        assert_eq!(settled(&bed.store, 101).last(), Some(&100));
        let all = Filter::default();
        let read = bed.store.read("t", 0, 0, 10, None, &all).unwrap();
        let messages = read.messages.iter();
        let offsets = messages.map(|it| it.record().property(TIMER_OFFSET).is_some());
        assert_eq!(offsets.collect::<Vec<_>>(), [false]);
    });
}

/// The service learns of a message before it is durable, and in a synchronous store before it can
/// be read.
#[test]
fn in_a_synchronous_store_a_ticket_delays_no_delivery() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        flush: Some(Flush::Sync),
        ..Options::default()
    };
    let store = Store::open(folder.path(), options).unwrap();
    let consumer = store
        .consumer(&["orders"], "billing", ConsumerOptions::default())
        .unwrap();
    let producer = store.producer("orders", None).unwrap();
    for number in 0..20 {
        let text = number.to_string();
        let draft = Draft {
            body: text.as_bytes(),
            ..Draft::default()
        };
        let ticket = producer.send_nowait(&draft, Delay::Until(0)).unwrap();
        let got: Vec<Delivery> = wait(&consumer);
        assert_eq!(got.iter().map(body).collect::<Vec<_>>(), [number]);
        consumer.ack(receipts(&got)).unwrap();
        ticket.wait(Duration::from_secs(60)).unwrap().unwrap();
    }
}

#[test]
fn a_retry_of_a_delivered_message_is_a_message_of_its_own() {
    on_each(|bed| {
        let consumer = bed.consumer(ConsumerOptions::default());
        send(&bed.store, 1, Delay::Until(0));
        consumer.nack(&wait(&consumer)[0], Some(1)).unwrap();
        bed.pass(1_000);
        let again = wait(&consumer);
        assert_eq!(bodies(&again), [1]);
        assert!(!system(&again[0]).contains_key(TIMER_OFFSET));
    });
}

/// Sends a message that waits for 300 days, and then enough messages that are delivered to make the
/// store list the waiting messages again. Returns the place of the first delivered one, and closes
/// the store.
fn with_a_list(bed: &Bed) -> Sent {
    send(&bed.store, 1, after(300 * 24 * 3_600_000));
    let second = send(&bed.store, 2, after(1_000));
    for number in 3..=20 {
        send(&bed.store, number, after(1_000));
    }
    bed.pass(1_000);
    assert_eq!(delivered(&bed.store).len(), 19);
    bed.store.close().unwrap();
    assert!(bed.path.join("forebay.pending").exists());
    second
}

/// A message that waits for long once made every opening read all messages sent after it.
#[test]
fn opening_reads_what_waits_and_no_message_that_was_delivered_long_ago() {
    for keeps in [true, false] {
        let mut bed = Bed::new("store");
        let position = with_a_list(&bed).place.position;
        // A read of this message would report it.
        let log = bed.path.join("commitlog/00000000000000000000");
        let log = fs::File::options().write(true).open(log).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&log, b"damage", position + 100).unwrap();
        if !keeps {
            // A process that dies leaves an older table, or none.
            fs::remove_file(bed.path.join("forebay.delay")).unwrap();
        }
        bed.reopen();
        bed.pass(1_000);
        assert_eq!(settled(&bed.store, 19).len(), 19);
        assert_eq!(bed.store.take_warnings(), []);
        bed.pass(300 * 24 * 3_600_000);
        assert_eq!(settled(&bed.store, 20).len(), 20);
    }
}

#[test]
fn a_list_of_another_log_hides_no_message_and_delivers_none() {
    let bed = Bed::new("store");
    with_a_list(&bed);
    let list = fs::read(bed.path.join("forebay.pending")).unwrap();
    let mut other = Bed::new("store");
    other.clock.advance(7);
    for number in 1..=30 {
        send(&other.store, number, after(1_000 * number as u64));
    }
    other.store.close().unwrap();
    fs::write(other.path.join("forebay.pending"), list).unwrap();
    other.clock.advance(30_000);
    other.reopen();
    assert_eq!(settled(&other.store, 30), (1..=30).collect::<Vec<_>>());
}

/// Sends a message to the topic that [`Lacking`] has.
fn send_other(store: &Store, delay: Delay) {
    let pears = store.producer("pears", Some(0)).unwrap();
    let draft = Draft {
        body: b"2",
        ..Draft::default()
    };
    pears
        .send_delayed(&draft, delay, Durability::Default)
        .unwrap();
}

/// A partition log that lacks the topic of a delayed message, like one that was restored from its
/// archive. Message 1 is meant for the missing topic, message 2 for one that exists.
struct Lacking {
    store: Store,
    clock: Arc<ManualClock>,
    disk: Arc<dyn Disk>,
    /// The error number with which creating the folders of the topic fails; 0: it succeeds.
    refused: Arc<AtomicI32>,
    root: tempfile::TempDir,
}

impl Lacking {
    fn new(refused: i32) -> Lacking {
        Lacking::with(refused, 1..2)
    }

    /// With all these messages for the missing topic.
    fn with(refused: i32, missing: Range<usize>) -> Lacking {
        let root = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(BEGIN_MS);
        let number = Arc::new(AtomicI32::new(0));
        let disk = HookedDisk::shared({
            let number = Arc::clone(&number);
            move |call, path| {
                let is_of_it = call == Call::CreateDirectory
                    && path.to_str().is_some_and(|path| path.contains("orders-"));
                match number.load(Ordering::Acquire) {
                    number if is_of_it && number != 0 => Err(io::Error::from_raw_os_error(number)),
                    _ => Ok(()),
                }
            }
        });
        let store = Lacking::open(&root, &clock, &disk);
        for number in missing {
            send(&store, number, after(1_000));
        }
        send_other(&store, after(1_000));
        store.close().unwrap();
        for queue in 0..2 {
            let folder = root.path().join(format!("orders-{queue}"));
            if folder.exists() {
                fs::remove_dir_all(folder).unwrap();
            }
        }
        number.store(refused, Ordering::Release);
        let store = Lacking::open(&root, &clock, &disk);
        clock.advance(1_000);
        Lacking {
            store,
            clock,
            disk,
            refused: number,
            root,
        }
    }

    fn open(root: &tempfile::TempDir, clock: &Arc<ManualClock>, disk: &Arc<dyn Disk>) -> Store {
        let machine = Machine {
            clock: Arc::<ManualClock>::clone(clock),
            disk: Arc::clone(disk),
            ..Machine::real()
        };
        let options = Options {
            engine: Some(EngineKind::PartitionLog),
            default_queues: Some(2),
            ..Options::default()
        };
        Store::open_on(&machine, root.path(), options).unwrap()
    }

    /// Closes the store and opens it again.
    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = Lacking::open(&self.root, &self.clock, &self.disk);
    }

    /// Waits for the second message, after which the first one was tried.
    fn await_other(&self) {
        self.store.clock_moved().unwrap();
        until(|| self.count("pears", 0) == 1);
    }

    /// Messages of a queue.
    fn count(&self, topic: &str, queue: u32) -> usize {
        let all = Filter::default();
        let read = self.store.read(topic, queue, 0, 10, None, &all);
        read.map_or(0, |read| read.messages.len())
    }

    /// The reasons of the warnings about messages that are not delivered.
    fn undelivered(&self) -> Vec<String> {
        let warnings = self.store.take_warnings().into_iter();
        let reasons = warnings.filter_map(|it| match it {
            Warning::Undelivered { reason, .. } => Some(reason),
            _ => None,
        });
        reasons.collect()
    }
}

#[test]
fn a_message_waits_until_its_topic_can_be_created() {
    for passing in [libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENOMEM] {
        let bed = Lacking::new(passing);
        // The service may already have failed with the error.
        let _ = bed.store.clock_moved();
        bed.clock.advance(1_000);
        bed.store.clock_moved().unwrap_err();
        assert_eq!(bed.undelivered(), [""; 0]);
        bed.refused.store(0, Ordering::Release);
        bed.store.clock_moved().unwrap();
        until(|| delivered(&bed.store) == [1] && bed.count("pears", 0) == 1);
        assert_eq!(bed.undelivered(), [""; 0]);
    }
}

/// Once, every later message waited until the topic could be created.
#[test]
fn a_message_whose_topic_cannot_be_created_holds_up_no_other() {
    for lasting in [libc::EACCES, libc::ENAMETOOLONG] {
        let bed = Lacking::new(lasting);
        bed.await_other();
        let reasons = bed.undelivered();
        assert!(
            matches!(&reasons[..], [reason] if reason.contains("orders-")),
            "{reasons:?}"
        );
        assert_eq!(bed.count(TIMER_TOPIC, 0), 2);
        // The failure is reported once, and the delivery is tried again.
        for _ in 0..4 {
            bed.clock.advance(1_000);
            bed.store.clock_moved().unwrap();
        }
        bed.refused.store(0, Ordering::Release);
        bed.clock.advance(300_000);
        bed.store.clock_moved().unwrap();
        assert_eq!(settled(&bed.store, 1), [1]);
        assert_eq!(bed.undelivered(), [""; 0]);
    }
}

#[test]
fn a_message_whose_topic_cannot_be_created_is_delivered_once_by_the_next_opening() {
    let mut bed = Lacking::new(libc::EACCES);
    bed.await_other();
    bed.reopen();
    // The opening tries again in vain, and tells that.
    bed.store.clock_moved().unwrap();
    until(|| !bed.undelivered().is_empty());
    bed.refused.store(0, Ordering::Release);
    for _ in 0..2 {
        bed.reopen();
        bed.store.clock_moved().unwrap();
        assert_eq!(settled(&bed.store, 1), [1]);
        assert_eq!(bed.count("pears", 0), 1);
    }
}
