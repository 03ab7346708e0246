//! Bells: they wake threads that sleep until there is something for them.

use crate::sync::{AtomicU32, Condvar, Mutex, Ordering, fence};
use std::time::Duration;

/// Wakes threads that sleep until there is something for them, at the price of one load where none
/// sleeps.
#[derive(Debug, Default)]
pub struct Bell {
    sleepers: AtomicU32,
    lock: Mutex<()>,
    rung: Condvar,
}

/// Rings several bells. What the sleepers have to see was stored before.
#[inline]
pub fn ring_all(bells: &[&Bell]) {
    // The store that made the news must not pass behind the load of the number of sleepers, or one
    // that looked just before it would sleep on.
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

    /// Sleeps until it is rung, unless `ready` holds; at most for `timeout`.
    pub fn sleep(&self, timeout: Duration, ready: impl Fn() -> bool) {
        let mut guard = self.lock.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            self.rung.wait_for(&mut guard, timeout);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
