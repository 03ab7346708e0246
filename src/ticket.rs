//! Tickets: messages that are in the log, whose durability is awaited later.

use crate::engine::{Place, Waiter};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// Where a message went, as [`crate::Producer::send`] returns it.
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

/// A message in the log that becomes durable later. Clones wait for the same message.
#[derive(Clone, Debug)]
pub struct Ticket {
    sent: Sent,
    waiter: Arc<Waiter>,
    generation: u32,
}

impl Ticket {
    pub(crate) fn new(sent: Sent, waiter: Arc<Waiter>) -> Ticket {
        Ticket {
            sent,
            waiter,
            generation: crate::disk::fork_generation(),
        }
    }

    /// What the ticket waits with.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of the process that sent the message: who would wake it is in
    /// the parent.
    pub fn waiter(&self) -> Result<&Waiter> {
        match self.generation == crate::disk::fork_generation() {
            true => Ok(&self.waiter),
            false => Err(Error::Forked),
        }
    }

    /// Where the message is; known from the start.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.waiter.is_done()
    }

    /// Waits until the message is durable; `None` where that takes longer than `timeout`.
    ///
    /// # Errors
    ///
    /// Why the flush failed, shared by all its tickets: the message is in the log, its durability
    /// unknown. [`Error::Forked`] in a child of the process that sent it.
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
