//! Senders that compete for the append lock.

use crate::engine::commit_log::CommitLog;
use crate::engine::commit_log::log::append::Tail;
use crate::engine::service::append_lock::GRACE;
use crate::engine::{Appended, Atomicity, Durability, Engine};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::AppendLockKind;
use crate::record::Draft;
use crate::sync::TimedMutexGuard;
use crate::{Options, Store};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(300);
/// For tests whose senders get the lock: none gives up, however long this process is off its CPU.
const LONG: Duration = Duration::from_hours(1);
const KINDS: [AppendLockKind; 2] = [AppendLockKind::Mutex, AppendLockKind::Spin];

pub fn engine(dir: &tempfile::TempDir, append_lock: AppendLockKind) -> CommitLog {
    engine_with(dir, append_lock, TIMEOUT)
}

fn engine_with(
    dir: &tempfile::TempDir,
    append_lock: AppendLockKind,
    busy_timeout: Duration,
) -> CommitLog {
    let options = Options {
        commitlog_file_size: Some(1 << 20),
        append_lock,
        busy_timeout,
        ..Options::default()
    };
    CommitLog::open(
        &Machine::real(),
        &dir.path().join("store"),
        &options,
        Vec::new(),
    )
    .unwrap()
}

pub fn send(engine: &CommitLog) -> Result<Appended> {
    let topic = engine.topic_for_append("orders").unwrap();
    let (mut batch, draft) = (engine.form().batch(), Draft::default());
    let now = engine.parts().clock.now_ms();
    batch.push("orders", 0, &draft, now).unwrap();
    engine.append(
        &mut [(&topic, &mut batch)],
        Atomicity::Rows,
        Durability::Written,
    )
}

/// Takes the lock like a sender whose call began `ago`.
fn hold(engine: &CommitLog, ago: Duration) -> TimedMutexGuard<'_, Tail> {
    let ago_ms = i64::try_from(ago.as_millis()).unwrap();
    let tail = &engine.parts().tail;
    let began_ms = engine.parts().clock.coarse_ms() - ago_ms;
    tail.acquire(began_ms, Duration::ZERO).unwrap()
}

fn busy_for(sent: Result<Appended>) -> Option<u64> {
    match sent {
        Err(Error::Busy { waited_ms, .. }) => Some(waited_ms),
        _ => None,
    }
}

/// A holder that was stuck, in a write-back for example, once made each sender wait for its full
/// timeout, one after another.
#[test]
fn a_sender_fails_at_once_if_the_holder_has_taken_too_long() {
    // A sender that waited for the holder would never return.
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(&dir, kind, LONG);
        let held = hold(&engine, LONG * 2);
        let waited_ms = busy_for(send(&engine)).unwrap();
        assert!(waited_ms >= 7_200_000, "{waited_ms}");
        assert!(engine.stats().append_held >= LONG * 2);
        drop(held);
        let stats = engine.stats();
        assert_eq!((stats.busy, stats.sends_failed), (1, 1));
        assert_eq!(
            (stats.messages_sent, stats.append_held),
            (0, Duration::ZERO)
        );
        assert_eq!(send(&engine).unwrap().rows[0].offset, 0);
        engine.close().unwrap();
    }
}

#[test]
fn a_sender_waits_until_the_holders_call_has_taken_the_timeout() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(&dir, kind);
        let held = hold(&engine, Duration::ZERO);
        let began = Instant::now();
        assert!(busy_for(send(&engine)).is_some());
        assert!(began.elapsed() >= TIMEOUT - GRACE, "{:?}", began.elapsed());
        drop(held);
        engine.close().unwrap();
    }
}

/// A sender that finds the lock held gets it when `held` is dropped.
fn assert_gets_the_lock(engine: &CommitLog, held: impl Sized) {
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(engine));
        thread::sleep(2 * GRACE);
        drop(held);
        sender.join().unwrap().unwrap();
    });
    assert_eq!(engine.stats().busy, 0);
}

/// A repair once took the lock without storing when. Senders mistook the time since the last send
/// for the time that the repair held the lock, and failed after 10 ms.
#[test]
fn senders_wait_for_a_holder_that_sends_nothing_for_the_full_timeout() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(&dir, kind, LONG);
        drop(hold(&engine, LONG * 2));
        let held = engine.parts().tail.lock();
        assert!(engine.stats().append_held < LONG);
        assert_gets_the_lock(&engine, held);
        engine.close().unwrap();
    }
}

#[test]
fn a_waiting_sender_gets_the_lock_when_it_is_free() {
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with(&dir, kind, LONG);
        let held = hold(&engine, Duration::ZERO);
        assert_gets_the_lock(&engine, held);
        engine.close().unwrap();
    }
}

/// During a long append, a sender once yielded its CPU for whole time slices of other threads
/// before it slept.
#[test]
fn a_sender_sleeps_during_a_long_append_and_then_gets_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with(&dir, AppendLockKind::Mutex, LONG);
    let lock = &engine.parts().tail;
    for _ in 0..100 {
        let (held, long) = (hold(&engine, Duration::ZERO), lock.begin_long());
        thread::scope(|scope| {
            let sender = scope.spawn(|| send(&engine));
            drop(held);
            drop(long);
            sender.join().unwrap().unwrap();
        });
    }
    let (held, long) = (hold(&engine, LONG * 2), lock.begin_long());
    // A sender does not wait for a long append without checking how long it has taken.
    assert!(busy_for(send(&engine)).is_some());
    drop((held, long));
    assert_eq!(engine.stats().messages_sent, 100);
    // Nobody waits for an append that has ended.
    lock.long.wait(Duration::MAX);
    engine.close().unwrap();
}

#[test]
fn counters_are_read_while_the_lock_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir, AppendLockKind::Mutex);
    send(&engine).unwrap();
    let held = hold(&engine, Duration::ZERO);
    assert_eq!(engine.stats().messages_sent, 1);
    drop(held);
    engine.close().unwrap();
}

#[test]
fn many_spinning_senders_lose_no_message() {
    const THREADS: u64 = 8;
    const EACH: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        append_lock: AppendLockKind::Spin,
        // On a busy machine the holder may be off its CPU for long.
        busy_timeout: Duration::from_secs(60),
        ..Options::default()
    };
    let store = Store::open(dir.path().join("store"), options).unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let producer = store.producer("orders", Some(0)).unwrap();
                for _ in 0..EACH {
                    let sent = producer.send(&Draft::default(), 0, Durability::Default);
                    sent.unwrap();
                }
            });
        }
    });
    let (topic, engine) = (store.topic("orders").unwrap(), store.engine().unwrap());
    let bounds = engine.bounds(&topic, 0).unwrap().unwrap();
    assert_eq!(bounds, 0..THREADS * EACH);
    assert_eq!(store.stats().unwrap().messages_sent, THREADS * EACH);
    store.close().unwrap();
}
