//! The clocks of a store: the wall clock, and a steady one.
//!
//! An engine gets its clocks as part of its machine, so that a test can set the time. The wall
//! clock is for times that are stored or shown. Waits and deadlines use the steady clock, or
//! [`std::time::Instant`] where no test moves them, because the wall clock may be set meanwhile.

use crate::disk::{coarse_ms, now_ns, steady_ms};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A wall clock, which may be set forward or back at any time, and a steady clock, which is never
/// set.
pub trait Clock: Send + Sync + Debug {
    /// Nanoseconds since the Unix epoch; 0 for a time before it.
    fn now_ns(&self) -> u64;

    /// Milliseconds since the Unix epoch; 0 for a time before it.
    #[inline]
    fn now_ms(&self) -> i64 {
        (self.now_ns() / 1_000_000).cast_signed()
    }

    /// [`Clock::now_ms`] at the last tick, 1 to 10 ms ago: a third of the cost of the exact time.
    #[inline]
    fn coarse_ms(&self) -> i64 {
        self.now_ms()
    }

    /// Milliseconds by the steady clock. Only differences mean anything, and only in this process.
    fn steady_ms(&self) -> i64;

    /// The time by both clocks; the wall clock as [`Clock::coarse_ms`].
    #[inline]
    fn moment(&self) -> Moment {
        Moment {
            wall_ms: self.coarse_ms(),
            steady_ms: self.steady_ms(),
        }
    }
}

/// A moment by both clocks, in ms.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since the Unix epoch, by the wall clock: for times that are stored or shown.
    pub wall_ms: i64,
    /// By the steady clock: for deadlines.
    pub steady_ms: i64,
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct RealClock;

impl Clock for RealClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    #[inline]
    fn coarse_ms(&self) -> i64 {
        coarse_ms()
    }

    #[inline]
    fn steady_ms(&self) -> i64 {
        steady_ms()
    }
}

/// A clock that changes only when somebody moves it: for tests.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    steady_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn at(now_ms: i64) -> Arc<ManualClock> {
        Arc::new(ManualClock {
            wall_ms: AtomicU64::new(now_ms.cast_unsigned()),
            steady_ms: AtomicI64::new(0),
        })
    }

    /// Sets the wall clock, forward or back. The steady clock does not move.
    pub fn set(&self, now_ms: i64) {
        let now_ms = now_ms.cast_unsigned();
        self.wall_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Lets time pass: moves both clocks forward.
    pub fn advance(&self, by_ms: u64) {
        self.steady_ms
            .fetch_add(by_ms.cast_signed(), Ordering::Relaxed);
        self.wall_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        let now_ms = self.wall_ms.load(Ordering::Relaxed);
        now_ms.saturating_mul(1_000_000)
    }

    fn steady_ms(&self) -> i64 {
        self.steady_ms.load(Ordering::Relaxed)
    }
}
