//! Queues are caches of the log: damage in their files hides no intact message of the log, and
//! causes no offset to be assigned twice.

use crate::bed::small_options;
use crate::world::{Place, body_of};
use forebay::{Draft, Durability, Filter, Mode, Options, Store};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 16 << 10;
const QUEUES: u32 = 2;
const ENTRY: u64 = 20;
const FILE_ENTRIES: u64 = 64;

/// Body and position of each message that can be read, by queue and offset.
type Messages = BTreeMap<(u32, u64), (Vec<u8>, u64)>;

fn open(root: &Path, mode: Mode, change: impl FnOnce(&mut Options)) -> Store {
    let mut options = Options {
        mode,
        commitlog_file_size: Some(FILE_LEN),
        queue_file_entries: Some(FILE_ENTRIES),
        max_message_size: Some(8 << 10),
        flush_interval: Duration::from_millis(10),
        disk_reserve: Some(0),
        ..small_options()
    };
    change(&mut options);
    Store::open(root, options).unwrap()
}

fn send(store: &Store, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let producer = store.producer("orders", Some((number % 2) as u32)).unwrap();
        let draft = Draft {
            body: &body_of(number),
            keys: &["k"],
            ..Draft::default()
        };
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
}

fn read_all(store: &Store) -> Messages {
    let mut found = Messages::new();
    for queue in 0..QUEUES {
        let mut next = 0;
        loop {
            let all = Filter::default();
            let batch = store.read("orders", queue, next, 100, None, &all).unwrap();
            let end = batch.max_offset;
            for message in &batch.messages {
                let record = message.record();
                let (offset, position) = (record.queue_offset() as u64, record.position() as u64);
                let body = message.body().unwrap().into_owned();
                found.insert((queue, offset), (body, position));
            }
            let from = i64::try_from(batch.next_offset.max(batch.min_offset)).unwrap();
            if batch.next_offset >= end {
                break;
            }
            assert!(from > next, "reading stays at {next}");
            next = from;
        }
    }
    found
}

/// The file of a queue that holds an entry, and the byte where the entry begins.
fn place_of(root: &Path, queue: u32, number: u64) -> (PathBuf, u64) {
    let start = number / FILE_ENTRIES * FILE_ENTRIES;
    let name = format!("consumequeue/orders/{queue}/{:020}", start * ENTRY);
    (root.join(name), (number - start) * ENTRY)
}

/// A closed store, the beginning of which is retired.
fn retired(root: &Path) -> Messages {
    let store = open(root, Mode::Append, |options| {
        options.retention_bytes = Some(3 * FILE_LEN);
    });
    send(&store, 0..400);
    let published = store.stats().unwrap().published;
    let min = (published / FILE_LEN).saturating_sub(2) * FILE_LEN;
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_there = || {
        root.join(format!("commitlog/{:020}", min - FILE_LEN))
            .exists()
    };
    while store.stats().unwrap().min_position < min || is_there() {
        assert!(Instant::now() < deadline, "retention is slow");
        std::thread::sleep(Duration::from_millis(2));
    }
    let found = read_all(&store);
    store.close().unwrap();
    found
}

/// The kinds of damage to a queue.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Zeros,
    /// Copies of the entries before them in the file.
    Older,
    /// Copies of the entries after them.
    Newer,
}

fn damage(root: &Path, queue: u32, numbers: std::ops::Range<u64>, how: Damage) {
    let (path, at) = place_of(root, queue, numbers.start);
    let file = fs::OpenOptions::new();
    let file = file.clone().read(true).write(true).open(path).unwrap();
    let len = ((numbers.end - numbers.start) * ENTRY).min(FILE_ENTRIES * ENTRY - at);
    let mut bytes = vec![0; len as usize];
    match how {
        Damage::Zeros => {}
        Damage::Older => file
            .read_exact_at(&mut bytes, at.saturating_sub(len))
            .unwrap(),
        Damage::Newer => {
            let last = FILE_ENTRIES * ENTRY - len;
            file.read_exact_at(&mut bytes, (at + len).min(last))
                .unwrap();
        }
    }
    file.write_all_at(&bytes, at).unwrap();
}

/// Every message is read in each mode, offsets continue, and nothing is lost.
fn check(root: &Path, expected: &Messages, what: &str) {
    let store = open(root, Mode::Read, |_| {});
    assert_eq!(read_all(&store), *expected, "{what}, opened for reading");
    store.close().unwrap();
    let store = open(root, Mode::Append, |_| {});
    assert_eq!(read_all(&store), *expected, "{what}, opened for writing");
    // Damage may be reported for an entry whose record the log still has, but nothing is lost.
    let found = store.verify(&mut |_, _| true).unwrap().damage;
    assert!(
        found.iter().all(|it| it.lost.is_empty()),
        "{what}: {found:?}"
    );
    for queue in 0..QUEUES {
        let producer = store.producer("orders", Some(queue)).unwrap();
        let sent = producer.send(&Draft::default(), 0, Durability::Default);
        let last = expected.range((queue, 0)..(queue + 1, 0)).next_back();
        let offset = sent.unwrap().place.offset;
        assert_eq!(offset, last.unwrap().0.1 + 1, "{what}, queue {queue}");
    }
    store.close().unwrap();
    let store = open(root, Mode::Read, |_| {});
    assert_eq!(
        read_all(&store).len(),
        expected.len() + QUEUES as usize,
        "{what}"
    );
}

/// In a closed store with retention, entries at the start of a queue are overwritten by zeros or by
/// copies of others. Those that point below the log look retired: only the log shows that they are
/// not.
#[test]
fn a_damaged_start_of_a_queue_hides_no_message() {
    let place = Place::new();
    let expected = retired(&place.root());
    for queue in 0..QUEUES {
        let first = expected.range((queue, 0)..).next().unwrap().0.1;
        assert!(first > 0);
        for how in [Damage::Zeros, Damage::Older, Damage::Newer] {
            for (before, count) in [(3, 25), (0, 1), (0, 40), (1, 64)] {
                let copy = Place::fast_copy_of(&place.root());
                let from = first.saturating_sub(before);
                damage(&copy.root(), queue, from..from + count, how);
                check(
                    &copy.root(),
                    &expected,
                    &format!("{queue} {how:?} {before} {count}"),
                );
            }
        }
    }
}

/// A process dies whose queues were made durable once, and the last entries of one go bad. Besides
/// the log, only they record their messages and the next offset.
#[test]
fn a_damaged_end_of_a_queue_after_a_crash_hides_no_message() {
    let place = Place::new();
    let root = place.root();
    let keep = |options: &mut Options| options.queue_flush_interval = Duration::from_secs(3600);
    let store = open(&root, Mode::Append, keep);
    send(&store, 0..40);
    store.close().unwrap();
    let store = open(&root, Mode::Append, keep);
    send(&store, 40..120);
    let expected = read_all(&store);
    store.flush().unwrap();
    for queue in 0..QUEUES {
        for how in [Damage::Zeros, Damage::Older] {
            for count in [1, 2, 10, 30] {
                let copy = Place::fast_copy_of(&root);
                damage(&copy.root(), queue, 60 - count..60, how);
                check(&copy.root(), &expected, &format!("{queue} {how:?} {count}"));
            }
        }
    }
}

/// An entry after the end of a queue leads to a record of another topic that has the same queue and
/// offset. It uses up no offset.
#[test]
fn an_entry_that_leads_to_a_record_of_another_topic_is_after_the_end_of_its_queue() {
    let place = Place::new();
    let root = place.root();
    let store = open(&root, Mode::Append, |_| ());
    let send = |store: &Store, topic: &str| {
        let producer = store.producer(topic, Some(0)).unwrap();
        let sent = producer.send(&Draft::default(), 0, Durability::Default);
        sent.unwrap().place.offset
    };
    for topic in ["orders", "orders", "bills", "bills", "bills"] {
        send(&store, topic);
    }
    store.close().unwrap();
    let entry = fs::read(root.join("consumequeue/bills/0/00000000000000000000")).unwrap();
    let (path, at) = place_of(&root, 0, 2);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&entry[40..60], at).unwrap();
    // The table of next offsets would show that the offset was not used.
    fs::remove_file(root.join("forebay.offsets")).unwrap();

    let store = open(&root, Mode::Append, |_| ());
    assert_eq!(send(&store, "orders"), 2);
    assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
}

/// A power loss keeps some sectors of a queue file and loses others. Entries of an older log that
/// are left before entries that lead past the end are after the end of the queue too.
#[test]
fn an_old_entry_before_those_that_lead_past_the_log_is_after_the_end_of_its_queue() {
    let place = Place::new();
    let store = open(&place.root(), Mode::Append, |options| {
        options.flush_interval = Duration::from_secs(3600);
    });
    send(&store, 0..8);
    let messages = read_all(&store);
    let copy = Place::copy_of(&place.root());
    let root = copy.root();
    let write = |path: &Path, at: u64, bytes: &[u8]| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    write(&root.join("forebay.state"), 16, b"another boot of it");
    let log = root.join("commitlog/00000000000000000000");
    write(&log, messages[&(1, 0)].1, &[0; 64]);
    let (path, at) = place_of(&root, 1, 0);
    let old = [8u64.to_be_bytes().as_slice(), &60u32.to_be_bytes()].concat();
    write(&path, at, &old);

    let store = open(&root, Mode::Append, |_| ());
    assert_eq!(read_all(&store).len(), 1);
    let producer = store.producer("orders", Some(1)).unwrap();
    let sent = producer.send(&Draft::default(), 0, Durability::Default);
    assert_eq!(sent.unwrap().place.offset, 0);
    assert_eq!(store.damage(), []);
    assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
}
