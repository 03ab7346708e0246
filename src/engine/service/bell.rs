//! Bells wake threads that sleep until there is work for them.

use crate::sync::{AtomicU32, Condvar, Mutex, Ordering, fence};
use std::time::Duration;

/// Wakes threads that sleep until there is work for them. Ringing costs one load if none sleeps.
#[derive(Debug, Default)]
pub struct Bell {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    rung: Condvar,
}

/// Rings several bells. Before, the caller must store what the sleepers check.
#[inline]
pub fn ring_all(bells: &[&Bell]) {
    // The caller's store must not be reordered after the load of `sleepers`: a thread that checked
    // just before the store would sleep on.
    fence(Ordering::SeqCst);
    for bell in bells {
        if bell.sleepers.load(Ordering::Relaxed) > 0 {
            bell.wake();
        }
    }
}

impl Bell {
    /// Wakes the sleepers, if there are any.
    pub fn ring(&self) {
        ring_all(&[self]);
    }

    #[cold]
    fn wake(&self) {
        drop(self.lock.lock());
        self.rung.notify_all();
    }

    /// Sleeps until the bell rings, at most for `timeout`. Returns at once if `ready` holds.
    pub fn sleep(&self, timeout: Duration, ready: impl Fn() -> bool) {
        let guard = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            drop(self.rung.wait_for(guard, timeout));
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
