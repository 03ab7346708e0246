//! A lock that can be waited for with a time limit.
//!
//! The state is that of the mutex in Ulrich Drepper's "Futexes Are Tricky" (2011): free, held, or
//! held while threads may sleep. Taking and releasing a lock that nobody waits for is one exchange
//! each. A thread that finds the lock held tries a few more times, because most holders are done
//! within a microsecond, and then sleeps on a condition variable.
//!
//! ```text
//!   sleeper:  state := awaited --> lock `asleep` --> state is still awaited? --> sleep
//!   holder:   state := free    --> it was awaited? --> lock `asleep` --> wake one
//! ```
//!
//! A sleeper that sees `awaited` under `asleep` is on the condition variable's list before the
//! holder can notify it. A thread that was woken stores `awaited` again, because it cannot know
//! whether others sleep.

use crate::plant::{Bug, planted};
use crate::sync::{AtomicU32, Condvar, Instant, Mutex, Ordering, TRIES, thread};
use std::time::Duration;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and threads may sleep.
const AWAITED: u32 = 2;

/// The lock without the data that it guards.
#[derive(Debug, Default)]
pub struct TimedLock {
    pub(super) state: AtomicU32,
    pub(super) asleep: Mutex<()>,
    pub(super) released: Condvar,
}

impl TimedLock {
    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether somebody holds it.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Waits for the lock, at most for `timeout` if there is one. Returns whether it was taken.
    #[cold]
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let began = Instant::now();
        if self.try_often() {
            return true;
        }
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let asleep = self.asleep.lock();
            if self.state.load(Ordering::Relaxed) == AWAITED || planted(Bug::SleepUnchecked) {
                drop(
                    self.released
                        .wait_for(asleep, left.unwrap_or(Duration::MAX)),
                );
            }
        }
        true
    }

    /// Tries to take the lock a few times, unless others already sleep.
    fn try_often(&self) -> bool {
        for tried in 0..TRIES {
            match self.state.load(Ordering::Relaxed) {
                FREE if self.try_lock() => return true,
                AWAITED => return false,
                _ => {}
            }
            match tried {
                0..3 => (0..2 << tried).for_each(|_| std::hint::spin_loop()),
                _ => thread::yield_now(),
            }
        }
        false
    }

    /// Releases the lock, which the caller must hold.
    #[inline]
    pub fn unlock(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        drop(self.asleep.lock());
        self.released.notify_one();
    }
}
