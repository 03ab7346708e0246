//! Tickets: messages in the log whose durability is awaited later.

use crate::engine::{Appended, Lingering, Place, Waiter};
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

/// Where the message of a ticket is.
#[derive(Clone, Debug)]
pub enum Spot {
    /// It is in the log.
    Known(Sent),
    /// It lingers, or did.
    Lingering(Lingering),
}

/// A ticket for one message.
pub type Ticket = TicketOf<Spot>;

/// A ticket for a batch.
pub type BatchTicket = TicketOf<Appended>;

/// Tells when a message, or a batch, is durable. Clones wait for the same one.
#[derive(Clone, Debug)]
pub struct TicketOf<T> {
    sent: T,
    waiter: Arc<Waiter>,
    generation: u32,
}

impl<T> TicketOf<T> {
    pub(crate) fn new(sent: T, waiter: Arc<Waiter>) -> TicketOf<T> {
        TicketOf {
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

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.waiter.is_done()
    }
}

impl BatchTicket {
    /// Where the batch is; known at once.
    pub fn sent(&self) -> &Appended {
        &self.sent
    }
}

impl Ticket {
    /// Where the message is; `None` while it lingers, and if it was not appended.
    pub fn sent(&self) -> Option<Sent> {
        match &self.sent {
            Spot::Known(sent) => Some(*sent),
            Spot::Lingering(lingering) => lingering.appended().map(|(place, appended)| Sent {
                place,
                end: appended.end,
                store_timestamp: appended.store_timestamp,
                durable: false,
            }),
        }
    }

    /// Waits until the message is durable. Returns `None` after `timeout`.
    ///
    /// # Errors
    ///
    /// The error of the flush, shared by all its tickets: the message is in the log, but may not be
    /// durable. For a message that lingered, also the error of its append: it is not in the log.
    /// [`Error::Forked`] in a child of the process that sent it.
    pub fn wait(&self, timeout: Duration) -> Option<std::result::Result<Sent, Arc<Error>>> {
        let waiter = match self.waiter() {
            Ok(waiter) => waiter,
            Err(error) => return Some(Err(Arc::new(error))),
        };
        let outcome = waiter.wait(timeout)?;
        Some(outcome.map(|()| match self.sent() {
            Some(sent) => Sent {
                durable: true,
                ..sent
            },
            None => unreachable!("a message that is durable was appended"),
        }))
    }
}
