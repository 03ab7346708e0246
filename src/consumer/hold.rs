//! What retention asks of the consumers.

use super::Consumers;
use crate::engine::service::hold::Hold;
use crate::error::Result;
use std::sync::{Arc, OnceLock, Weak};

/// Keeps messages that wait for their time: retention takes a file once they are appended again.
///
/// An engine gets its holds when it opens, and consumers use an engine that is open. So they are
/// set later, and nothing is deleted before.
#[derive(Debug, Default)]
pub struct Waiting(OnceLock<Weak<Consumers>>);

impl Waiting {
    /// Sets the consumers, once.
    pub fn set(&self, consumers: &Arc<Consumers>) {
        let _ = self.0.set(Arc::downgrade(consumers));
    }
}

impl Hold for Waiting {
    fn let_go(&self, until: u64) -> Result<bool> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(consumers) => consumers.let_go(until),
            None => Ok(false),
        }
    }
}
