//! Groups of consumers that share the queues of topics, as in RocketMQ.
//!
//! ```text
//!   Consumer --> Group: who owns which queue          sharing
//!                  | Lane: one queue of the group
//!                  |   Window: what is unsettled
//!   ack    --> Window --> Progress: config/consumerOffset.json
//!   nack   --> retry  --> SCHEDULE_TOPIC_XXXX --> Delay --> %RETRY%group --> Consumer
//!   reject --> retry  --> %DLQ%group
//! ```
//!
//! Each message is delivered until it is settled. The committed offset of a queue is the smallest
//! one that is not settled. After a crash, messages from there on are delivered again, including
//! those settled past it. [`Service`](service) delivers delayed messages, by their level
//! ([`Delay`](delay)) or their time ([`Timer`](timer)), and saves progress, which is never ahead of
//! the durable log.
//!
//! In a shared store, a group has consumers in several processes. [`Occupation`](occupation) is the
//! table that says which of them owns a queue, and [`Peers`](peers) the thread that watches the
//! other processes. The service runs in the process that leads. Producers that own queues are in
//! the same table ([`owners`]).

mod aside;
mod claim;
mod delay;
mod deliver;
#[cfg(test)]
mod evenly;
mod group;
mod group_index;
mod hold;
mod lane;
mod lane_state;
mod loan;
mod member;
mod membership;
mod occupation;
mod opening;
mod options;
mod order;
mod overview;
mod owners;
mod patience;
mod peers;
mod pending;
mod polling;
mod progress;
mod retry;
mod returned;
mod saving;
mod seen;
mod service;
mod settling;
mod sharing;
mod start;
mod stepping;
mod taking;
mod timed;
mod timer;
mod wanted;
mod window;

pub use hold::Waiting;
pub use lane::{Delivery, Receipt};
pub use member::{Assigned, Consumer};
pub use options::ConsumerOptions;
pub use order::Order;
pub use overview::GroupQueue;
pub use polling::Polled;
pub use progress::{ProgressRow, record};
pub use retry::ATTEMPTS_MAX;
pub use start::Start;

use crate::clock::Moment;
use crate::error::{At, Op, Result};
use crate::handle::Handle;
use crate::interrupt;
use crate::machine::Drive;
use crate::sync::Mutex;
use crate::table::TablePlace;
use crate::warning::Warning;
use delay::Delay;
use group::Group;
use loan::Loan;
use occupation::Occupation;
use peers::Peers;
use progress::{CLOSE_TIMEOUT, Progress};
use service::Service;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stepping::Blocked;
use timer::Timer;

/// Time between two writes of progress in ms, as in RocketMQ.
const SAVE_EACH_MS: i64 = 5_000;

/// Owns the consumers of a store, for the store and each of its consumers. When the last of these
/// drops it, the consumers are closed, after the last thread has stopped using them.
pub struct Anchor(Arc<Consumers>);

/// The groups of a store, and the delivery of its delayed messages.
pub struct Consumers {
    /// Lends this to threads that do not keep the store open.
    loan: Arc<Loan<Consumers>>,
    handle: Arc<Handle>,
    drive: Drive,
    place: Option<TablePlace>,
    progress: OnceLock<Progress>,
    groups: Mutex<BTreeMap<Box<str>, Arc<Group>>>,
    members: AtomicU64,
    /// Grows with each change after which a waiting consumer may get messages, or must end.
    changes: AtomicU64,
    delay: Delay,
    timer: Timer,
    /// End of the last delayed message that was sent. It may not be readable yet.
    delayed: AtomicU64,
    /// End of the last successor of a message that was not handled.
    sent_back: AtomicU64,
    service: Service,
    /// The consumers of all processes, if the store is shared.
    occupation: OnceLock<Arc<Occupation>>,
    /// Held while `occupation` is set.
    beginning: Mutex<()>,
    peers: Peers,
    /// The table's count of changes at the last step of the peers.
    seen_changes: AtomicU32,
    /// When progress is saved next, by the steady clock in ms.
    save_at: AtomicI64,
    blocked: Blocked,
}

impl Anchor {
    /// The groups of the store of `handle`. `place` is where its tables are, if it has files.
    /// `drive` says who runs the service.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`Error::Io`] if no thread can be started.
    pub fn new(
        handle: Arc<Handle>,
        place: Option<TablePlace>,
        drive: Drive,
    ) -> Result<Arc<Anchor>> {
        let delay = Delay::new(place.clone());
        let timer = Timer::new(place.clone());
        let consumers = Arc::new_cyclic(|weak| Consumers {
            loan: Arc::new(Loan::new(weak.clone())),
            handle,
            drive,
            place,
            progress: OnceLock::new(),
            groups: Mutex::default(),
            members: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            delay,
            timer,
            delayed: AtomicU64::new(0),
            sent_back: AtomicU64::new(0),
            service: Service::default(),
            occupation: OnceLock::new(),
            beginning: Mutex::default(),
            peers: Peers::default(),
            seen_changes: AtomicU32::new(0),
            save_at: AtomicI64::new(i64::MAX),
            blocked: Blocked::default(),
        });
        // An error below drops the anchor, which stops the threads.
        let anchor = Anchor(Arc::clone(&consumers));
        let handle = &consumers.handle;
        if let Some(joint) = handle.joint() {
            let loan = Arc::clone(&consumers.loan);
            joint.on_lead(Box::new(move || {
                // If the thread cannot be started, the next process that leads runs the service.
                let _ = loan.borrow(|it| it.start());
            }));
            if joint.leads() {
                consumers.start()?;
            }
            let work = joint.work();
            handle.on_delayed(Box::new(move |_| work.notify()));
        } else if handle.keeps_consumers() {
            let loan = Arc::clone(&consumers.loan);
            handle.on_delayed(Box::new(move |end| {
                let _ = loan.borrow(|it| {
                    it.delayed.fetch_max(end, Ordering::AcqRel);
                    // If the thread cannot be started, the next opening delivers the message.
                    it.start()
                });
            }));
            let engine = &*handle.engine;
            if delay::has_messages(engine)? || timer::has_messages(engine)? {
                consumers.start()?;
            }
        }
        Ok(Arc::new(anchor))
    }
}

impl Consumers {
    fn service_wake(&self) {
        match self.handle.joint() {
            Some(joint) => joint.work().notify(),
            None => self.service.wake(),
        }
    }

    fn start(&self) -> Result<()> {
        if self.drive == Drive::Steps {
            return Ok(());
        }
        let started = self.service.start(self);
        started.at(Op::StartThreads, &self.handle.path)
    }

    fn handle(&self) -> &Handle {
        &self.handle
    }

    fn now(&self) -> i64 {
        self.handle.clock.now_ms()
    }

    /// The time by the steady clock, in ms.
    fn steady(&self) -> i64 {
        self.handle.clock.steady_ms()
    }

    /// The time by both clocks.
    fn moment(&self) -> Moment {
        self.handle.clock.moment()
    }

    fn warn(&self, warning: Warning) {
        self.handle.warnings().add(warning);
    }

    fn next_member(&self) -> u64 {
        self.members.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the service check for work and consumers for messages.
    fn wake(&self) {
        self.service_wake();
        self.stir();
    }

    /// Makes waiting consumers check for messages.
    fn stir(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.handle.engine.wake();
    }

    /// A number that grows when consumers may get messages without a send.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Called before the log below `until` is deleted; see [`Hold::let_go`].
    ///
    /// [`Hold::let_go`]: crate::engine::service::hold::Hold::let_go
    pub(crate) fn let_go(&self, until: u64) -> Result<bool> {
        self.timer.carry(&self.handle, until)
    }

    fn progress(&self) -> Result<&Progress> {
        if let Some(progress) = self.progress.get() {
            return Ok(progress);
        }
        let loaded = Progress::load(self.place.clone(), self.log()?)?;
        Ok(self.progress.get_or_init(|| loaded))
    }

    /// Ends the service and saves all progress. The engine stays open.
    ///
    /// # Errors
    ///
    /// Errors of saving, such as [`crate::Error::Busy`] if another process keeps the table of
    /// progress locked: then what was settled since the last save is delivered again.
    pub fn close(&self) -> Result<()> {
        self.service.end();
        if let Some(occupation) = self.occupation.get() {
            self.peers.end(occupation.table());
            let left = occupation.end(self.now());
            let flushed = self.handle.engine.flush(&mut || !interrupt::is_raised());
            // Saving progress waits for the disk while the table is locked.
            if interrupt::is_raised() {
                return left;
            }
            let saved = flushed.and_then(|_| self.save_progress(CLOSE_TIMEOUT));
            return left.and(saved).and(self.save_delivery());
        }
        if self.handle.joint().is_some() {
            return self.save_delivery();
        }
        let groups: Vec<Arc<Group>> = self.groups.lock().values().cloned().collect();
        let is_used = groups.iter().any(|group| !group.lanes().is_empty());
        let saved = match is_used {
            true => self
                .handle
                .engine
                .flush(&mut || true)
                .and_then(|_| self.save_progress(CLOSE_TIMEOUT)),
            false => Ok(()),
        };
        saved.and(self.save_delivery())
    }
}

impl Deref for Anchor {
    type Target = Consumers;

    fn deref(&self) -> &Consumers {
        &self.0
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        // A child process has none of the threads.
        if self.handle.keeps_consumers() {
            self.loan.end();
            // To learn of errors, callers close the store.
            let _ = self.close();
        }
    }
}
