//! Tickets: messages that are in the log, whose durability is awaited later.
//!
//! ```text
//!   send_nowait --> [channel] --> worker: take all that wait, flush once, complete them all
//! ```
//!
//! Invariant: a ticket is completed with success only by a flush that began after its message was
//! in the log. The worker's thread starts with the first ticket and ends with the [`Tickets`].

use crate::engine::Durability;
use crate::error::{Error, Result};
use crate::producer::{Producer, Sent};
use crate::record::Draft;
use crate::store::Store;
use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A message in the log that becomes durable later. Clones wait for the same message.
#[derive(Clone)]
pub struct Ticket {
    sent: Sent,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    outcome: Mutex<Option<Result<(), Arc<Error>>>>,
    completed: Condvar,
}

impl Ticket {
    /// Where the message is; known from the start.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.state.outcome.lock().is_some()
    }

    /// Waits until the message is durable; `None` where that takes longer than `timeout`.
    ///
    /// # Errors
    ///
    /// Why the flush failed, shared by all its tickets: the message is in the log, its durability
    /// unknown.
    pub fn wait(&self, timeout: Duration) -> Option<Result<Sent, Arc<Error>>> {
        let mut outcome = self.state.outcome.lock();
        if outcome.is_none() {
            self.state
                .completed
                .wait_while_for(&mut outcome, |outcome| outcome.is_none(), timeout);
        }
        let durable = Sent {
            durable: true,
            ..self.sent
        };
        outcome.clone().map(|outcome| outcome.map(|()| durable))
    }
}

impl State {
    fn complete(&self, outcome: Result<(), Arc<Error>>) {
        *self.outcome.lock() = Some(outcome);
        self.completed.notify_all();
    }
}

/// The tickets of a store, and the thread that completes them.
pub struct Tickets {
    store: Store,
    generation: u32,
    worker: Mutex<Worker>,
}

enum Worker {
    NotStarted,
    Running(Sender<Arc<State>>, JoinHandle<()>),
    Finished,
}

impl Tickets {
    /// Tickets for messages sent to `store`.
    pub fn new(store: &Store) -> Tickets {
        Tickets {
            store: store.clone(),
            generation: crate::disk::fork_generation(),
            worker: Mutex::new(Worker::NotStarted),
        }
    }

    /// Sends a message and returns at once with a ticket for its durability.
    ///
    /// # Errors
    ///
    /// As [`Producer::send`]; no ticket is given out for a message that is not in the log.
    pub fn send(&self, producer: &Producer, draft: &Draft<'_>, delay_level: u8) -> Result<Ticket> {
        let sent = producer.send(draft, delay_level, Durability::Written)?;
        let state = Arc::new(State::default());
        self.submit(Arc::clone(&state));
        Ok(Ticket { sent, state })
    }

    fn submit(&self, state: Arc<State>) {
        let mut worker = self.worker.lock();
        if matches!(*worker, Worker::NotStarted) {
            *worker = start(self.store.clone());
        }
        match &*worker {
            // The worker ends after the sender is gone, so it takes every state that is sent.
            Worker::Running(sender, _) if sender.send(Arc::clone(&state)).is_ok() => {}
            // Without a worker the one who asks does the work.
            _ => {
                drop(worker);
                complete(&self.store, &[state]);
            }
        }
    }

    /// Completes all tickets and ends the thread. A second call does nothing.
    pub fn finish(&self) {
        let worker = std::mem::replace(&mut *self.worker.lock(), Worker::Finished);
        let Worker::Running(sender, thread) = worker else {
            return;
        };
        drop(sender);
        // In the child of a fork the thread does not exist, and waiting for it would never end.
        if self.generation == crate::disk::fork_generation() {
            let _ = thread.join();
        }
    }
}

impl Drop for Tickets {
    fn drop(&mut self) {
        self.finish();
    }
}

fn start(store: Store) -> Worker {
    let (sender, receiver) = crossbeam_channel::unbounded();
    let thread = std::thread::Builder::new().name("forebay-tickets".to_owned());
    match thread.spawn(move || work(&store, &receiver)) {
        Ok(thread) => Worker::Running(sender, thread),
        Err(_) => Worker::NotStarted,
    }
}

fn work(store: &Store, receiver: &Receiver<Arc<State>>) {
    while let Ok(first) = receiver.recv() {
        let mut waiting = vec![first];
        waiting.extend(receiver.try_iter());
        complete(store, &waiting);
    }
}

fn complete(store: &Store, waiting: &[Arc<State>]) {
    let outcome = store.flush().map(|_| ()).map_err(|error| {
        Arc::new(match error {
            Error::Failed { reason, .. } => Error::Failed {
                reason,
                appended: true,
            },
            other => other,
        })
    });
    for state in waiting {
        state.complete(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn every_ticket_is_completed_even_while_the_tickets_end() {
        let store = Store::open(":memory:", Options::default()).unwrap();
        let producer = store.producer("t", Some(0)).unwrap();
        let tickets = Tickets::new(&store);
        let draft = Draft {
            body: b"x",
            ..Draft::default()
        };
        let mut given = Vec::new();
        for _ in 0..1000 {
            given.push(tickets.send(&producer, &draft, 0).unwrap());
        }
        tickets.finish();
        given.push(tickets.send(&producer, &draft, 0).unwrap());
        for (offset, ticket) in given.iter().enumerate() {
            assert!(ticket.is_done());
            let sent = ticket.wait(Duration::ZERO).unwrap().unwrap();
            assert!(sent.durable);
            assert_eq!(sent.place.offset, offset as u64);
        }
    }
}
