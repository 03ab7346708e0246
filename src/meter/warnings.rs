//! What a store has to tell that is no error of any call.
//!
//! The threads of the core call no Python, so a warning is kept until a call takes it along.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Warnings that are kept until somebody takes them; more are dropped.
const KEPT_MAX: usize = 100;

/// The warnings of a store.
#[derive(Debug, Default)]
pub struct Warnings {
    any: AtomicBool,
    kept: Mutex<Vec<String>>,
}

impl Warnings {
    /// Keeps a warning: a sentence without a full stop.
    pub fn add(&self, text: String) {
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(text);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether there are some that nobody has taken.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Those that were kept since the last call.
    pub fn take(&self) -> Vec<String> {
        let mut kept = self.kept.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut kept)
    }
}
