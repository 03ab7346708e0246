//! Whether a store can be written: it may be closed, or writing may have failed for good.
//!
//! A failed store can still be read. Only the first failure is kept: later ones are often its
//! consequences.

use crate::error::{Error, Result};
use crate::sync::Mutex;
use std::fmt::Display;
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

    /// Stops writing for good. `mark` records the failure for other processes. It runs before
    /// anyone can see the failure here, and never during [`Health::unless_failed`].
    pub fn fail(&self, error: &impl Display, mark: impl FnOnce()) {
        let mut failure = self.failure.lock();
        failure.get_or_insert_with(|| error.to_string());
        mark();
        drop(failure);
        self.failed.store(true, Ordering::Release);
    }

    /// Runs `mark` unless writing has failed; no failure can happen meanwhile.
    pub fn unless_failed(&self, mark: impl FnOnce()) {
        let failure = self.failure.lock();
        if failure.is_none() {
            mark();
        }
    }

    /// # Errors
    ///
    /// [`Error::Failed`] if writing has failed: the call has appended nothing.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(self.failure(false)),
        }
    }

    /// As [`Health::check`], for a call whose messages are already in the log.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if writing has failed.
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
