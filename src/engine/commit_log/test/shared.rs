//! Processes of a shared store, one of which is held up.

use crate::engine::commit_log::CommitLog;
use crate::engine::commit_log::share::Share;
use crate::engine::directory::group_table::joint::Joint;
use crate::engine::directory::page::Mark;
use crate::engine::service::duty::Desk;
use crate::engine::service::hold::Hold;
use crate::engine::service::polling::Host;
use crate::engine::{Atomicity, Durability, Engine, Files};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::Draft;
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 16 << 10;

fn options() -> Options {
    Options {
        mode: Mode::Share,
        commitlog_file_size: Some(FILE_LEN),
        default_queues: Some(1),
        retention_bytes: Some(2 * FILE_LEN),
        disk_reserve: Some(0),
        ..Options::default()
    }
}

fn open(root: &Path, holds: Vec<Arc<dyn Hold>>) -> CommitLog {
    CommitLog::open(&Machine::real(), root, &options(), holds).unwrap()
}

/// Sends messages of 1 KiB.
fn send(engine: &CommitLog, count: usize) {
    send_bodies(engine, count, &[1; 1 << 10]);
}

fn send_bodies(engine: &CommitLog, count: usize, body: &[u8]) {
    let topic = engine.topic_for_append("orders").unwrap();
    for _ in 0..count {
        let draft = Draft {
            body,
            ..Draft::default()
        };
        let mut batch = engine.form().batch();
        batch.push("orders", 0, &draft, 1).unwrap();
        let batches = &mut [(&*topic, &mut batch)];
        let durability = Durability::Default;
        engine.append(batches, Atomicity::Rows, durability).unwrap();
    }
}

/// Sends a message, and returns its offset.
fn send_one(engine: &CommitLog) -> u64 {
    let topic = engine.topic_for_append("orders").unwrap();
    let mut batch = engine.form().batch();
    let draft = Draft {
        body: b"another",
        ..Draft::default()
    };
    batch.push("orders", 0, &draft, 1).unwrap();
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Default);
    sent.unwrap().rows[0].offset
}

/// A process was stopped while others sent and retention removed what they had sent. It has walked
/// none of those records, but must know the next offsets.
#[test]
fn a_process_that_has_not_walked_what_was_removed_goes_on_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let leader = open(&root, Vec::new());
    send(&leader, 1);
    let (share, opened) = Share::open(&Machine::real(), &root, &options(), Vec::new()).unwrap();
    // No thread of this process walks on while the lock is held.
    let mut tail = share.core.lock_tail();
    let before = tail.position();
    send(&leader, 100);
    let minimum = || share.core.page().get(Mark::Minimum);
    let first = root.join("commitlog").join(format!("{:020}", 0));
    while minimum() == 0 || first.exists() {
        std::thread::yield_now();
    }
    assert!(before < minimum());
    share.core.catch_up(&mut tail).unwrap();
    assert_eq!(tail.position(), share.core.published());
    let topic = opened.parts.topics.get("orders").unwrap();
    assert_eq!(tail.next_offset(&topic, 0), 101);
    drop(tail);
    share.close().unwrap();
    leader.close().unwrap();
}

/// Since a process last sent, another one has filled the file in use and sealed the next one.
#[test]
fn a_process_that_is_files_behind_goes_on_after_a_file_that_was_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let all = || {
        let options = Options {
            retention_bytes: None,
            ..options()
        };
        CommitLog::open(&Machine::real(), &root, &options, Vec::new()).unwrap()
    };
    let (leader, other) = (all(), all());
    send(&other, 1);
    send(&leader, 20);
    let end = leader.roll_while(&mut || true).unwrap();
    assert_eq!(end, Some(2 * FILE_LEN));
    send(&other, 1);
    let published = leader.page().get(Mark::Published);
    assert!(published > 2 * FILE_LEN, "{published}");
    other.close().unwrap();
    leader.close().unwrap();
}

#[test]
fn a_process_that_appends_much_to_a_shared_log_faults_pages_in_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        mode: Mode::Share,
        ..Options::default()
    };
    let engine = CommitLog::open(&Machine::real(), dir.path(), &options, Vec::new()).unwrap();
    let ahead = || {
        let tail = engine.share.as_ref().unwrap().core.lock_tail();
        tail.populated().saturating_sub(tail.position())
    };
    // Small, so that they are stored through the map.
    send_bodies(&engine, 1, &[1; 700]);
    assert_eq!(ahead(), 0);
    send_bodies(&engine, 400, &[1; 700]);
    assert!(ahead() >= 128 << 10, "{}", ahead());
    engine.close().unwrap();
}

/// The processes that came first gave no options of retention. The leader applies the options of
/// those that came later, and so does the next leader.
#[test]
fn options_of_a_process_that_comes_later_count_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let without = || {
        let options = Options {
            retention_bytes: None,
            disk_reserve: Options::default().disk_reserve,
            ..options()
        };
        CommitLog::open(&Machine::real(), &root, &options, Vec::new()).unwrap()
    };
    let (leader, heir) = (without(), without());
    let page = leader.page();
    let removed = || page.get(Mark::Minimum);
    let until_removed_above = |before: u64| {
        while removed() <= before {
            std::thread::yield_now();
        }
    };
    send(&leader, 100);
    assert_eq!(removed(), 0);
    open(&root, Vec::new()).close().unwrap();
    until_removed_above(0);
    leader.close().unwrap();
    let before = removed();
    send(&heir, 100);
    until_removed_above(before);
    let other = Options {
        retention_bytes: Some(3 * FILE_LEN),
        ..options()
    };
    let told = CommitLog::open(&Machine::real(), &root, &other, Vec::new());
    assert!(matches!(told, Err(Error::InvalidOption { .. })));
    heir.close().unwrap();
}

/// A sender in another process wakes the reader that waits, which dispatches itself.
#[test]
fn a_reader_of_the_process_that_leads_is_called_for_what_others_send() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let (leader, other) = (open(&root, Vec::new()), open(&root, Vec::new()));
    let page = leader.page();
    send(&other, 1);
    while leader.readable_position() < page.get(Mark::Published) {
        std::thread::yield_now();
    }
    // A reader may go off duty for a moment, and then the sender wakes the dispatch thread. A
    // reader stays off duty if much was sent since it last waited, so each round sends one message
    // and waits for it.
    let is_called = (0..100).any(|_| {
        let end = leader.readable_position();
        let timeout = Duration::from_mins(1);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| leader.wait_until(end, timeout, &|| false));
            while page.on_duty() == 0 && !reader.is_finished() {
                std::thread::yield_now();
            }
            let before = page.load_duty();
            send(&other, 1);
            assert!(reader.join().unwrap() > end);
            page.load_duty() != before
        })
    });
    assert!(is_called);
    assert_eq!(page.on_duty(), 0);
    other.close().unwrap();
    leader.close().unwrap();
}

/// A machine with a processor to spare, where nothing takes time.
#[derive(Debug)]
struct Idle(Instant);

impl Host for Idle {
    fn now(&self) -> Instant {
        self.0
    }

    fn give_way(&self) {}
}

/// A reader that was woken a moment ago checks again before it sleeps; one that has waited in vain
/// does not.
#[test]
fn a_reader_of_the_process_that_leads_polls_while_its_waits_are_short() {
    let dir = tempfile::tempdir().unwrap();
    let (share, _) = Share::open(&Machine::real(), dir.path(), &options(), Vec::new()).unwrap();
    share.core.polling.plant(Box::new(Idle(Instant::now())));
    let checks_in_vain = || {
        let count = Cell::new(0);
        let ready = || {
            count.set(count.get() + 1);
            false
        };
        assert!(share.core.serve(Duration::ZERO, &ready));
        count.get()
    };
    assert!(share.core.serve(Duration::from_mins(1), &|| true));
    assert_eq!(checks_in_vain(), 2);
    assert_eq!(checks_in_vain(), 1);
    share.close().unwrap();
}

/// Asks for the table of groups until the process leaves the store.
#[derive(Default)]
struct Asking {
    joint: OnceLock<Arc<dyn Joint>>,
    asks: AtomicBool,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl Hold for Asking {
    fn keep_from(&self) -> Result<u64> {
        while let Some(joint) = self.joint.get() {
            joint.found_table()?;
            self.asks.store(true, Ordering::Release);
        }
        Ok(0)
    }
}

/// Retention asks consumers, which ask for the table of groups, and the process that closes the
/// store waits for retention.
#[test]
fn a_close_does_not_wait_for_retention_that_waits_for_the_close() {
    let dir = tempfile::tempdir().unwrap();
    let hold = Arc::new(Asking::default());
    let engine = open(dir.path(), vec![Arc::<Asking>::clone(&hold)]);
    hold.joint.set(engine.joint().unwrap()).ok().unwrap();
    send(&engine, 100);
    while !hold.asks.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    engine.close().unwrap();
}

/// The last messages of a store that was closed are lost: the last of them is damaged, or its log
/// file is gone.
#[test]
fn what_recovery_finds_is_known_in_all_processes() {
    for is_gone in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = |mode| {
            let options = Options {
                mode,
                retention_bytes: None,
                ..options()
            };
            CommitLog::open(&Machine::real(), dir.path(), &options, Vec::new()).unwrap()
        };
        let engine = open(Mode::Append);
        send_bodies(&engine, 20, b"the body of a message");
        engine.roll_while(&mut || true).unwrap();
        send_bodies(&engine, 20, b"the body of a message");
        engine.close().unwrap();
        let log = dir.path().join("commitlog").join(format!("{FILE_LEN:020}"));
        let mut bytes = fs::read(&log).unwrap();
        let last = bytes.windows(8).rposition(|at| at == b"the body").unwrap();
        bytes[last] ^= 1;
        match is_gone {
            true => fs::remove_file(&log).unwrap(),
            false => fs::write(&log, bytes).unwrap(),
        }
        let (leader, other) = (open(Mode::Share), open(Mode::Share));
        assert_eq!(leader.report().damage().len(), 1, "{is_gone}");
        assert_eq!(send_one(&other), 40);
        assert_eq!(send_one(&leader), 41);
        other.close().unwrap();
        leader.close().unwrap();
        assert_eq!(send_one(&open(Mode::Append)), 42);
    }
}
