//! A mutex over [`TimedLock`].

#![allow(
    unsafe_code,
    reason = "the traits are unsafe by their signature; `timed_lock` keeps their promise"
)]

use super::timed_lock::TimedLock;
use super::{AtomicU32, Condvar, Mutex};
use lock_api::{GuardNoSend, RawMutex, RawMutexTimed};
use std::time::{Duration, Instant};

/// A mutex that can be waited for with a time limit.
pub type TimedMutex<T> = lock_api::Mutex<TimedLock, T>;
/// Holds a [`TimedMutex`].
pub type TimedMutexGuard<'a, T> = lock_api::MutexGuard<'a, TimedLock, T>;

// SAFETY: `TimedLock` is held by one caller at a time: it is taken only by changing its state from
// free, in one exchange, and only its holder makes it free again.
unsafe impl RawMutex for TimedLock {
    const INIT: TimedLock = TimedLock {
        state: AtomicU32::new(0),
        asleep: Mutex::new(()),
        released: Condvar::new(),
    };

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !TimedLock::try_lock(self) {
            self.wait(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        TimedLock::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        TimedLock::unlock(self);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        TimedLock::is_locked(self)
    }
}

// SAFETY: as above; a wait that returns false has not taken the lock.
unsafe impl RawMutexTimed for TimedLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        TimedLock::try_lock(self) || self.wait(Some(timeout))
    }

    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.try_lock_for(deadline.saturating_duration_since(Instant::now()))
    }
}
