//! Threads of this process that sleep on a word of another process.
//!
//! Such a word can be loaded here, but not changed, so a thread that has checked it and is about to
//! sleep cannot be stopped. A thread with news for them wakes the word until each of them has
//! left; a thread that comes later sees the news itself.

use crate::plant::{Bug, planted};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::sync::Arc;

/// The threads that sleep, or are about to.
#[derive(Debug, Default)]
pub struct Sleepers {
    inside: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Sleepers {
    /// Runs `sleep`. It checks whether there is news before it sleeps.
    pub fn sleep(&self, sleep: impl FnOnce()) {
        let left = Arc::new(AtomicBool::new(false));
        self.inside.lock().push(Arc::clone(&left));
        sleep();
        left.store(true, Ordering::Release);
        self.inside
            .lock()
            .retain(|other| !Arc::ptr_eq(other, &left));
    }

    /// Whether there are any. A thread that comes later sees the news itself.
    pub fn any(&self) -> bool {
        !self.inside.lock().is_empty()
    }

    /// For each that there is, whether it has left since.
    #[cfg(test)]
    pub fn inside(&self) -> Vec<Arc<AtomicBool>> {
        self.inside.lock().clone()
    }

    /// Calls `wake` until every thread that may have missed the caller's news has left. The caller
    /// must first store the news.
    pub fn wake(&self, wake: impl Fn()) {
        let inside = self.inside.lock().clone();
        for left in inside {
            while !left.load(Ordering::Acquire) {
                wake();
                if planted(Bug::WakeOnce) {
                    break;
                }
            }
        }
    }
}
