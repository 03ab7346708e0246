//! The shutdown signal for the threads of a store.

use super::condition::Condition;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the threads must end, and the condition on which they sleep.
#[derive(Debug, Default)]
pub struct Shutdown {
    begun: AtomicBool,
    condition: Condition,
}

impl Shutdown {
    /// Tells the threads to end, and wakes those that sleep in [`Shutdown::sleep`].
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.condition.notify();
    }

    /// Whether the threads must end.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Sleeps for `timeout` or until the threads must end.
    pub fn sleep(&self, timeout: Duration) {
        self.condition.sleep(timeout, || self.has_begun());
    }
}
