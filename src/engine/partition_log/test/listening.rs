//! Readers that sleep until the process that writes notifies them.

use super::super::listening::Pauses;
use super::write::{bodies, send, writing};
use super::*;
use crate::disk::{Call, HookedDisk, coarse_ms};
use crate::engine::directory::names::METERS;
use crate::options::{EngineKind, Flush};
use crate::region::guard;
use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BURSTS: u64 = 20;
const BURST: u64 = 50;
const LONG: Duration = Duration::from_secs(3600);
/// A reader that is not notified checks no files while a test runs.
const NEVER: Pauses = Pauses {
    poll: LONG,
    quiet: LONG,
    rest: LONG,
};

/// Options of a store for one process, for several, and for one that shows what is durable.
fn kinds() -> [Options; 3] {
    let options = Options {
        engine: Some(EngineKind::PartitionLog),
        default_queues: Some(1),
        ..Options::default()
    };
    let shared = Options {
        mode: Mode::Share,
        ..options.clone()
    };
    let durable = Options {
        flush: Some(Flush::Sync),
        ..options.clone()
    };
    [options, shared, durable]
}

fn reading(root: &Path, pauses: Pauses) -> PartitionLog {
    let mut reader = open(root, Isolation::default()).unwrap();
    reader.listening.pauses = pauses;
    reader
}

/// Sends a message in a tick of its own, so that its sender notifies readers. Durable on return.
fn send_alone(writer: &PartitionLog, topic: &str, queue: u32, body: &[u8]) {
    let before = coarse_ms();
    while coarse_ms() == before {
        thread::yield_now();
    }
    send(writer, topic, &[(queue, body)]);
    writer.flush(&mut || true).unwrap();
}

/// Waits until the reader knows that somebody notifies it.
fn until_told(reader: &PartitionLog) {
    while !reader.listening.turn().is_told() {
        let seen = reader.readable_position();
        reader.wait_until(seen, Duration::from_millis(1), &|| false);
    }
}

/// Waits in vain for a moment.
fn wait_in_vain(reader: &PartitionLog) {
    let seen = reader.readable_position();
    let found = reader.wait_until(seen, Duration::from_millis(1), &|| false);
    assert_eq!(found, seen);
}

/// Runs `then` while the reader sleeps. Returns once the reader has found something.
fn notified(reader: &PartitionLog, then: impl FnOnce()) {
    let seen = reader.readable_position();
    thread::scope(|scope| {
        let wait = || reader.wait_until(seen, Duration::from_secs(600), &|| false);
        let waiting = scope.spawn(wait);
        while !reader.listening.is_slept_on() {
            thread::yield_now();
        }
        then();
        assert!(waiting.join().unwrap() > seen);
    });
}

#[test]
fn a_reader_that_sleeps_is_notified_of_each_message_by_whoever_writes() {
    for options in kinds() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        let writer = writing(&path, &options).unwrap();
        writer.topic_for_append("orders").unwrap();
        let reader = reading(&path, NEVER);
        notified(&reader, || send_alone(&writer, "orders", 0, b"one"));
        notified(&reader, || send_alone(&writer, "orders", 0, b"two"));
        // In a queue that the reader does not know.
        let name = "orders";
        notified(&reader, || {
            writer.topic_with(name, Some(2)).unwrap();
            send_alone(&writer, "orders", 1, b"three");
        });
        writer.close().unwrap();
        drop(writer);
        let later = writing(&path, &options).unwrap();
        notified(&reader, || send_alone(&later, "orders", 0, b"four"));
        let expected: [&[u8]; 3] = [b"one", b"two", b"four"];
        assert_eq!(bodies(&reader, name, 0), expected);
        assert_eq!(bodies(&reader, name, 1), [b"three"]);
        later.close().unwrap();
    }
}

#[test]
fn any_process_that_shares_a_store_notifies_a_reader() {
    let [_, shared, _] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let all = [(); 2].map(|()| writing(&path, &shared).unwrap());
    all[0].topic_for_append("orders").unwrap();
    let reader = reading(&path, NEVER);
    for writer in &all {
        notified(&reader, || send_alone(writer, "orders", 0, b"body"));
    }
    all.iter().for_each(|writer| writer.close().unwrap());
}

#[test]
fn a_reader_checks_no_file_twice_that_nobody_has_written() {
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let writer = writing(&path, &options).unwrap();
    let mut reader = reading(&path, NEVER);
    for _ in 0..10 {
        wait_in_vain(&reader);
    }
    assert_eq!(reader.listening.checks(), 1);
    // Once more after a while: not every message changes the word.
    reader.listening = Default::default();
    reader.listening.pauses = Pauses {
        quiet: Duration::from_millis(1),
        ..NEVER
    };
    while reader.listening.checks() < 2 {
        wait_in_vain(&reader);
    }
    for _ in 0..10 {
        wait_in_vain(&reader);
    }
    assert_eq!(reader.listening.checks(), 2);
    // A reader that does not wait gets the current state.
    let seen = reader.readable_position();
    assert_eq!(reader.wait_until(seen, Duration::ZERO, &|| false), seen);
    assert_eq!(reader.listening.checks(), 3);
    writer.close().unwrap();
}

/// On a busy machine a check takes long because other threads have the processor. The next change
/// was ignored for twenty times as long, up to 50 ms.
#[test]
fn a_check_that_had_to_wait_for_a_processor_does_not_delay_the_next_one() {
    const AWAY: Duration = Duration::from_millis(300);
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let writer = writing(&path, &options).unwrap();
    writer.topic_for_append("orders").unwrap();
    let reader = reading(&path, NEVER);
    let away = || thread::sleep(AWAY);
    let ((), turn) = reader.listening.check(reader.disk(), &reader.root, away);
    assert!(turn.is_told());
    send_alone(&writer, "orders", 0, b"one");
    // It has not worked for so long.
    assert!(reader.listening.turn().pause < AWAY * 15);
    writer.close().unwrap();
}

#[test]
fn a_reader_misses_nothing_of_what_is_sent_in_a_burst() {
    for options in kinds() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        let writer = writing(&path, &options).unwrap();
        writer.topic_for_append("orders").unwrap();
        let reader = reading(&path, Pauses::default());
        thread::scope(|scope| {
            let (turn, next) = std::sync::mpsc::channel();
            let writer = &writer;
            scope.spawn(move || {
                while next.recv().is_ok() {
                    for _ in 0..BURST {
                        send(writer, "orders", &[(0, b"body")]);
                    }
                    writer.flush(&mut || true).unwrap();
                }
            });
            let mut seen = reader.readable_position();
            for burst in 1..=BURSTS {
                turn.send(()).unwrap();
                while bounds_of(&reader) < burst * BURST {
                    let timeout = Duration::from_secs(600);
                    let found = reader.wait_until(seen, timeout, &|| false);
                    assert!(found > seen);
                    seen = found;
                }
            }
        });
        writer.close().unwrap();
    }
}

fn bounds_of(reader: &PartitionLog) -> u64 {
    let topic = topic(reader, "orders");
    reader.bounds(&topic, 0).unwrap().unwrap().end
}

#[test]
fn a_reader_that_came_first_is_notified_by_the_first_writer() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let mut reader = made.open();
    wait_in_vain(&reader);
    assert!(!reader.listening.turn().is_told());
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    let writer = writing(made.root.path(), &options).unwrap();
    let seen = reader.readable_position();
    send(&writer, "t", &[(0, b"1")]);
    assert!(reader.wait_until(seen, Duration::from_secs(600), &|| false) > seen);
    until_told(&reader);
    reader.listening.pauses = NEVER;
    notified(&reader, || send_alone(&writer, "t", 0, b"2"));
    writer.close().unwrap();
}

/// The threads would sleep for as long as they may, and end as if they had been woken. So those
/// that slept before the close must have woken when it returns.
#[test]
fn a_reader_that_sleeps_is_woken_by_its_own_close() {
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let writer = writing(&path, &options).unwrap();
    writer.topic_for_append("orders").unwrap();
    let reader = reading(&path, NEVER);
    let seen = reader.readable_position();
    let limit = Duration::from_secs(600);
    let are_woken = thread::scope(|scope| {
        let all = [(); 3].map(|()| scope.spawn(|| reader.wait_until(seen, limit, &|| false)));
        let asleep = loop {
            match reader.listening.asleep() {
                none if none.is_empty() => thread::yield_now(),
                asleep => break asleep,
            }
        };
        reader.close().unwrap();
        let are_woken = asleep.iter().all(|woken| woken.load(Ordering::Acquire));
        if !are_woken {
            // The test ends now, and not after the limit.
            send_alone(&writer, "orders", 0, b"one");
        }
        for it in all {
            it.join().unwrap();
        }
        are_woken
    });
    assert!(are_woken);
    writer.close().unwrap();
}

#[test]
fn a_reader_changes_nothing() {
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let writer = writing(&path, &options).unwrap();
    send(&writer, "orders", &[(0, b"one")]);
    let calls = Arc::new(Mutex::new(BTreeSet::new()));
    let made = Arc::clone(&calls);
    let machine = Machine {
        disk: HookedDisk::shared(move |call, _| {
            made.lock().unwrap().insert(format!("{call:?}"));
            Ok(())
        }),
        ..Machine::real()
    };
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let reader = PartitionLog::open(&machine, &path, &options).unwrap();
    wait_in_vain(&reader);
    notified(&reader, || send_alone(&writer, "orders", 0, b"two"));
    let calls = calls.lock().unwrap();
    let expected = ["List", "Map", "Open", "Probe", "Read"];
    assert!(
        calls.iter().all(|it| expected.contains(&&**it)),
        "{calls:?}"
    );
    assert!(calls.contains("Map") && calls.contains("Probe"));
    writer.close().unwrap();
}

/// No block is left for the page, and later there is one.
#[test]
fn without_a_page_the_files_are_checked_again_and_again() {
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let is_full = Arc::new(AtomicBool::new(true));
    let full = Arc::clone(&is_full);
    let machine = Machine {
        disk: HookedDisk::shared(move |_, path| {
            match path.ends_with(METERS) && full.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }),
        ..Machine::real()
    };
    let writer = PartitionLog::open(&machine, &path, &options).unwrap();
    writer.topic_for_append("orders").unwrap();
    let mut reader = reading(&path, Pauses::default());
    let seen = reader.readable_position();
    wait_in_vain(&reader);
    assert!(!reader.listening.turn().is_told());
    send(&writer, "orders", &[(0, b"one")]);
    assert!(reader.wait_until(seen, Duration::from_secs(600), &|| false) > seen);
    is_full.store(false, Ordering::Relaxed);
    while writer.writer().unwrap().parts.readers.page().is_none() {
        thread::yield_now();
    }
    until_told(&reader);
    reader.listening.pauses = NEVER;
    notified(&reader, || send_alone(&writer, "orders", 0, b"two"));
    writer.close().unwrap();
}

/// A broker notifies nobody, even in a directory where a process of Forebay left its page.
#[test]
fn beside_a_broker_the_files_are_checked_again_and_again() {
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let writer = writing(&path, &options).unwrap();
    writer.topic_for_append("orders").unwrap();
    let machine = Machine {
        disk: HookedDisk::shared(|call, _| match call {
            // The holder of the lock is not known either.
            Call::Probe => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(()),
        }),
        ..Machine::real()
    };
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let mut reader = PartitionLog::open(&machine, &path, &options).unwrap();
    reader.listening.pauses = Pauses {
        poll: Duration::from_millis(50),
        ..NEVER
    };
    let (reader, seen) = (&reader, reader.readable_position());
    thread::scope(|scope| {
        let timeout = Duration::from_secs(600);
        let waiting = scope.spawn(move || reader.wait_until(seen, timeout, &|| false));
        send(&writer, "orders", &[(0, b"one")]);
        assert!(waiting.join().unwrap() > seen);
    });
    assert!(!reader.listening.turn().is_told());
    writer.close().unwrap();
}

#[test]
fn a_page_that_somebody_cuts_off_costs_a_reader_no_message() {
    guard::install();
    let [options, ..] = kinds();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let writer = writing(&path, &options).unwrap();
    writer.topic_for_append("orders").unwrap();
    let reader = reading(&path, Pauses::default());
    wait_in_vain(&reader);
    assert!(reader.listening.turn().is_told());
    let page = fs::File::options().write(true).open(path.join(METERS));
    page.unwrap().set_len(0).unwrap();
    let seen = reader.readable_position();
    send(&writer, "orders", &[(0, b"one")]);
    assert!(reader.wait_until(seen, Duration::from_secs(600), &|| false) > seen);
    assert!(!reader.listening.turn().is_told());
    writer.close().unwrap();
}
