//! Processes that die at marked points, and failures that all of them hear of.

use crate::disk::{Call, HookedDisk};
use crate::engine::directory::page::StatePage;
use crate::error::Error;
use crate::machine::Machine;
use crate::options::{Flush, Mode, Options};
use crate::record::Draft;
use crate::region::Access;
use crate::store::Store;
use crate::{Durability, Message};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const FILE_LEN: u64 = 16 << 10;
/// Messages that a process sends if it lives.
const SENDS: u64 = 400;

fn options(flush: Flush) -> Options {
    Options {
        mode: Mode::Share,
        flush: Some(flush),
        commitlog_file_size: Some(FILE_LEN),
        default_queues: Some(1),
        busy_timeout: std::time::Duration::from_secs(60),
        ..Options::default()
    }
}

fn send(store: &Store, body: &[u8]) -> (u64, u64) {
    let producer = store.producer("orders", Some(0)).unwrap();
    let draft = Draft {
        body,
        ..Draft::default()
    };
    let sent = producer.send(&draft, 0, Durability::Default).unwrap();
    (sent.place.offset, sent.place.position)
}

fn all(store: &Store) -> Vec<Message> {
    let topic = store.topic("orders").unwrap();
    let bounds = store.engine().unwrap().bounds(&topic, 0).unwrap();
    let bounds = bounds.unwrap_or_default();
    let number = |offset: u64| offset.cast_signed();
    bounds
        .map(|offset| store.get("orders", 0, number(offset)).unwrap())
        .collect()
}

/// What a process does that `die` has started; it does nothing in an ordinary run of the tests.
#[test]
fn a_process_that_shares_a_store() {
    let Ok(root) = std::env::var("FOREBAY_SHARED") else {
        return;
    };
    let flush = match std::env::var("FOREBAY_DIE_AT") {
        Ok(point) if point.starts_with("Synced") => Flush::Sync,
        _ => Flush::Async,
    };
    let store = Store::open(root, options(flush)).unwrap();
    store.create_topic("others", 2).unwrap();
    for number in 0..SENDS {
        let (offset, position) = send(&store, format!("theirs {number}").as_bytes());
        println!("sent {number} {offset} {position}");
    }
    store.close().unwrap();
}

/// Starts a process that dies at a point, and returns what it has said to have sent before.
fn die(root: &Path, point: &str) -> BTreeMap<u64, (String, u64)> {
    let name = "tests::shared_processes::a_process_that_shares_a_store";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env("FOREBAY_SHARED", root)
        .env("FOREBAY_DIE_AT", point)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut sent = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The harness writes its own line before the first of the test.
        let Some(at) = line.find("sent ") else {
            continue;
        };
        let numbers: Vec<u64> = line[at + 5..]
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let [number, offset, position] = numbers[..] else {
            panic!("{line}");
        };
        sent.insert(offset, (format!("theirs {number}"), position));
    }
    let status = child.wait().unwrap();
    assert!(!status.success(), "{point}: the process has not died");
    sent
}

/// The process dies as the only one, as the leader, or beside a leader. Whoever shares the store
/// with it, or joins later, finds all that it was told to be stored, and goes on.
fn outlive(point: &str) {
    let flush = match point.starts_with("Synced") {
        true => Flush::Sync,
        false => Flush::Async,
    };
    outlive_all(&[point], flush, false);
    outlive_all(&[point], flush, true);
}

/// `beside`: a living process has the store open.
fn outlive_all(points: &[&str], flush: Flush, beside: bool) {
    let point = points.join(", ");
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let first = beside.then(|| Store::open(&root, options(flush)).unwrap());
    let mut sent = BTreeMap::new();
    if let Some(store) = &first {
        let (offset, position) = send(store, b"mine");
        sent.insert(offset, ("mine".to_owned(), position));
    }
    points
        .iter()
        .for_each(|point| sent.extend(die(&root, point)));
    let store = first.unwrap_or_else(|| Store::open(&root, options(flush)).unwrap());
    for number in 0..5 {
        let body = format!("mine {number}");
        let (offset, position) = send(&store, body.as_bytes());
        let other = sent.insert(offset, (body, position));
        assert!(other.is_none(), "{point}: {offset} was assigned twice");
    }
    let found = all(&store);
    for (offset, message) in found.iter().enumerate() {
        let body = String::from_utf8(message.record().stored_body().to_vec()).unwrap();
        let expected = sent.remove(&(offset as u64));
        // What was not acknowledged may be there.
        let expected =
            expected.unwrap_or_else(|| (body.clone(), message.record().position().cast_unsigned()));
        assert_eq!(
            (body, message.record().position().cast_unsigned()),
            expected,
            "{point}"
        );
    }
    assert!(sent.is_empty(), "{point}: lost {sent:?}");
    store.close().unwrap();
    let alone = Store::open(&root, Options::default()).unwrap();
    assert!(alone.recovery().clean, "{point}");
    let verified = alone.verify(&mut |_, _| true).unwrap();
    assert!(verified.damage.is_empty(), "{point}: {:?}", verified.damage);
    assert_eq!(all(&alone).len(), found.len(), "{point}");
}

macro_rules! outlived {
    ($($name:ident: $point:literal;)*) => {
        $(
            #[test]
            fn $name() {
                outlive($point);
            }
        )*
    };
}

outlived! {
    a_process_that_died_when_it_joined_is_outlived: "Joined:0";
    a_process_that_died_when_it_took_the_lock_is_outlived: "Locked:7";
    a_process_that_died_before_it_published_is_outlived: "Stored:20";
    a_process_that_died_when_it_rolled_is_outlived: "Rolled:0";
    a_process_that_died_with_the_lock_is_outlived: "Published:9";
    a_process_that_died_when_it_added_a_topic_is_outlived: "TopicsWritten:0";
    a_process_that_died_when_it_left_is_outlived: "Leaving:0";
}

#[test]
fn a_process_that_died_when_it_erased_is_outlived() {
    outlive_all(&["Stored:20", "Erased:0", "Erased:0"], Flush::Async, true);
    outlive_all(&["Rolled:0", "Erased:0", "Stored:9"], Flush::Async, true);
}

/// Only a leader passes these points, so the process is the only one.
#[test]
fn a_leader_that_dies_is_outlived() {
    for point in ["Recovered:0", "Dispatched:3", "Synced:5"] {
        let flush = match point.starts_with("Synced") {
            true => Flush::Sync,
            false => Flush::Async,
        };
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let sent = die(&root, point);
        let store = Store::open(&root, options(flush)).unwrap();
        let (next, _) = send(&store, b"mine");
        let found = all(&store);
        assert_eq!(found.len() as u64, next + 1, "{point}");
        for (offset, (body, position)) in sent {
            let message = &found[usize::try_from(offset).unwrap()];
            assert_eq!(message.record().stored_body(), body.as_bytes(), "{point}");
            assert_eq!(
                message.record().position().cast_unsigned(),
                position,
                "{point}"
            );
        }
        store.close().unwrap();
    }
}

/// A sync that fails in one process ends writing in all of them: the others would append after
/// bytes that are missing on the disk.
#[test]
fn a_failed_sync_ends_writing_in_all_processes() {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let disk = HookedDisk::shared(move |call, path: &Path| {
        let is_log = path.to_string_lossy().contains("commitlog");
        match failing.load(Ordering::Relaxed) && is_log && call == Call::SyncRange {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let open = || Store::open_on(&machine, dir.path(), options(Flush::Async)).unwrap();
    let (one, two) = (open(), open());
    send(&one, b"a");
    send(&two, b"b");
    fails.store(true, Ordering::Relaxed);
    for store in [&two, &one] {
        assert!(matches!(store.flush(), Err(Error::Failed { .. })));
    }
    fails.store(false, Ordering::Relaxed);
    for store in [&one, &two] {
        let producer = store.producer("orders", Some(0)).unwrap();
        let sent = producer.send(&Draft::default(), 0, Durability::Default);
        assert!(matches!(sent, Err(Error::Failed { .. })));
    }
    // Whoever joins meanwhile cannot write either.
    let three = open();
    assert!(matches!(three.flush(), Err(Error::Failed { .. })));
    for store in [three, two, one] {
        let _ = store.close();
    }
    let again = open();
    send(&again, b"c");
    let bodies: Vec<_> = all(&again)
        .iter()
        .map(|message| message.record().stored_body().to_vec())
        .collect();
    assert_eq!(bodies, [b"a", b"b", b"c"]);
    again.close().unwrap();
}

/// A process dies with the append lock, and another one that joins gets its slot and sends nothing.
/// The slot is alive again, so the others would wait for the newcomer.
#[test]
fn a_process_with_the_slot_of_a_dead_one_does_not_hold_its_lock() {
    for point in ["Locked:7", "Stored:20", "Published:9"] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let open = || {
            let options = Options {
                busy_timeout: std::time::Duration::from_secs(20),
                ..options(Flush::Async)
            };
            Store::open(&root, options).unwrap()
        };
        let first = open();
        let acknowledged = die(&root, point).len();
        let idle = open();
        send(&first, b"mine");
        assert!(all(&idle).len() > acknowledged, "{point}");
        idle.close().unwrap();
        first.close().unwrap();
    }
}

/// A sync that fails in a process that does not run the services: no other process may count the
/// bytes as durable, and none may close the store as if it were whole.
#[test]
fn a_failed_sync_of_a_follower_ends_writing_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let open = |machine: &Machine| Store::open_on(machine, &root, options(Flush::Async)).unwrap();
    let leader = open(&Machine::real());
    send(&leader, b"a");
    leader.flush().unwrap();
    // It leaves unpublished bytes, which the next sender erases.
    let sent = die(&root, "Stored:20").len();
    let disk = HookedDisk::shared(|call, path: &Path| {
        let is_log = path.to_string_lossy().contains("commitlog");
        match is_log && call == Call::Fsync {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let follower = open(&Machine {
        disk,
        ..Machine::real()
    });
    let producer = follower.producer("orders", Some(0)).unwrap();
    let failed = producer.send(&Draft::default(), 0, Durability::Default);
    assert!(failed.is_err());
    let flushed = leader.flush();
    assert!(matches!(flushed, Err(Error::Failed { .. })), "{flushed:?}");
    let _ = follower.close();
    let closed = leader.close();
    assert!(matches!(closed, Err(Error::Failed { .. })), "{closed:?}");
    let alone = Store::open(&root, Options::default()).unwrap();
    assert!(!alone.recovery().clean);
    assert_eq!(all(&alone).len(), 1 + sent);
}

/// An opening that fails after it has begun to lead ends the services that it has started: its
/// locks are gone, and another process may write the store.
#[test]
fn an_opening_that_fails_leaves_no_services_behind() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = Store::open(&root, options(Flush::Async)).unwrap();
    send(&store, b"a");
    store.close().unwrap();
    let mut failed = 0;
    for at in 1.. {
        let left = AtomicI64::new(at);
        let calls = Arc::new(left);
        let hooked = Arc::clone(&calls);
        let disk =
            HookedDisk::shared(
                move |_, _: &Path| match hooked.fetch_sub(1, Ordering::Relaxed) {
                    1 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
                    _ => Ok(()),
                },
            );
        let machine = Machine {
            disk,
            ..Machine::real()
        };
        let opened = Store::open_on(&machine, &root, options(Flush::Async));
        match opened {
            Ok(store) => drop(store),
            Err(_) => failed += 1,
        }
        assert_eq!(Arc::strong_count(&machine.disk), 1, "call {at}");
        if calls.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
    let alone = Store::open(&root, Options::default()).unwrap();
    assert_eq!(all(&alone).len(), 1);
}

/// The page of a process that died names it as the writer. The next process has that forgotten
/// before another one can join: else that one would follow marks that are not confirmed yet.
#[test]
fn a_dead_writer_is_not_followed() {
    for point in ["Joined:0", "Published:9"] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        die(&root, "Published:3");
        let disk = Machine::real().disk;
        let read = || {
            StatePage::open(&*disk, &root, Access::Read)
                .unwrap()
                .unwrap()
        };
        assert!(read().is_written_to());
        die(&root, point);
        assert_eq!(read().is_written_to(), point != "Joined:0", "{point}");
        let store = Store::open(&root, options(Flush::Async)).unwrap();
        assert!(read().is_written_to());
        store.close().unwrap();
    }
}
