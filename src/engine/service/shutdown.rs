//! Telling the threads of a store to end.

use super::bell::Bell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the threads have to end, and what they sleep on meanwhile.
#[derive(Debug, Default)]
pub struct Shutdown {
    begun: AtomicBool,
    bell: Bell,
}

impl Shutdown {
    /// Tells the threads to end, and wakes those that sleep in [`Shutdown::sleep`].
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether the threads have to end.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Sleeps for `timeout`, or until the threads have to end.
    pub fn sleep(&self, timeout: Duration) {
        self.bell.sleep(timeout, || self.has_begun());
    }
}
