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
mod options;
mod overview;
mod owners;
mod patience;
mod peers;
mod pending;
mod polling;
mod progress;
mod retry;
mod saving;
mod seen;
mod service;
mod settling;
mod sharing;
mod start;
mod taking;
mod timer;
mod window;

pub use hold::Waiting;
pub use lane::{Delivery, Order, Receipt};
pub use member::{Assigned, Consumer};
pub use options::ConsumerOptions;
pub use overview::GroupQueue;
pub use polling::Polled;
pub use progress::{ProgressRow, record};
pub use retry::ATTEMPTS_MAX;
pub use start::Start;

use crate::clock::Moment;
use crate::engine::directory::page::StatePage;
use crate::error::{At, Error, Op, Result};
use crate::handle::Handle;
use crate::interrupt;
use crate::machine::Drive;
use crate::record::names::{SCHEDULE_TOPIC, TIMER_TOPIC};
use crate::region::Access;
use crate::sync::Mutex;
use crate::table::TablePlace;
use crate::table::subscriptions::{self, Subscription};
use crate::warning::Warning;
use delay::Delay;
use group::Group;
use loan::Loan;
use occupation::Occupation;
use peers::{Peers, Watch};
use progress::{Known, Progress};
use service::{Due, Service};
use start::check_named;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use timer::Timer;

/// Time between two writes of progress in ms, as in RocketMQ.
const SAVE_EACH_MS: i64 = 5_000;
/// Time between two checks whether a delayed message is readable, in ms.
const READABLE_EACH_MS: i64 = 10;
/// Keeps the consumers of a store: the store has it, and each of its consumers. The last one to
/// release it closes them, and waits until no thread uses them any more.
pub struct Anchor(Arc<Consumers>);

/// The groups of a store, and the delivery of its delayed messages.
pub struct Consumers {
    /// How threads that do not keep the store open use it.
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
    /// When progress is saved next, by the steady clock.
    save_at: AtomicI64,
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
        });
        // An error below stops what has been started.
        let anchor = Anchor(Arc::clone(&consumers));
        let handle = &consumers.handle;
        if let Some(joint) = handle.joint() {
            let loan = Arc::clone(&consumers.loan);
            joint.on_lead(Box::new(move || {
                // If the thread cannot be started, the next process that leads serves.
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

    /// A consumer of `topics` in `group`. Missing topics are created with the default number of
    /// queues.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::InvalidTopic`]; [`Error::ReadOnly`] if the store is not
    /// open for writing; [`Error::Corrupt`] if the table of offsets cannot be read; errors of
    /// reading.
    pub fn consumer(
        self: &Arc<Anchor>,
        topics: &[&str],
        group: &str,
        options: ConsumerOptions,
    ) -> Result<Consumer> {
        let engine = self.handle.writer()?;
        group::check_name(engine, group)?;
        options.check()?;
        if topics.is_empty() {
            return Err(Error::must("topics", "[]", "name at least one topic"));
        }
        let mut distinct = BTreeSet::new();
        let topics = topics.iter().copied();
        let topics: Vec<&str> = topics.filter(|topic| distinct.insert(*topic)).collect();
        for topic in &topics {
            engine.meanings().check_topic(topic)?;
            engine.topic_for_append(topic)?;
        }
        if let Start::ByTopic(bounds) = &options.start {
            check_named("start", bounds, &topics, engine)?;
        }
        let subscription = self.subscription(group)?;
        let occupation = self.occupation()?;
        if occupation.is_some() {
            // Other processes write the table of offsets too.
            self.progress()?.reload(self.log()?)?;
        }
        let group = {
            let mut groups = self.groups.lock();
            let found = groups.entry(group.into());
            let retry = engine.meanings().retry_topic(group);
            let new = || Arc::new(Group::new(group, &retry, occupation.clone()));
            Arc::clone(found.or_insert_with(new))
        };
        let consumer = Consumer::join(self, group, &topics, options, subscription)?;
        match &occupation {
            // The process that leads saves progress from now on.
            Some(occupation) => {
                let started = self.peers.start(&self.loan, occupation);
                started.at(Op::StartThreads, &self.handle.path)?;
                self.service_wake();
            }
            None => {
                // The group's beginning is saved with its progress, so that it is chosen only once.
                let at = self.steady() + SAVE_EACH_MS;
                self.save_at.fetch_min(at, Ordering::AcqRel);
                self.start()?;
            }
        }
        Ok(consumer)
    }
}

impl Consumers {
    /// The consumers of all processes; `None` if this process has the store for itself.
    fn occupation(&self) -> Result<Option<Arc<Occupation>>> {
        if let Some(found) = self.occupation.get() {
            return Ok(Some(Arc::clone(found)));
        }
        let Some(joint) = self.handle.joint() else {
            return Ok(None);
        };
        let new = Arc::new(Occupation::new(joint.table()?));
        new.patiently(|| {
            let _beginning = self.beginning.lock();
            if self.occupation.get().is_none() {
                // A process that is gone may have had the slot of this one.
                new.evict(new.table().own_slot(), self.now())?;
                new.table().show_beat();
                let _ = self.occupation.set(Arc::clone(&new));
            }
            Ok(())
        })?;
        Ok(self.occupation.get().cloned())
    }

    /// [`Consumers::occupation`], if some process has needed it.
    fn found_occupation(&self) -> Result<Option<Arc<Occupation>>> {
        let joint = self.handle.joint();
        match joint.map(|joint| joint.found_table()).transpose()? {
            Some(Some(_)) => self.occupation(),
            _ => Ok(None),
        }
    }

    /// One step of [`Peers`].
    fn step_of_peers(&self, watch: &mut Watch, passed: Duration) -> Result<()> {
        let (Some(occupation), now) = (self.occupation.get(), self.moment()) else {
            return Ok(());
        };
        let watched = watch.step(occupation, passed, now.wall_ms);
        let removed = occupation.remove_left(now.wall_ms);
        let groups: Vec<Arc<Group>> = self.groups.lock().values().cloned().collect();
        let passed_on = groups.iter().try_for_each(|group| group.pass_on(now));
        // Owners may have changed in any process.
        let changes = occupation.table().changes();
        if self.seen_changes.swap(changes, Ordering::AcqRel) != changes {
            self.stir();
        }
        watched.map(drop).and(removed).and(passed_on)
    }

    fn service_wake(&self) {
        match self.handle.joint() {
            Some(joint) => joint.work().notify(),
            None => self.service.wake(),
        }
    }

    /// The switches of a group that may consume.
    fn subscription(&self, group: &str) -> Result<Subscription> {
        let subscription = match &self.place {
            Some(place) => {
                let path = place.config(subscriptions::FILE_NAME);
                subscriptions::load(&*place.disk, &path, group)?
            }
            None => Subscription::default(),
        };
        if !subscription.consume_enable {
            let place = self.place.as_ref();
            let file = place.map(|place| place.shown(subscriptions::FILE_NAME));
            let reason = format!(
                "the group may not consume: consumeEnable is false in {}",
                file.unwrap_or_default()
            );
            return Err(Error::option("group", format!("{group:?}"), reason));
        }
        Ok(subscription)
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

    /// A number that grows when consumers may get messages that are not new.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Called before the log below `until` is deleted; see [`Hold::let_go`].
    ///
    /// [`Hold::let_go`]: crate::engine::service::hold::Hold::let_go
    pub(crate) fn let_go(&self, until: u64) -> Result<bool> {
        self.timer.carry(&self.handle, until)
    }

    /// Delivers what has become due after the clock was moved.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Forked`]; those of reading and of sending.
    pub fn clock_moved(&self) -> Result<()> {
        if self.handle.writer().is_ok() {
            while self.step(self.now())? == Due::Now {}
        }
        self.wake();
        Ok(())
    }

    fn progress(&self) -> Result<&Progress> {
        if let Some(progress) = self.progress.get() {
            return Ok(progress);
        }
        let loaded = Progress::load(self.place.clone(), self.log()?)?;
        Ok(self.progress.get_or_init(|| loaded))
    }

    /// Delivers what is due at `now` by the wall clock, and saves progress when it is time. Returns
    /// when to call again.
    fn step(&self, now: i64) -> Result<Due> {
        let steady = self.steady();
        if let Some(joint) = self.handle.joint() {
            if !joint.leads() {
                return Ok(Due::Never);
            }
            // Another process may have sent a delayed message, or have begun to consume. The table
            // of topics does not list those of delayed messages.
            let (engine, delayed) = (&*self.handle.engine, [TIMER_TOPIC, SCHEDULE_TOPIC]);
            if delayed
                .iter()
                .any(|topic| engine.topics().get(topic).is_none())
            {
                engine.refresh(None)?;
            }
            self.delayed.fetch_max(joint.published(), Ordering::AcqRel);
            if self.found_occupation()?.is_some() {
                // The first save is at once: the previous leader may have died before it saved.
                if self.save_at.load(Ordering::Acquire) == i64::MAX {
                    self.save_at.store(steady, Ordering::Release);
                }
            }
        }
        let delayed = self.delay.step(&self.handle, now);
        let timed = self.timer.step(&self.handle, now);
        let save_at = self.save_at.load(Ordering::Acquire);
        if steady >= save_at {
            self.save_at.store(steady + SAVE_EACH_MS, Ordering::Release);
            self.save_progress()?;
            self.save_delivery()?;
        }
        if self.delay.is_unsaved() || self.timer.is_unsaved() {
            self.save_at
                .fetch_min(steady + SAVE_EACH_MS, Ordering::AcqRel);
        }
        let saves = match self.save_at.load(Ordering::Acquire) {
            i64::MAX => Due::Never,
            at => Due::At(now + (at - steady)),
        };
        // In a synchronous store a message cannot be read before it is durable.
        let sent = self.delayed.load(Ordering::Acquire);
        let reads = match self.handle.engine.readable_position() < sent {
            true => Due::At(now + READABLE_EACH_MS),
            false => Due::Never,
        };
        Ok(delayed?.min(timed?).min(saves).min(reads))
    }

    /// The log with which progress is saved.
    fn log(&self) -> Result<Option<Known>> {
        let Some(place) = self.place.as_ref().filter(|place| !place.is_flat()) else {
            return Ok(None);
        };
        let page = StatePage::open(&*place.disk, place.root(), Access::Read)?;
        Ok(page.map(|page| Known {
            epochs: page.epochs(),
            durable: self.handle.engine.durable_position(),
        }))
    }

    /// Ends the service and saves all progress. The engine stays open.
    ///
    /// # Errors
    ///
    /// Errors of saving.
    pub fn close(&self) -> Result<()> {
        self.service.end();
        if let Some(occupation) = self.occupation.get() {
            self.peers.end(occupation.table());
            let left = occupation.end(self.now());
            let flushed = self.handle.engine.flush(&mut || !interrupt::is_raised());
            // To save progress is to wait for the disk, with the lock of the table.
            if interrupt::is_raised() {
                return left;
            }
            let saved = flushed.and_then(|_| self.save_progress());
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
                .and_then(|_| self.save_progress()),
            false => Ok(()),
        };
        saved.and(self.save_delivery())
    }

    /// Saves how far the delivery of delayed messages is, if this process delivers them.
    fn save_delivery(&self) -> Result<()> {
        let delayed = self.delay.save(&self.handle, self.now());
        delayed.and(self.timer.save(&self.handle))
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
