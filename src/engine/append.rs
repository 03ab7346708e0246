//! The options and the result of an append.

use super::waiter::Waiter;
use crate::error::{Error, Result};
use crate::interrupt;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// Whether a call returns before or after its messages are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The default of the store, chosen when it was opened.
    #[default]
    Default,
    /// Return when the messages are durable.
    Flushed,
    /// Return when they are in the log: safe from a crash of the process, not from a power loss.
    Written,
}

impl Durability {
    /// Whether a call returns only when its messages are durable; `by_default`: whether the store
    /// was opened to do so.
    #[inline]
    #[must_use]
    pub fn waits(self, by_default: bool) -> bool {
        match self {
            Durability::Default => by_default,
            Durability::Flushed => true,
            Durability::Written => false,
        }
    }
}

/// Whether the rows of a batch are appended atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// Each row by itself: after a crash a part of the batch may exist.
    Rows,
    /// All rows or none, even after a crash.
    Whole,
}

/// What an append did, with one entry per row in the order of the batch.
#[derive(Clone, Debug, Default)]
pub struct Appended {
    /// Position and queue offset of each row. A single row needs no allocation.
    pub rows: SmallVec<[Place; 1]>,
    /// Store time of all rows in ms.
    pub store_timestamp: i64,
    /// Position after the last byte appended.
    pub end: u64,
    /// Whether the rows are already durable.
    pub durable: bool,
    /// How long the call waited for the disk.
    pub waited: Duration,
}

impl Appended {
    /// Waits up to `timeout` until the rows are durable. An interrupt of the caller ends the wait.
    ///
    /// # Errors
    ///
    /// Those of [`Waiter::wait_or_fail`]; [`Error::FlushTimeout`] also after an interrupt. The rows
    /// are in the log.
    pub fn await_durable(&mut self, waiter: &Waiter, timeout: Duration) -> Result<()> {
        let (began, mut is_raised) = (Instant::now(), false);
        let waited = waiter.wait_while(timeout, &mut || {
            is_raised = interrupt::is_raised();
            !is_raised
        });
        self.waited = began.elapsed();
        waited?;
        if is_raised {
            let timeout_ms = u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::FlushTimeout { timeout_ms });
        }
        self.durable = true;
        Ok(())
    }
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Position in the log.
    pub position: u64,
    /// Queue.
    pub queue: u32,
    /// Offset in the queue.
    pub offset: u64,
}
