//! The append lock: an append holds it; other appends wait, or fail because the log is busy.
//!
//! Without contention an append pays one compare-and-exchange and a few stores to a cache line that
//! it owns anyway. A sender that has waited for [`GRACE`] checks how long the holder's call has
//! taken so far. If that is longer than `busy_timeout` (the page cache writes back, a roll waits
//! for its file), the sender fails at once: another full wait would only gather more senders.

use crate::clock::Clock;
use crate::error::{Awaited, Error, Result};
use crate::options::AppendLockKind;
use crate::sync::{Condvar, Mutex, TimedMutex, TimedMutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A sender waits this long before it reads the clock: ordinary contention is over by then.
pub const GRACE: Duration = Duration::from_millis(10);
/// How often a spinning sender tries the lock between two readings of the clock.
const SPINS: usize = 1000;

/// What the append lock guards, and the lock.
#[derive(Debug)]
pub struct AppendLock<T> {
    guarded: TimedMutex<T>,
    /// When the call of the last holder began, by the wall clock in ms.
    holder_ms: AtomicI64,
    /// Messages and bytes appended since opening; written by the holder.
    messages: AtomicU64,
    bytes: AtomicU64,
    kind: AppendLockKind,
    clock: Arc<dyn Clock>,
    /// Appends during which other senders sleep instead of spinning.
    pub long: LongAppends,
}

/// Appends that take so long that other senders should sleep until they end.
///
/// A sender that finds the lock taken yields the processor a few times before it sleeps. That is
/// right if the holder is done within a microsecond. If the holder copies a megabyte, and other
/// threads encode and dispatch, each yield can cost those threads a time slice.
#[derive(Debug, Default)]
pub struct LongAppends {
    state: Mutex<LongState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct LongState {
    /// Long appends in progress, including those that released the lock a moment ago.
    running: u32,
    /// How many have ended.
    ended: u64,
}

impl LongAppends {
    /// If one is running, sleeps until one ends, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let state = self.state.lock();
        if state.running > 0 {
            let before = state.ended;
            let is_running = |state: &mut LongState| state.ended == before;
            drop(self.ended.wait_while_for(state, is_running, timeout));
        }
    }
}

/// An append of many bytes, from taking the lock until after releasing it.
#[derive(Debug)]
pub struct LongAppend<'a>(&'a LongAppends);

impl Drop for LongAppend<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
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
            guarded: TimedMutex::new(guarded),
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
    pub fn acquire(&self, clock_ms: i64, timeout: Duration) -> Result<TimedMutexGuard<'_, T>> {
        let (held, began_ms) = match self.guarded.try_lock() {
            Some(held) => (held, clock_ms),
            None => self.wait(clock_ms, timeout)?,
        };
        self.holder_ms.store(began_ms, Ordering::Relaxed);
        Ok(held)
    }

    #[cold]
    pub fn wait(&self, clock_ms: i64, timeout: Duration) -> Result<(TimedMutexGuard<'_, T>, i64)> {
        let grace = GRACE.min(timeout);
        if self.kind == AppendLockKind::Mutex {
            self.long.wait(grace);
        }
        if let Some(held) = self.try_for(grace) {
            return Ok((held, clock_ms));
        }
        let began = Instant::now();
        loop {
            let waited = began.elapsed() + grace;
            let busy = waited.max(self.held_for());
            let left = timeout.saturating_sub(busy);
            if left.is_zero() {
                let waited_ms = u64::try_from(busy.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Busy {
                    what: Awaited::Log,
                    waited_ms,
                });
            }
            if let Some(held) = self.try_for(left) {
                // This call has waited; the next sender must not count that as time held.
                return Ok((held, self.clock.coarse_ms()));
            }
        }
    }

    fn try_for(&self, timeout: Duration) -> Option<TimedMutexGuard<'_, T>> {
        if self.kind == AppendLockKind::Mutex {
            return self.guarded.try_lock_for(timeout);
        }
        let began = Instant::now();
        loop {
            for _ in 0..SPINS {
                // Loads the word before trying, so that the holder keeps its cache line.
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
    pub fn lock(&self) -> TimedMutexGuard<'_, T> {
        let held = self.guarded.lock();
        self.holder_ms
            .store(self.clock.coarse_ms(), Ordering::Relaxed);
        held
    }

    /// Makes other senders sleep instead of retrying until the holder's append has ended. Drop the
    /// result after releasing the lock, so that woken senders find it free.
    pub fn begin_long(&self) -> LongAppend<'_> {
        self.long.state.lock().running += 1;
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
