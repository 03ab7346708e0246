//! Processes that die while they change the owners of a group's queues, and others that continue.

use crate::engine::directory::group_table::{GroupTable, Peers};
use crate::engine::directory::names;
use crate::engine::service::fence::{self, Fence, Fenced};
use crate::interrupt;
use crate::plant::{self, Point};
use crate::record::Draft;
use crate::{
    Consumer, ConsumerOptions, Delivery, Disk, Durability, Error, Mode, Options, RealDisk, Store,
};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{scope, yield_now};
use std::time::Duration;

const MESSAGES: u32 = 40;

fn open(path: &Path) -> Store {
    let options = Options {
        mode: Mode::Share,
        default_queues: Some(2),
        busy_timeout: Duration::from_secs(60),
        ..Options::default()
    };
    Store::open(path, options).unwrap()
}

fn fill(store: &Store) {
    for number in 0..MESSAGES {
        let producer = store.producer("orders", Some(number % 2)).unwrap();
        let body = number.to_string();
        let draft = Draft {
            body: body.as_bytes(),
            ..Draft::default()
        };
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
}

fn number(delivery: &Delivery) -> u32 {
    let body = delivery.message.body().unwrap();
    String::from_utf8(body.to_vec()).unwrap().parse().unwrap()
}

/// The program of a process that `die` starts. In an ordinary run of the tests it does nothing.
#[test]
fn a_process_that_consumes() {
    let Ok(path) = std::env::var("FOREBAY_CONSUMED") else {
        return;
    };
    let store = open(Path::new(&path));
    for _ in 0..20 {
        let options = ConsumerOptions::default();
        let consumer = store.consumer(&["orders"], "workers", options).unwrap();
        let taken = consumer.poll(3, Duration::from_secs(10)).unwrap();
        for delivery in taken.iter().take(2) {
            consumer.ack([&delivery.receipt]).unwrap();
            println!("settled {}", number(delivery));
            std::io::stdout().flush().unwrap();
        }
        consumer.close().unwrap();
    }
    store.close().unwrap();
}

/// Starts a process that dies at a point, and returns the messages that it settled before.
fn die(path: &Path, point: &str) -> BTreeSet<u32> {
    let name = "tests::shared_groups::a_process_that_consumes";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env("FOREBAY_CONSUMED", path)
        .env("FOREBAY_DIE_AT", point)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = lines.map(Result::unwrap);
    // The harness writes its own line before the first of the test.
    let settled = lines.filter_map(|line| {
        let (_, number) = line.rsplit_once("settled ")?;
        Some(number.parse().unwrap())
    });
    let settled = settled.collect();
    assert!(!child.wait().unwrap().success(), "{point}: it has not died");
    settled
}

/// Settles messages until there are `count` of them.
fn take(consumer: &Consumer, count: usize) -> BTreeSet<u32> {
    let mut taken = BTreeSet::new();
    while taken.len() < count {
        let got = consumer.poll(100, Duration::from_secs(20)).unwrap();
        assert!(!got.is_empty(), "{taken:?}");
        consumer.ack(got.iter().map(|it| &it.receipt)).unwrap();
        taken.extend(got.iter().map(number));
    }
    taken
}

/// Each attempt searched again for where the group begins in all queues. Where many processes
/// joined at once, others had the table by then.
#[test]
fn a_consumer_prepares_once_to_join_however_often_it_finds_the_table_locked() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    static PREPARED: AtomicU32 = AtomicU32::new(0);
    fn ask() -> bool {
        ASKED.fetch_add(1, Ordering::AcqRel);
        false
    }
    fn count() {
        PREPARED.fetch_add(1, Ordering::AcqRel);
        plant::at(Point::Prepared, count);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (first, second) = (open(&path), open(&path));
    fill(&first);
    // The first consumer of a process waits for the table before it joins, too.
    let early = first.consumer(&["orders"], "early", ConsumerOptions::default());
    let join = || {
        plant::at(Point::Prepared, count);
        let options = ConsumerOptions::default();
        interrupt::allow(ask, || first.consumer(&["orders"], "workers", options))
    };
    scope(|scope| {
        let meanwhile = || {
            let joins = scope.spawn(join);
            // It has tried again each time that it asked.
            while ASKED.load(Ordering::Acquire) < 3 && !joins.is_finished() {
                yield_now();
            }
            joins
        };
        let joins = second.while_owners_are_locked(meanwhile).unwrap();
        let consumer = joins.join().unwrap().unwrap();
        assert_eq!(PREPARED.load(Ordering::Acquire), 1);
        assert_eq!(take(&consumer, MESSAGES as usize).len(), MESSAGES as usize);
    });
    early.unwrap().close().unwrap();
    second.close().unwrap();
    first.close().unwrap();
}

/// Each attempt of a poll to join again prepared it again.
#[test]
fn a_consumer_that_others_have_removed_prepares_once_to_join_again() {
    static PREPARED: AtomicU32 = AtomicU32::new(0);
    fn count() {
        PREPARED.fetch_add(1, Ordering::AcqRel);
        plant::at(Point::Prepared, count);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (first, second) = (open(&path), open(&path));
    fill(&first);
    let options = ConsumerOptions::default();
    let consumer = first.consumer(&["orders"], "workers", options).unwrap();
    plant::at(Point::Prepared, count);
    assert_eq!(consumer.members_after_removal(|allow| allow()), 0);
    let polls = || {
        for _ in 0..3 {
            assert!(consumer.try_poll(1).unwrap().taken.is_empty());
        }
    };
    second.while_owners_are_locked(polls).unwrap();
    let mut lost = consumer.poll(1, Duration::ZERO);
    // Another process changes the table for a moment.
    while lost.as_ref().is_ok_and(Vec::is_empty) {
        lost = consumer.poll(1, Duration::ZERO);
    }
    plant::nowhere();
    assert!(matches!(lost, Err(Error::OwnershipLost { .. })), "{lost:?}");
    assert_eq!(PREPARED.load(Ordering::Acquire), 1);
    assert_eq!(take(&consumer, MESSAGES as usize).len(), MESSAGES as usize);
    second.close().unwrap();
    first.close().unwrap();
}

/// The process dies in the middle of a change, with the lock of the table. Another process gets all
/// messages that it had not settled, and none that it had.
#[test]
fn a_process_that_dies_while_owners_change_takes_nothing_with_it() {
    for point in [
        "Enrolled:0",
        "Enrolled:2",
        "Revoked:0",
        "Revoked:1",
        "Settled:5",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = open(&path);
        fill(&store);
        let settled = die(&path, point);
        let options = ConsumerOptions::default();
        let consumer = store.consumer(&["orders"], "workers", options).unwrap();
        let left = MESSAGES as usize - settled.len();
        let taken = take(&consumer, left);
        assert!(
            taken.is_disjoint(&settled),
            "{point}: {settled:?} {taken:?}"
        );
        assert!(consumer.poll(1, Duration::ZERO).unwrap().is_empty());
        let groups = store.groups().unwrap();
        assert!(
            groups.iter().all(|it| it.lag == 0 && it.owner.is_some()),
            "{point}"
        );
        store.close().unwrap();
        assert!(!path.join(names::GROUPS).exists());
    }
}

/// Stands for a process with a slot; all others are dead.
struct Alone(u32);

impl Peers for Alone {
    fn slot(&self) -> u32 {
        self.0
    }

    fn is_alive(&self, _: u32) -> bool {
        false
    }
}

fn table(path: &Path) -> GroupTable {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    GroupTable::create(&disk, path, Arc::new(Alone(1))).unwrap()
}

#[test]
fn what_is_added_to_the_table_is_found_there() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    let mut held = table.try_lock().unwrap().unwrap();
    assert!(!held.dirty);
    let number = table.add_member(10_000, 0, 7).unwrap();
    let other = table.add_member(10_000, 0, 8).unwrap();
    assert_ne!(number, other);
    let entry = table.add_topic("workers", "orders").unwrap();
    table.set_reads(entry, 0, true);
    assert!(table.reads(entry, 0) && !table.reads(entry, 1));
    let row = table.add_queue(entry, 3, 42).unwrap();
    assert_eq!(table.queue(row).unwrap(), (entry, 3));
    let row = table.row(row);
    assert_eq!((row.fence().committed, row.owner()), (42, None));
    row.set_owner(Some(other), 9);
    assert!(row.is_mine());
    assert_eq!((row.owner(), row.since()), (Some(other), 9));
    let Fence { epoch, .. } = row.fence();
    assert!(fence::advance(&row, epoch, 43));
    assert_eq!(fence::revoke(&row).committed, 43);
    assert!(!fence::advance(&row, epoch, 44));
    // The place is reused, but the number is not.
    table.clear_member(1);
    assert_eq!(row.owner(), None);
    assert!(table.add_member(10_000, 0, 9).unwrap() > other);
    held.clean();
    drop(held);
    assert!(table.add_queue(entry, 4, 1 << 48).is_err());
}

#[test]
fn a_table_has_room_for_as_much_as_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path());
    let numbers: BTreeSet<u64> = (0..1024)
        .map(|_| table.add_member(1, 0, 1).unwrap())
        .collect();
    assert_eq!(numbers.len(), 1024);
    let error = table.add_member(1, 0, 1).unwrap_err().to_string();
    assert!(error.contains("more than 1024 consumers"), "{error}");
    for number in 0..16_384 {
        table.add_topic("workers", &format!("t{number}")).unwrap();
    }
    let error = table.add_topic("workers", "one").unwrap_err().to_string();
    assert!(error.contains("more than 16384 topics"), "{error}");
    assert_eq!(&*table.topic(16_383).unwrap().topic, "t16383");
    // The last entry lies within the file.
    for number in 0..262_144 {
        table.add_queue(0, number, 0).unwrap();
    }
    assert!(table.add_queue(0, 0, 0).is_err());
    assert_eq!(table.queue(262_143).unwrap(), (0, 262_143));
    let len = fs::metadata(dir.path().join(names::GROUPS)).unwrap().len();
    assert_eq!(len, 25_235_456);
}

/// Calls `meanwhile` while one of two threads that poll joins the group again, because others have
/// removed the consumer. Returns the number of members afterwards.
fn members_after(meanwhile: impl Fn(&Consumer) + Sync) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("store"));
    let options = ConsumerOptions::default();
    let consumer = store.consumer(&["orders"], "workers", options).unwrap();
    consumer.members_after_removal(|allow| {
        scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| drop(consumer.try_poll(1)));
            }
            // The thread that joins waits for the table.
            while !consumer.joins_again() {
                yield_now();
            }
            scope.spawn(|| meanwhile(&consumer));
            for _ in 0..1_000 {
                yield_now();
            }
            allow();
        });
    })
}

/// Each of the threads once joined, and all members except the last kept queues that nobody read.
#[test]
fn a_consumer_that_several_threads_poll_joins_again_once() {
    assert_eq!(members_after(|_| {}), 1);
}

#[test]
fn a_consumer_that_is_closed_while_a_thread_joins_again_leaves() {
    assert_eq!(members_after(|consumer| consumer.close().unwrap()), 0);
}
