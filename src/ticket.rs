//! Tickets: messages in the log whose durability is awaited later.

use crate::engine::{Place, Waiter};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The place of a sent message, as [`crate::Producer::send`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Position, queue and offset.
    pub place: Place,
    /// Position after its record.
    pub end: u64,
    /// Store time in ms.
    pub store_timestamp: i64,
    /// Whether the message is durable already.
    pub durable: bool,
}

/// A message, or a batch, in the log that becomes durable later. Clones wait for the same one.
#[derive(Clone, Debug)]
pub struct Ticket<T = Sent> {
    sent: T,
    waiter: Arc<Waiter>,
    generation: u32,
}

impl<T> Ticket<T> {
    pub(crate) fn new(sent: T, waiter: Arc<Waiter>) -> Ticket<T> {
        Ticket {
            sent,
            waiter,
            generation: crate::disk::fork_generation(),
        }
    }

    /// The waiter of the ticket.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of the process that sent the message: the thread that would
    /// wake the waiter runs only in the parent.
    pub fn waiter(&self) -> Result<&Waiter> {
        match self.generation == crate::disk::fork_generation() {
            true => Ok(&self.waiter),
            false => Err(Error::Forked),
        }
    }

    /// Where the message or the batch is; known at once.
    pub fn sent(&self) -> &T {
        &self.sent
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.waiter.is_done()
    }
}

impl Ticket {
    /// Waits until the message is durable. Returns `None` after `timeout`.
    ///
    /// # Errors
    ///
    /// The error of the flush, shared by all its tickets: the message is in the log, but may not
    /// be durable. [`Error::Forked`] in a child of the process that sent it.
    pub fn wait(&self, timeout: Duration) -> Option<std::result::Result<Sent, Arc<Error>>> {
        let durable = Sent {
            durable: true,
            ..self.sent
        };
        let waiter = match self.waiter() {
            Ok(waiter) => waiter,
            Err(error) => return Some(Err(Arc::new(error))),
        };
        let outcome = waiter.wait(timeout)?;
        Some(outcome.map(|()| durable))
    }
}
