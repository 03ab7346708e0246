//! Processes that die at marked points, and failures that affect all processes.

use crate::disk::{Call, HookedDisk};
use crate::engine::directory::names;
use crate::engine::directory::page::StatePage;
use crate::error::Error;
use crate::machine::Machine;
use crate::options::{EngineKind, Flush, Mode, Options};
use crate::plant::{Bug, plant};
use crate::record::Draft;
use crate::region::Access;
use crate::store::Store;
use crate::{Durability, Message};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const FILE_LEN: u64 = 16 << 10;
/// Messages that a process sends if it lives.
const SENDS: u64 = 400;

const ENGINES: [EngineKind; 2] = [EngineKind::CommitLog, EngineKind::PartitionLog];

fn options(engine: EngineKind, flush: Flush) -> Options {
    let sizes = match engine {
        EngineKind::PartitionLog => Options {
            segment_bytes: Some(FILE_LEN),
            ..Options::default()
        },
        EngineKind::CommitLog | EngineKind::Memory => Options {
            commitlog_file_size: Some(FILE_LEN),
            ..Options::default()
        },
    };
    Options {
        mode: Mode::Share,
        engine: Some(engine),
        flush: Some(flush),
        default_queues: Some(1),
        busy_timeout: std::time::Duration::from_secs(60),
        ..sizes
    }
}

/// The page with the marks of all processes.
fn page(root: &Path) -> StatePage {
    let disk = Machine::real().disk;
    let state = StatePage::open(&*disk, root, Access::Read).unwrap();
    let marks = || StatePage::open_marks(&*disk, &root.join(names::SHARED), Access::Read);
    state.or_else(|| marks().unwrap()).unwrap()
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

/// The program of a process that `die` starts. In an ordinary run of the tests it does nothing.
#[test]
fn a_process_that_shares_a_store() {
    let Ok(root) = std::env::var("FOREBAY_SHARED") else {
        return;
    };
    let flush = match std::env::var("FOREBAY_DIE_AT") {
        Ok(point) if point.starts_with("Synced") => Flush::Sync,
        _ => Flush::Async,
    };
    let engine = match std::env::var("FOREBAY_ENGINE").as_deref() {
        Ok("partitionlog") => EngineKind::PartitionLog,
        _ => EngineKind::CommitLog,
    };
    let store = Store::open(root, options(engine, flush)).unwrap();
    store.create_topic("others", 2).unwrap();
    for number in 0..SENDS {
        let (offset, position) = send(&store, format!("theirs {number}").as_bytes());
        println!("sent {number} {offset} {position}");
    }
    store.close().unwrap();
}

/// Starts a process that dies at a point, and returns the messages that it reported as sent before.
fn die(root: &Path, engine: EngineKind, point: &str) -> BTreeMap<u64, (String, u64)> {
    let word = match engine {
        EngineKind::PartitionLog => "partitionlog",
        EngineKind::CommitLog | EngineKind::Memory => "commitlog",
    };
    let name = "tests::shared_processes::a_process_that_shares_a_store";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env("FOREBAY_SHARED", root)
        .env("FOREBAY_DIE_AT", point)
        .env("FOREBAY_ENGINE", word)
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

/// The process dies as the only one, as the leader, or beside a leader. Processes that share the
/// store with it, or join later, find all messages that it reported as sent, and continue.
fn outlive(point: &str) {
    let flush = match point.starts_with("Synced") {
        true => Flush::Sync,
        false => Flush::Async,
    };
    outlive_all(&[point], flush, false);
    outlive_all(&[point], flush, true);
}

fn outlive_all(points: &[&str], flush: Flush, beside: bool) {
    for engine in ENGINES {
        outlive_over(engine, points, flush, beside);
    }
}

/// `beside`: a living process has the store open.
fn outlive_over(engine: EngineKind, points: &[&str], flush: Flush, beside: bool) {
    let point = format!("{engine:?} {}", points.join(", "));
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let first = beside.then(|| Store::open(&root, options(engine, flush)).unwrap());
    let mut sent = BTreeMap::new();
    if let Some(store) = &first {
        let (offset, position) = send(store, b"mine");
        sent.insert(offset, ("mine".to_owned(), position));
    }
    points
        .iter()
        .for_each(|point| sent.extend(die(&root, engine, point)));
    let store = first.unwrap_or_else(|| Store::open(&root, options(engine, flush)).unwrap());
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
        // Messages that were not acknowledged may be there.
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

/// Only a leader passes these points, so the process must be alone.
#[test]
fn a_leader_that_dies_is_outlived() {
    let commit = ["Recovered:0", "Dispatched:3", "Synced:5"].map(|it| (EngineKind::CommitLog, it));
    let partition = ["Recovered:0", "Synced:5"].map(|it| (EngineKind::PartitionLog, it));
    for (engine, point) in commit.into_iter().chain(partition) {
        let flush = match point.starts_with("Synced") {
            true => Flush::Sync,
            false => Flush::Async,
        };
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let sent = die(&root, engine, point);
        let store = Store::open(&root, options(engine, flush)).unwrap();
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
    ENGINES.into_iter().for_each(fail_sync);
}

fn fail_sync(engine: EngineKind) {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let disk = HookedDisk::shared(move |call, path: &Path| {
        let is_log = match engine {
            EngineKind::PartitionLog => call == Call::Fsync && path.extension().is_some(),
            _ => call == Call::SyncRange && path.to_string_lossy().contains("commitlog"),
        };
        match failing.load(Ordering::Relaxed) && is_log {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    let open = || Store::open_on(&machine, dir.path(), options(engine, Flush::Async)).unwrap();
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
    // A process that joins meanwhile cannot write either.
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

/// A process dies with the append lock, and another one joins, gets its slot and sends nothing.
/// Since the slot is alive again, the others could mistake the newcomer for the holder and wait for
/// it.
#[test]
fn a_process_with_the_slot_of_a_dead_one_does_not_hold_its_lock() {
    let points = ["Locked:7", "Stored:20", "Published:9"];
    let all_of = |engine| points.map(|point| (engine, point));
    for (engine, point) in ENGINES.into_iter().flat_map(all_of) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let open = || {
            let options = Options {
                busy_timeout: std::time::Duration::from_secs(20),
                ..options(engine, Flush::Async)
            };
            Store::open(&root, options).unwrap()
        };
        let first = open();
        let acknowledged = die(&root, engine, point).len();
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
    ENGINES.into_iter().for_each(fail_sync_of_a_follower);
}

fn fail_sync_of_a_follower(engine: EngineKind) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let options = || options(engine, Flush::Async);
    let open = |machine: &Machine| Store::open_on(machine, &root, options()).unwrap();
    let leader = open(&Machine::real());
    send(&leader, b"a");
    leader.flush().unwrap();
    // The dead process leaves unpublished bytes, which the next sender erases.
    let sent = die(&root, engine, "Stored:20").len();
    if engine == EngineKind::PartitionLog {
        // A whole batch would be kept, and nothing would be cut off.
        tear(&root);
    }
    let disk = HookedDisk::shared(move |call, path: &Path| {
        let is_log = match engine {
            EngineKind::PartitionLog => path.extension().is_some_and(|it| it == "log"),
            _ => path.to_string_lossy().contains("commitlog"),
        };
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

/// An opening that fails after it has begun to lead must end its services: its locks are released,
/// and another process may write the store.
#[test]
fn an_opening_that_fails_leaves_no_services_behind() {
    for engine in ENGINES {
        for mode in [Mode::Append, Mode::Share] {
            fail_to_open(engine, mode);
        }
    }
}

fn fail_to_open(engine: EngineKind, mode: Mode) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let store = Store::open(&root, options(engine, Flush::Async)).unwrap();
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
        let given = Options {
            mode,
            ..options(engine, Flush::Async)
        };
        match Store::open_on(&machine, &root, given) {
            Ok(store) => drop(store),
            Err(_) => failed += 1,
        }
        assert_eq!(
            Arc::strong_count(&machine.disk),
            1,
            "{engine:?} {mode:?} call {at}"
        );
        if calls.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
    let alone = Store::open(&root, Options::default()).unwrap();
    assert_eq!(all(&alone).len(), 1);
}

/// Tears the last batch of a partition.
fn tear(root: &Path) {
    let logs = std::fs::read_dir(root.join("orders-0")).unwrap();
    let logs = logs.map(|entry| entry.unwrap().path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|it| it == "log");
    let mut logs: Vec<_> = logs.filter(is_log).collect();
    logs.sort();
    let mut bytes = std::fs::read(logs.last().unwrap()).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[last] ^= 1;
    let mut log = std::fs::OpenOptions::new();
    let log = log.write(true).open(logs.last().unwrap()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&log, &bytes[..=last], 0).unwrap();
}

/// A process dies after it has stored a batch, and another one sends a message. Returns the number
/// of messages sent before, the offset of that message, and whether verifying finds no damage.
/// `harm`: the batch is torn.
fn go_on_after(harm: bool) -> (u64, u64, bool) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let engine = EngineKind::PartitionLog;
    let first = Store::open(&root, options(engine, Flush::Async)).unwrap();
    let sent = die(&root, engine, "Stored:20").len() as u64;
    if harm {
        tear(&root);
    }
    let (offset, _) = send(&first, b"mine");
    first.close().unwrap();
    let alone = Store::open(&root, Options::default()).unwrap();
    let verified = alone.verify(&mut |_, _| true).unwrap();
    (sent, offset, verified.damage.is_empty())
}

/// A whole batch stays, as it would on opening, and a torn one is cut off.
#[test]
fn whoever_goes_on_after_a_dead_process_keeps_whole_batches_only() {
    let (sent, offset, is_well) = go_on_after(false);
    assert_eq!((offset, is_well), (sent + 1, true));
    let (sent, offset, is_well) = go_on_after(true);
    assert_eq!((offset, is_well), (sent, true));
    plant(Some(Bug::NoChecksum));
    let (_, _, is_well) = go_on_after(true);
    plant(None);
    assert!(!is_well, "a torn batch was published, and nothing noticed");
}

/// The page of a process that died names it as the writer. The next process clears that before
/// another one can join, which would otherwise follow marks that are not confirmed yet.
#[test]
fn a_dead_writer_is_not_followed() {
    let all_of = |engine| ["Joined:0", "Published:9"].map(|point| (engine, point));
    for (engine, point) in ENGINES.into_iter().flat_map(all_of) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        die(&root, engine, "Published:3");
        assert!(page(&root).is_written_to());
        die(&root, engine, point);
        let is_written_to = page(&root).is_written_to();
        assert_eq!(is_written_to, point != "Joined:0", "{engine:?} {point}");
        let store = Store::open(&root, options(engine, Flush::Async)).unwrap();
        assert!(page(&root).is_written_to());
        store.close().unwrap();
    }
}
