//! The append lock: an append holds it; other appends wait, or fail because the log is busy.
//!
//! Without contention an append pays one compare-and-exchange and a few stores to a cache line that
//! it owns anyway. A sender that has waited for [`GRACE`] checks how long the holder's call has
//! taken so far. If that is longer than `busy_timeout` (the page cache writes back, a roll waits
//! for its file), the sender fails at once: another full wait would only gather more senders.

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::options::AppendLockKind;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// A sender waits this long before it reads the clock: ordinary contention is over by then.
const GRACE: Duration = Duration::from_millis(10);
/// How often a spinning sender tries the lock between two readings of the clock.
const SPINS: usize = 1000;

/// What the append lock guards, and the lock.
#[derive(Debug)]
pub struct AppendLock<T> {
    guarded: Mutex<T>,
    /// When the call of the last holder began, by the wall clock in ms.
    holder_ms: AtomicI64,
    /// Messages and bytes appended since opening; written by the holder.
    messages: AtomicU64,
    bytes: AtomicU64,
    kind: AppendLockKind,
    clock: Arc<dyn Clock>,
    long: LongAppends,
}

/// Appends that are so long that other senders should sleep until they end.
///
/// A sender that finds the lock taken yields the processor a few times before it sleeps. That is
/// right if the holder is done within a microsecond. If the holder copies a megabyte, and other
/// threads encode and dispatch, each yield can cost those threads a time slice.
#[derive(Debug, Default)]
struct LongAppends {
    state: std::sync::Mutex<LongState>,
    ended: std::sync::Condvar,
}

#[derive(Debug, Default)]
struct LongState {
    /// Long appends in progress, including those that released the lock a moment ago.
    running: u32,
    /// How many have ended.
    ended: u64,
}

impl LongAppends {
    fn state(&self) -> std::sync::MutexGuard<'_, LongState> {
        let state = self.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps while one is running, until the first one ends, for `timeout` at most.
    fn wait(&self, timeout: Duration) {
        let state = self.state();
        if state.running > 0 {
            let before = state.ended;
            let is_running = |state: &mut LongState| state.ended == before;
            let waited = self.ended.wait_timeout_while(state, timeout, is_running);
            drop(waited);
        }
    }
}

/// An append of many bytes, from taking the lock until after releasing it.
#[derive(Debug)]
pub struct LongAppend<'a>(&'a LongAppends);

impl Drop for LongAppend<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.running -= 1;
        state.ended += 1;
        drop(state);
        self.0.ended.notify_all();
    }
}

impl<T> AppendLock<T> {
    /// A lock that nobody holds. `clock` tells when a call began.
    pub fn new(guarded: T, kind: AppendLockKind, clock: Arc<dyn Clock>) -> AppendLock<T> {
        AppendLock {
            guarded: Mutex::new(guarded),
            holder_ms: AtomicI64::new(0),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            kind,
            clock,
            long: LongAppends::default(),
        }
    }

    /// Takes the lock for a call that began at `clock_ms`.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if the call of another holder, or the wait for it, takes longer than
    /// `timeout`.
    #[inline]
    pub fn acquire(&self, clock_ms: i64, timeout: Duration) -> Result<MutexGuard<'_, T>> {
        let (held, began_ms) = match self.guarded.try_lock() {
            Some(held) => (held, clock_ms),
            None => self.wait(clock_ms, timeout)?,
        };
        self.holder_ms.store(began_ms, Ordering::Relaxed);
        Ok(held)
    }

    #[cold]
    fn wait(&self, clock_ms: i64, timeout: Duration) -> Result<(MutexGuard<'_, T>, i64)> {
        let grace = GRACE.min(timeout);
        if self.kind == AppendLockKind::Mutex {
            self.long.wait(grace);
        }
        if let Some(held) = self.try_for(grace) {
            return Ok((held, clock_ms));
        }
        let looked = Instant::now();
        loop {
            let waited = looked.elapsed() + grace;
            let busy = waited.max(self.held_for());
            let left = timeout.saturating_sub(busy);
            if left.is_zero() {
                let waited_ms = u64::try_from(busy.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Busy { waited_ms });
            }
            if let Some(held) = self.try_for(left) {
                // This call has waited; the next sender must not count that as time held.
                return Ok((held, self.clock.coarse_ms()));
            }
        }
    }

    fn try_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        if self.kind == AppendLockKind::Mutex {
            return self.guarded.try_lock_for(timeout);
        }
        let began = Instant::now();
        loop {
            for _ in 0..SPINS {
                // Loads before it tries: the holder keeps its cache line while others only load.
                if !self.guarded.is_locked()
                    && let Some(held) = self.guarded.try_lock()
                {
                    return Some(held);
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= timeout {
                return None;
            }
            // The holder may be waiting for this very processor.
            std::thread::yield_now();
        }
    }

    /// Waits for the lock without a time limit. Senders that want it meanwhile measure their
    /// `busy_timeout` from the moment at which it was taken.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.guarded.lock();
        self.holder_ms
            .store(self.clock.coarse_ms(), Ordering::Relaxed);
        held
    }

    /// Makes other senders sleep instead of trying again until the holder's append has ended. The
    /// result is dropped after the lock, so that those who wake find it free.
    pub fn begin_long(&self) -> LongAppend<'_> {
        self.long.state().running += 1;
        LongAppend(&self.long)
    }

    /// Whether the lock is held.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.guarded.is_locked()
    }

    /// How long the call of the holder has taken so far; zero if nobody holds the lock. Exact to
    /// some milliseconds, and wrong for a moment when the wall clock is set.
    pub fn held_for(&self) -> Duration {
        if !self.guarded.is_locked() {
            return Duration::ZERO;
        }
        let held_ms = self.clock.coarse_ms() - self.holder_ms.load(Ordering::Relaxed);
        Duration::from_millis(u64::try_from(held_ms).unwrap_or_default())
    }

    /// Publishes the holder's counters, messages and bytes, to those who do not hold the lock.
    #[inline]
    pub fn show_counters(&self, (messages, bytes): (u64, u64)) {
        self.messages.store(messages, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Messages and bytes appended since opening. Never waits for the holder.
    pub fn counters(&self) -> (u64, u64) {
        let messages = self.messages.load(Ordering::Relaxed);
        (messages, self.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::commit_log::CommitLog;
    use crate::engine::commit_log::log::append::Tail;
    use crate::engine::{Appended, Atomicity, Durability, Engine};
    use crate::machine::Machine;
    use crate::record::{Batch, Draft};
    use crate::{Options, Store};
    use std::thread;

    const TIMEOUT: Duration = Duration::from_millis(300);
    const KINDS: [AppendLockKind; 2] = [AppendLockKind::Mutex, AppendLockKind::Spin];

    fn engine(dir: &tempfile::TempDir, append_lock: AppendLockKind) -> CommitLog {
        let options = Options {
            commitlog_file_size: Some(1 << 20),
            append_lock,
            busy_timeout: TIMEOUT,
            ..Options::default()
        };
        CommitLog::open(&Machine::real(), &dir.path().join("store"), &options).unwrap()
    }

    fn send(engine: &CommitLog) -> Result<Appended> {
        let topic = engine.topic_for_append("orders").unwrap();
        let (mut batch, draft) = (Batch::new(), Draft::default());
        let now = engine.parts().clock.now_ms();
        batch
            .push("orders", 0, &draft, engine.style(), now)
            .unwrap();
        engine.append(&topic, &mut batch, Atomicity::Rows, Durability::Written)
    }

    /// Takes the lock as a sender does, for a call that began so long ago.
    fn hold(engine: &CommitLog, ago: Duration) -> MutexGuard<'_, Tail> {
        let ago_ms = i64::try_from(ago.as_millis()).unwrap();
        let tail = &engine.parts().tail;
        let began_ms = tail.clock.coarse_ms() - ago_ms;
        tail.acquire(began_ms, Duration::ZERO).unwrap()
    }

    fn busy_for(sent: Result<Appended>) -> Option<u64> {
        match sent {
            Err(Error::Busy { waited_ms }) => Some(waited_ms),
            _ => None,
        }
    }

    /// A holder that is stuck, in a write-back say, made each sender wait for its whole time-out,
    /// one after the other.
    #[test]
    fn a_sender_fails_at_once_where_the_holder_has_been_at_it_for_too_long() {
        for kind in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let engine = engine(&dir, kind);
            let held = hold(&engine, TIMEOUT * 2);
            let began = Instant::now();
            let waited_ms = busy_for(send(&engine)).unwrap();
            assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
            assert!(waited_ms >= 600, "{waited_ms}");
            assert!(engine.stats().append_held >= TIMEOUT * 2);
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
    fn a_sender_waits_for_a_holder_until_its_call_has_gone_on_for_the_timeout() {
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

    /// A repair took the lock and did not say since when: the time since the last send was taken
    /// for the time that the repair held it, and a sender failed after 10 ms.
    #[test]
    fn a_holder_that_sends_nothing_is_waited_for_as_long_as_one_that_does() {
        for kind in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let engine = engine(&dir, kind);
            drop(hold(&engine, TIMEOUT * 100));
            let held = engine.parts().tail.lock();
            assert!(engine.stats().append_held < TIMEOUT * 100);
            thread::scope(|scope| {
                let sender = scope.spawn(|| send(&engine));
                thread::sleep(2 * GRACE);
                drop(held);
                sender.join().unwrap().unwrap();
            });
            assert_eq!(engine.stats().busy, 0);
            engine.close().unwrap();
        }
    }

    #[test]
    fn a_sender_that_waits_gets_the_lock_when_it_is_free() {
        for kind in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let engine = engine(&dir, kind);
            let held = hold(&engine, Duration::ZERO);
            thread::scope(|scope| {
                let sender = scope.spawn(|| send(&engine));
                thread::sleep(2 * GRACE);
                drop(held);
                sender.join().unwrap().unwrap();
            });
            assert_eq!(engine.stats().busy, 0);
            engine.close().unwrap();
        }
    }

    /// Beside a long append a sender gave its processor away, for a slice of time of others each
    /// time, before it slept.
    #[test]
    fn a_sender_sleeps_beside_a_long_append_and_gets_the_lock_when_that_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine(&dir, AppendLockKind::Mutex);
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
        let (held, long) = (hold(&engine, Duration::ZERO), lock.begin_long());
        // One that does not end is waited for no longer than any other.
        assert!(busy_for(send(&engine)).is_some());
        drop((held, long));
        assert_eq!(engine.stats().messages_sent, 100);
        // Nobody waits for what has ended.
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
            // On a machine that does other things a holder may be off its processor for long.
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
}
