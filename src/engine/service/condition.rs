//! Conditions that threads sleep on until there is work for them.

use crate::sync::{AtomicU32, Condvar, Mutex, Ordering, fence};
use std::time::Duration;

/// Threads sleep on it until there is work for them. Notifying costs one load if no thread sleeps.
#[derive(Debug, Default)]
pub struct Condition {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    notified: Condvar,
}

/// Notifies several conditions. The caller must first store what the sleepers check.
#[inline]
pub fn notify_all(conditions: &[&Condition]) {
    // The caller's store must not be reordered after the load of `sleepers`: a thread that checked
    // just before the store would sleep on.
    fence(Ordering::SeqCst);
    for condition in conditions {
        if condition.sleepers.load(Ordering::Relaxed) > 0 {
            condition.wake();
        }
    }
}

impl Condition {
    /// Wakes the sleepers, if there are any.
    pub fn notify(&self) {
        notify_all(&[self]);
    }

    #[cold]
    fn wake(&self) {
        drop(self.lock.lock());
        self.notified.notify_all();
    }

    /// Sleeps until it is notified, at most for `timeout`. Returns at once if `ready` holds.
    pub fn sleep(&self, timeout: Duration, ready: impl Fn() -> bool) {
        let guard = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            drop(self.notified.wait_for(guard, timeout));
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
