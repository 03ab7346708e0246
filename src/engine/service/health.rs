//! Whether a store may still be written: it is closed, or a failure has ended the writing for good.
//!
//! A store that has failed can still be read. The first failure is kept: what follows it is often
//! only its consequence.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Closed, failed, and why.
#[derive(Debug, Default)]
pub struct Health {
    closed: AtomicBool,
    failed: AtomicBool,
    /// The text of the first failure.
    failure: Mutex<Option<String>>,
}

impl Health {
    /// Closes the store; false if it was closed before. Called under the append lock, so that no
    /// append follows.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether the store is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the writing for good. `mark` records the failure where other processes see it. It runs
    /// before anyone can learn of the failure here, and never during [`Health::unless_failed`].
    pub fn fail(&self, error: &Error, mark: impl FnOnce()) {
        let mut failure = self.failure.lock();
        failure.get_or_insert_with(|| error.to_string());
        mark();
        drop(failure);
        self.failed.store(true, Ordering::Release);
    }

    /// Runs `mark` unless the writing has failed; no failure can come in between.
    pub fn unless_failed(&self, mark: impl FnOnce()) {
        let failure = self.failure.lock();
        if failure.is_none() {
            mark();
        }
    }

    /// # Errors
    ///
    /// [`Error::Failed`] if the writing has ended: the call has appended nothing.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(self.failure(false)),
        }
    }

    /// As [`Health::check`], for a call whose messages are in the log already.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the writing has ended.
    pub fn check_appended(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(self.failure(true)),
        }
    }

    #[cold]
    fn failure(&self, appended: bool) -> Error {
        let reason = self.failure.lock().clone().unwrap_or_default();
        Error::Failed { reason, appended }
    }
}
