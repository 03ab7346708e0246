//! Whether this process runs the services of a shared store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process runs the services, for the consumers above the engine.
#[derive(Default)]
pub struct Lead {
    leads: AtomicBool,
    begun: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Lead {
    /// Whether this process runs the services.
    pub fn is_held(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Calls `call` each time this process begins to run the services.
    pub fn on_begin(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.begun.set(call);
    }

    /// Notes that this process runs the services.
    pub fn begin(&self) {
        self.leads.store(true, Ordering::Release);
        if let Some(call) = self.begun.get() {
            call();
        }
    }

    /// Notes that this process no longer runs them.
    pub fn end(&self) {
        self.leads.store(false, Ordering::Release);
    }
}
