//! The wall clock of a store.
//!
//! An engine gets its clock as part of its machine, so that a test can set the time. Durations are
//! measured by [`std::time::Instant`], which cannot be set.

use crate::disk::{coarse_ms, now_ns};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A wall clock. It may be set forward or back at any time.
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
}

/// The clock of the operating system.
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
}

/// A clock that changes only when somebody moves it: for tests.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn at(now_ms: i64) -> Arc<ManualClock> {
        Arc::new(ManualClock(AtomicU64::new(now_ms.cast_unsigned())))
    }

    /// Sets the time.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms.cast_unsigned(), Ordering::Relaxed);
    }

    /// Moves the time forward.
    pub fn advance(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed).saturating_mul(1_000_000)
    }
}
