//! One consumer: takes messages of the queues that it owns, and settles them.

use super::group::{ConsumerOptions, Ground, Group};
use super::lane::{Delivery, Lane, Order, Receipt, Taking};
use super::retry::{Fate, check_level, send_back};
use super::start::{Start, offset_of};
use super::{Consumers, retry};
use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a consumer that is called looks for queues that were added.
const REFRESH_MS: i64 = 1_000;
/// Pause before a message is tried again in place; it doubles with each attempt.
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 30_000;

/// A member of a group. Any thread may use it; closing it, or dropping it, gives back what it has
/// not settled.
pub struct Consumer {
    shared: Arc<Consumers>,
    group: Arc<Group>,
    topics: Vec<Box<str>>,
    retry: Box<str>,
    number: u64,
    options: ConsumerOptions,
    turn: Mutex<Turn>,
    closed: AtomicBool,
}

/// The queues of a consumer, and whose turn it is.
#[derive(Default)]
struct Turn {
    lanes: Arc<[Arc<Lane>]>,
    generation: Option<u64>,
    next: usize,
    refreshed: i64,
    /// Number of queues of the topics when they were looked for.
    queues: u64,
}

/// A queue as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The topic.
    pub topic: Box<str>,
    /// The queue.
    pub queue: u32,
    /// The smallest offset that is not settled.
    pub committed: u64,
    /// Messages after it, delivered or not.
    pub lag: u64,
}

impl Consumer {
    pub(super) fn join(
        shared: &Arc<Consumers>,
        group: Arc<Group>,
        topics: &[&str],
        options: ConsumerOptions,
    ) -> Result<Consumer> {
        let consumer = Consumer {
            shared: Arc::clone(shared),
            number: shared.next_member(),
            topics: topics.iter().map(|topic| (*topic).into()).collect(),
            retry: retry::retry_topic(&group.name).into(),
            group,
            options,
            turn: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        let start = &consumer.options.start;
        let group = &consumer.group;
        consumer.with_ground(|it| group.join(it, consumer.number, &consumer.topics, start))?;
        shared.stir();
        Ok(consumer)
    }

    fn with_ground<T>(&self, run: impl FnOnce(Ground<'_>) -> Result<T>) -> Result<T> {
        let engine = self.shared.handle().writer()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        run(Ground {
            engine,
            progress: self.shared.progress()?,
            now: self.shared.now(),
        })
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.group.name
    }

    /// The topics that were asked for.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(|topic| &**topic)
    }

    /// How it was made.
    pub fn options(&self) -> &ConsumerOptions {
        &self.options
    }

    /// Up to `max` messages, in each queue in the order of offsets; waits for the first one up to
    /// `timeout`. They are unsettled, and are delivered again after the visibility timeout.
    ///
    /// # Errors
    ///
    /// [`Error::LogShrunk`] where a queue ends before what the group has settled; those of reading;
    /// [`Error::Closed`].
    pub fn poll(&self, max: usize, timeout: Duration) -> Result<Vec<Delivery>> {
        self.poll_until(max, timeout, &|| false)
    }

    /// As [`Consumer::poll`], but returns without messages also when `done` holds. Who makes it
    /// hold calls [`Consumer::wake`] afterwards.
    ///
    /// # Errors
    ///
    /// As [`Consumer::poll`].
    pub fn poll_until(
        &self,
        max: usize,
        timeout: Duration,
        done: &dyn Fn() -> bool,
    ) -> Result<Vec<Delivery>> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let engine = self.shared.handle().writer()?;
            // Before anything is looked for, so that what comes meanwhile is noticed.
            let (seen, changes) = (engine.readable_position(), self.shared.changes());
            let mut taken = Vec::new();
            let again = self.take(max, &mut taken)?;
            if !taken.is_empty() || max == 0 {
                return Ok(taken);
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() || done() {
                return Ok(taken);
            }
            if !again {
                let has_changed = || done() || self.shared.changes() != changes;
                engine.wait_until(seen, left.min(self.until_due()), &has_changed);
            }
        }
    }

    /// Has polls that wait check again whether they are done.
    pub fn wake(&self) {
        self.shared.stir();
    }

    /// Takes messages off the lanes, each in its turn. Returns whether some lane has more at once.
    fn take(&self, max: usize, taken: &mut Vec<Delivery>) -> Result<bool> {
        let now = self.shared.now();
        let visibility = &self.options.visibility_timeout;
        let visibility = i64::try_from(visibility.as_millis()).unwrap_or(i64::MAX);
        let (lanes, first) = self.lanes(now)?;
        let mut again = false;
        self.with_ground(|ground| {
            for at in 0..lanes.len() {
                let Some(lane) = lanes.get((first + at) % lanes.len()) else {
                    continue;
                };
                let of_retry = lane.topic.name == self.retry;
                let all = crate::engine::Filter::default();
                let by = Taking {
                    engine: ground.engine,
                    member: self.number,
                    // What is to be tried again has passed the filter.
                    filter: if of_retry { &all } else { &self.options.filter },
                    order: self.options.order,
                    now,
                    deadline: now.saturating_add(visibility),
                    max_unsettled: self.options.max_unsettled,
                };
                match lane.take(&by, max - taken.len(), taken) {
                    Ok(more) => again |= more,
                    // It is met again by the next call.
                    Err(_) if !taken.is_empty() => break,
                    Err(error) => return Err(error),
                }
                if taken.len() >= max {
                    break;
                }
            }
            Ok(again)
        })
    }

    /// The lanes, and with which this call begins.
    fn lanes(&self, now: i64) -> Result<(Arc<[Arc<Lane>]>, usize)> {
        let mut turn = self.turn.lock();
        let queues = self.with_ground(|ground| Ok(self.count_queues(ground.engine)))?;
        let is_time = now.abs_diff(turn.refreshed) >= REFRESH_MS.unsigned_abs();
        if is_time || queues != turn.queues {
            if self.with_ground(|ground| self.group.refresh(ground))? {
                self.shared.stir();
            }
            (turn.refreshed, turn.queues) = (now, queues);
        }
        let generation = self.group.generation();
        if turn.generation != Some(generation) {
            turn.lanes = self.group.lanes_of(self.number).into();
            turn.generation = Some(generation);
        }
        turn.next = turn.next.wrapping_add(1);
        Ok((Arc::clone(&turn.lanes), turn.next % turn.lanes.len().max(1)))
    }

    /// A number that grows when a topic of this consumer is created or gets more queues.
    fn count_queues(&self, engine: &dyn Engine) -> u64 {
        let names = self.topics.iter().chain([&self.retry]);
        let topics = names.filter_map(|name| engine.topics().get(name));
        topics
            .map(|topic| 1 + u64::from(topic.write_queues()))
            .sum()
    }

    /// How long no message falls due.
    fn until_due(&self) -> Duration {
        let now = self.shared.now();
        let lanes = Arc::clone(&self.turn.lock().lanes);
        let order = self.options.order;
        let due = lanes
            .iter()
            .filter_map(|lane| lane.next_due(self.number, order, now));
        due.min().map_or(Duration::MAX, |due| {
            let ms = due.saturating_sub(now).max(1);
            Duration::from_millis(ms.unsigned_abs())
        })
    }

    /// Settles messages: they are handled. All that can be are settled; the first one that cannot
    /// is the error.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadySettled`]; [`Error::OwnershipLost`] where the message was delivered again
    /// since, or its queue has another owner.
    pub fn ack<'a>(&self, receipts: impl IntoIterator<Item = &'a Receipt>) -> Result<()> {
        self.check_open()?;
        let now = self.shared.now();
        let mut all = Ok(());
        for receipt in receipts {
            all = all.and(receipt.lane().settle(self.number, receipt, now));
        }
        // It may have made room, or ended the turn of an owner.
        self.shared.stir();
        all
    }

    /// Has a message delivered again later. With [`Order::None`] it goes through the group's retry
    /// topic, and waits there for `level`, or for one that grows with the attempts; with
    /// [`Order::Queue`] it is tried again in place, before anything after it in its queue. After
    /// too many attempts it becomes a dead letter.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a level that there is not; those of [`Consumer::ack`] and of
    /// sending: then the message is unsettled as before.
    pub fn nack(&self, delivery: &Delivery, level: Option<u8>) -> Result<()> {
        check_level(level)?;
        self.check_open()?;
        let receipt = &delivery.receipt;
        let attempts = receipt.lane().check(self.number, receipt)?;
        if self.options.order == Order::None {
            return self.send_back(delivery, Fate::Retry(level));
        }
        if attempts >= self.options.retry_in_place {
            return self.send_back(delivery, Fate::Dead(None));
        }
        let doubled = FIRST_PAUSE_MS << (attempts.saturating_sub(1)).min(16);
        let due = self.shared.now() + doubled.min(LONGEST_PAUSE_MS);
        receipt.lane().recall(self.number, receipt, due)?;
        self.shared.stir();
        Ok(())
    }

    /// Makes a message a dead letter of the group.
    ///
    /// # Errors
    ///
    /// As [`Consumer::nack`].
    pub fn reject(&self, delivery: &Delivery, reason: Option<&str>) -> Result<()> {
        self.check_open()?;
        delivery
            .receipt
            .lane()
            .check(self.number, &delivery.receipt)?;
        self.send_back(delivery, Fate::Dead(reason))
    }

    /// Appends what takes the place of a message, then settles it.
    fn send_back(&self, delivery: &Delivery, fate: Fate<'_>) -> Result<()> {
        send_back(
            self.shared.handle(),
            &self.group.name,
            &delivery.message,
            fate,
        )?;
        let (receipt, now) = (&delivery.receipt, self.shared.now());
        let settled = receipt.lane().settle(self.number, receipt, now);
        self.shared.wake();
        settled
    }

    /// Keeps a message for `longer` from now on before it is delivered again.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`].
    pub fn extend(&self, receipt: &Receipt, longer: Duration) -> Result<()> {
        self.postpone(receipt, longer)?;
        // It may come back earlier than before.
        self.shared.stir();
        Ok(())
    }

    fn postpone(&self, receipt: &Receipt, longer: Duration) -> Result<()> {
        self.check_open()?;
        let ms = i64::try_from(longer.as_millis()).unwrap_or(i64::MAX);
        let until = self.shared.now().saturating_add(ms);
        receipt.lane().extend(self.number, receipt, until)
    }

    /// Gives back messages that nobody has seen: they are due at once.
    pub fn give_back<'a>(&self, receipts: impl IntoIterator<Item = &'a Receipt>) {
        if self.is_forked() {
            return;
        }
        let now = self.shared.now();
        for receipt in receipts {
            receipt.lane().give_back(self.number, receipt, now);
        }
        self.shared.stir();
    }

    /// Stores the progress of all groups, after all that was settled is durable.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Store::flush`]; [`Error::Corrupt`] where the table of offsets cannot be
    /// read, [`Error::Io`].
    pub fn commit(&self) -> Result<()> {
        self.check_open()?;
        self.shared.handle().writer()?.flush()?;
        self.shared.save_progress()
    }

    /// Visibility timeout from now on for a message that was taken a while ago.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`].
    pub fn renew(&self, receipt: &Receipt) -> Result<()> {
        self.postpone(receipt, self.options.visibility_timeout)
    }

    fn is_forked(&self) -> bool {
        matches!(self.shared.handle().engine(), Err(Error::Forked))
    }

    /// The queues that the consumer owns, or gets once their owner has settled what it holds.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn assignment(&self) -> Result<Vec<Assigned>> {
        let (lanes, _) = self.lanes(self.shared.now())?;
        let engine = self.shared.handle().engine()?;
        let assigned = lanes.iter().map(|lane| {
            let committed = lane.progress().committed;
            let bounds = engine.bounds(&lane.topic, lane.queue)?.unwrap_or(0..0);
            Ok(Assigned {
                topic: lane.topic.name.clone(),
                queue: lane.queue,
                committed,
                lag: bounds.end.saturating_sub(committed.max(bounds.start)),
            })
        });
        assigned.collect()
    }

    /// Goes on at `to` in the queues that the consumer owns: in all of its topics, or in those that
    /// are named. What it holds of them counts no more.
    ///
    /// # Errors
    ///
    /// [`Error::OwnershipLost`] for an offset of a queue that another consumer owns,
    /// [`Error::OffsetOutOfRange`].
    pub fn seek(&self, to: &Start) -> Result<()> {
        let (lanes, _) = self.lanes(self.shared.now())?;
        let engine = self.shared.handle().engine()?;
        if let Start::ByTopic(bounds) = to {
            check_owned(&lanes, bounds)?;
        }
        let mut moves = Vec::new();
        for lane in lanes
            .iter()
            .filter(|lane| self.topics.contains(&lane.topic.name))
        {
            let name = &*lane.topic.name;
            let bound = match to {
                Start::Everywhere(bound) => Some(bound),
                Start::ByTopic(bounds) => bounds.get(name),
            };
            let is_named = match bound {
                Some(Bound::Offsets(offsets)) => offsets.contains_key(&lane.queue),
                other => other.is_some(),
            };
            if let Some(bound) = bound.filter(|_| is_named) {
                moves.push((lane, offset_of(bound, engine, &lane.topic, lane.queue)?));
            }
        }
        for (lane, offset) in moves {
            lane.seek(offset);
        }
        self.shared.stir();
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        self.with_ground(|_| Ok(()))
    }

    /// Leaves the group: what is unsettled is delivered to others at once. A second call does
    /// nothing.
    ///
    /// # Errors
    ///
    /// Those of storing the progress; the consumer is closed all the same. [`Error::Forked`] in a
    /// child process, where nothing is touched: a thread of the parent may have held a lock.
    pub fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.group.leave(self.number, self.shared.now());
        self.shared.stir();
        match self.shared.handle().engine() {
            Ok(_) => self.shared.save_progress(),
            // The store has stored it when it was closed.
            Err(_) => Ok(()),
        }
    }
}

/// Checks that each queue for which an offset is given is among the lanes.
fn check_owned(lanes: &[Arc<Lane>], bounds: &BTreeMap<String, Bound>) -> Result<()> {
    for (topic, bound) in bounds {
        let Bound::Offsets(offsets) = bound else {
            continue;
        };
        let owned = |queue: u32| {
            let mut lanes = lanes.iter();
            lanes.any(|lane| *lane.topic.name == **topic && lane.queue == queue)
        };
        if let Some(queue) = offsets.keys().find(|queue| !owned(**queue)) {
            return Err(Error::OwnershipLost {
                topic: topic.clone(),
                queue: *queue,
            });
        }
    }
    Ok(())
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Who wants to know of errors calls `close`.
        let _ = self.close();
    }
}
