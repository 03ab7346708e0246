//! One consumer: takes messages from the queues that it owns, and settles them.

use super::Anchor;
use super::group::{Ground, Group};
use super::lane::{Delivery, Lane, Order, Receipt};
use super::options::ConsumerOptions;
use super::retry::{Failed, Fate, check_level, send_back};
use super::start::{Start, check_named, offset_of};
use super::taking::Taking;
use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::table::subscriptions::Subscription;
use crate::warning::Warning;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a consumer that is called checks for new queues.
const REFRESH_MS: i64 = 1_000;
/// Pause before a message is delivered again in place. It doubles with each attempt.
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 30_000;

/// A member of a group. Any thread may use it. Closing or dropping it gives back its unsettled
/// messages.
pub struct Consumer {
    shared: Arc<Anchor>,
    group: Arc<Group>,
    topics: Vec<Box<str>>,
    retry: Box<str>,
    /// Its number. Changes when it joins its group again after others have removed it.
    number: AtomicU64,
    options: ConsumerOptions,
    subscription: Subscription,
    turn: Mutex<Turn>,
    closed: AtomicBool,
}

/// The queues of a consumer, and which one is next.
#[derive(Default)]
struct Turn {
    lanes: Arc<[Arc<Lane>]>,
    generation: Option<u64>,
    next: usize,
    refreshed: i64,
    /// Number of queues of the topics at the last check.
    queues: u64,
}

/// A queue that is assigned to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The topic.
    pub topic: Box<str>,
    /// The queue.
    pub queue: u32,
    /// The smallest offset that is not settled.
    pub committed: u64,
    /// Messages from there on, delivered or not.
    pub lag: u64,
}

/// What a consumer took without waiting.
#[derive(Debug)]
pub struct Polled {
    /// The messages.
    pub taken: Vec<Delivery>,
    /// Position up to which the log was readable before they were taken.
    pub seen: u64,
    /// [`crate::Store::changes`] before they were taken.
    pub changes: u64,
    /// If there are no messages: how long to wait for either to grow before trying again in any
    /// case. `Duration::MAX` is without a limit.
    pub wait: Duration,
}

impl Consumer {
    pub(super) fn join(
        shared: &Arc<Anchor>,
        group: Arc<Group>,
        topics: &[&str],
        options: ConsumerOptions,
        subscription: Subscription,
    ) -> Result<Consumer> {
        let consumer = Consumer {
            shared: Arc::clone(shared),
            number: AtomicU64::new(shared.next_member()),
            topics: topics.iter().map(|topic| (*topic).into()).collect(),
            retry: group.retry.clone(),
            group,
            options,
            subscription,
            turn: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        if let Err(error) = consumer.join_group() {
            // It has no group to leave.
            consumer.closed.store(true, Ordering::Release);
            return Err(error);
        }
        let (number, topics) = (consumer.number(), &consumer.topics);
        if let Some((consumers, queues)) = consumer.group.has_none(number, topics) {
            shared.warn(Warning::NoQueue {
                group: consumer.group.name.clone(),
                topics: topics.clone(),
                consumers,
                queues,
            });
        }
        Ok(consumer)
    }

    fn join_group(&self) -> Result<()> {
        let (topics, options) = (&self.topics, &self.options);
        let join = |it: Ground<'_>| self.group.join(it, self.number(), topics, options);
        self.number
            .store(self.with_ground(join)?, Ordering::Release);
        self.shared.stir();
        Ok(())
    }

    /// Number of the member. In a shared store, no consumer of any process has the same.
    fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Checks that the other processes still count this consumer as a member. They do not after its
    /// process has shown no sign of life for the session time-out.
    fn check_member(&self) -> Result<()> {
        if self.group.has(self.number()) {
            return Ok(());
        }
        let lanes = Arc::clone(&self.turn.lock().lanes);
        let lost = lanes
            .first()
            .map(|lane| (lane.topic.name.to_string(), lane.queue));
        let first = self.topics.first().map_or("", |topic| topic);
        let (topic, queue) = lost.unwrap_or((first.to_owned(), 0));
        Err(Error::OwnershipLost { topic, queue })
    }

    fn with_ground<T>(&self, run: impl FnOnce(Ground<'_>) -> Result<T>) -> Result<T> {
        let handle = self.shared.handle();
        if handle.is_forked() {
            return Err(Error::Forked);
        }
        let engine = handle.writer()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::ConsumerClosed);
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

    /// The subscribed topics.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(|topic| &**topic)
    }

    /// Its options.
    pub fn options(&self) -> &ConsumerOptions {
        &self.options
    }

    /// Returns up to `max` messages, from each queue in offset order; of a partition log, whose
    /// records are copied, at most about 64 MiB. Waits up to `timeout` for the first one. They are
    /// unsettled, and are delivered again after the visibility timeout.
    ///
    /// # Errors
    ///
    /// [`Error::LogShrunk`] if a queue ends before what the group has settled; errors of reading;
    /// [`Error::Closed`], [`Error::ConsumerClosed`].
    pub fn poll(&self, max: usize, timeout: Duration) -> Result<Vec<Delivery>> {
        self.poll_until(max, timeout, &|| false)
    }

    /// [`Consumer::poll`] that also ends once `done` returns true. The thread that makes it true
    /// calls [`Consumer::wake`] afterwards.
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
            let polled = self.try_poll(max)?;
            if !polled.taken.is_empty() || max == 0 {
                return Ok(polled.taken);
            }
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() || done() {
                return Ok(polled.taken);
            }
            if !polled.wait.is_zero() {
                let engine = self.shared.handle().writer()?;
                let has_changed = || done() || self.shared.changes() != polled.changes;
                engine.wait_until(polled.seen, left.min(polled.wait), &has_changed);
            }
        }
    }

    /// As [`Consumer::poll`], without waiting. The result says what to wait for.
    ///
    /// # Errors
    ///
    /// As [`Consumer::poll`].
    pub fn try_poll(&self, max: usize) -> Result<Polled> {
        if let Err(lost) = self.with_ground(|_| self.check_member()) {
            // The caller learns that it has lost its messages. The next call gets messages again.
            if matches!(lost, Error::OwnershipLost { .. }) {
                self.join_group()?;
            }
            return Err(lost);
        }
        // Read before the search for messages, so that later ones are noticed.
        let seen = self.shared.handle().writer()?.readable_position();
        let changes = self.shared.changes();
        let mut taken = Vec::new();
        let again = self.take(max, &mut taken)?;
        self.shared.handle().meters.gets.delivered(taken.len(), 0);
        let wait = match again || !taken.is_empty() {
            true => Duration::ZERO,
            false => self.until_due(),
        };
        Ok(Polled {
            taken,
            seen,
            changes,
            wait,
        })
    }

    /// Makes waiting polls check again whether they are done.
    pub fn wake(&self) {
        self.shared.stir();
    }

    /// Takes messages from the lanes in turn. Returns whether some lane may have more right now.
    fn take(&self, max: usize, taken: &mut Vec<Delivery>) -> Result<bool> {
        let now = self.shared.now();
        let visibility = &self.options.visibility_timeout;
        let visibility = i64::try_from(visibility.as_millis()).unwrap_or(i64::MAX);
        let (lanes, first) = self.lanes(now)?;
        let mut again = false;
        let (mut copied, mut passed_over) = (0, 0);
        self.with_ground(|ground| {
            for at in 0..lanes.len() {
                let Some(lane) = lanes.get((first + at) % lanes.len()) else {
                    continue;
                };
                let of_retry = lane.topic.name == self.retry;
                let all = crate::engine::Filter::default();
                let by = Taking {
                    engine: ground.engine,
                    gets: &self.shared.handle().meters.gets,
                    member: self.number(),
                    // Retried messages have already passed the filter.
                    filter: if of_retry { &all } else { &self.options.filter },
                    order: self.options.order,
                    now,
                    deadline: now.saturating_add(visibility),
                    max_unsettled: self.options.max_unsettled,
                    copied: Cell::new(copied),
                    passed_over: Cell::new(passed_over),
                };
                match lane.take(&by, max - taken.len(), taken) {
                    Ok(more) => again |= more,
                    // The next call meets the error again.
                    Err(_) if !taken.is_empty() => break,
                    Err(error) => return Err(error),
                }
                (copied, passed_over) = (by.copied.get(), by.passed_over.get());
                if taken.len() >= max || by.has_enough() {
                    // The lanes after this one may have more.
                    again = true;
                    break;
                }
            }
            Ok(again)
        })
    }

    /// The lanes, and the index of the first one for this call.
    fn lanes(&self, now: i64) -> Result<(Arc<[Arc<Lane>]>, usize)> {
        // A thread of a process that was forked may hold the lock for ever.
        self.check_open()?;
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
            turn.lanes = self.group.lanes_of(self.number()).into();
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

    /// Time until the next message becomes due; `Duration::MAX` if none will.
    fn until_due(&self) -> Duration {
        let now = self.shared.now();
        let lanes = Arc::clone(&self.turn.lock().lanes);
        let order = self.options.order;
        let due = lanes
            .iter()
            .filter_map(|lane| lane.next_due(self.number(), order, now));
        due.min().map_or(Duration::MAX, |due| {
            let ms = due.saturating_sub(now).max(1);
            Duration::from_millis(ms.unsigned_abs())
        })
    }

    /// Acknowledges messages. Settles all that can be settled, and returns the error of the first
    /// one that cannot.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadySettled`]; [`Error::OwnershipLost`] if the message was delivered again
    /// meanwhile or was taken back by [`Consumer::nack`], its queue has another owner, or it was
    /// delivered to another group.
    pub fn ack<'a>(&self, receipts: impl IntoIterator<Item = &'a Receipt>) -> Result<()> {
        self.check_open()?;
        let now = self.shared.now();
        let mut all = Ok(());
        for receipt in receipts {
            let lane = self.lane_of(receipt);
            all = all.and(lane.and_then(|lane| lane.settle(self.number(), receipt, now)));
        }
        // It may have made room, or ended the turn of an owner.
        self.shared.stir();
        all
    }

    /// Refuses a message, so that it is delivered again later. With [`Order::None`] it goes through
    /// the group's retry topic, with the delay of `level`, or one that grows with the attempts.
    /// With [`Order::Queue`] it is delivered again in place, before any message after it: those
    /// that are delivered and not settled are taken back. To refuse one that was taken back has no
    /// effect. After too many attempts it becomes a dead letter: with [`Order::None`] after as many
    /// retries as the group's subscription allows, or at once if its properties leave no room for
    /// those of a retry.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for an invalid level; those of [`Consumer::ack`] and of sending.
    /// After an error the message is still unsettled.
    pub fn nack(&self, delivery: &Delivery, level: Option<u8>) -> Result<()> {
        check_level(level, &self.shared.handle().options.delay_levels())?;
        self.check_open()?;
        let receipt = &delivery.receipt;
        let now = self.shared.now();
        let (lane, number) = (self.lane_of(receipt)?, self.number());
        let Some(attempts) = lane.check_refusal(number, receipt, now)? else {
            return Ok(());
        };
        if self.options.order == Order::None {
            return self.send_back(delivery, attempts, Fate::Retry(level));
        }
        if attempts >= self.options.retry_in_place {
            return self.send_back(delivery, attempts, Fate::Dead(None));
        }
        let doubled = FIRST_PAUSE_MS << (attempts.saturating_sub(1)).min(16);
        let due = now + doubled.min(LONGEST_PAUSE_MS);
        lane.refuse(number, receipt, (due, now))?;
        self.shared.stir();
        Ok(())
    }

    /// Rejects a message: it becomes a dead letter of the group.
    ///
    /// # Errors
    ///
    /// As [`Consumer::nack`].
    pub fn reject(&self, delivery: &Delivery, reason: Option<&str>) -> Result<()> {
        self.check_open()?;
        let receipt = &delivery.receipt;
        let now = self.shared.now();
        let lane = self.lane_of(receipt)?;
        let attempts = lane.check(self.number(), receipt, now)?;
        self.send_back(delivery, attempts, Fate::Dead(reason))
    }

    /// Appends the message that replaces this one, then settles this one.
    fn send_back(&self, delivery: &Delivery, attempts: u32, fate: Fate<'_>) -> Result<()> {
        let failed = Failed {
            message: &delivery.message,
            // RocketMQ does not count a delivery that timed out, but one that failed in place.
            attempts: match self.options.order {
                Order::None => 1,
                Order::Queue => attempts,
            },
            fate,
        };
        let group = (&*self.group.name, &self.subscription);
        let (end, is_tried_again) = send_back(self.shared.handle(), group, &failed)?;
        // Noted before the message is settled, so that no progress past it is saved without its
        // successor.
        self.shared.sent_back.fetch_max(end, Ordering::AcqRel);
        let (receipt, now) = (&delivery.receipt, self.shared.now());
        let lane = self.lane_of(receipt)?;
        let settled = lane.settle(self.number(), receipt, now);
        if settled.is_ok() && is_tried_again {
            lane.count_retry();
        }
        self.shared.wake();
        settled
    }

    /// Postpones the next delivery of a message to `longer` after the call.
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
        let now = self.shared.now();
        let until = now.saturating_add(ms);
        let number = self.number();
        self.lane_of(receipt)?.extend(number, receipt, (until, now))
    }

    /// The lane of a message that was delivered to the group.
    fn lane_of<'a>(&self, receipt: &'a Receipt) -> Result<&'a Lane> {
        receipt.lane_of(&self.group.identity)
    }

    /// Gives back messages that nobody has used: they are due at once, but not before an earlier
    /// message of an ordered queue.
    pub fn give_back<'a>(&self, receipts: impl IntoIterator<Item = &'a Receipt>) {
        if self.is_forked() {
            return;
        }
        let now = self.shared.now();
        for receipt in receipts {
            if let Ok(lane) = self.lane_of(receipt) {
                lane.give_back(self.number(), receipt, now);
            }
        }
        self.shared.stir();
    }

    /// Saves the progress of all groups, after making everything settled durable.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Store::flush`]; [`Error::Corrupt`] if the table of offsets cannot be read,
    /// [`Error::Io`].
    pub fn commit(&self) -> Result<()> {
        self.commit_while(&mut || true)
    }

    /// As [`Consumer::commit`], and waits as [`crate::Store::flush_while`]. Saves nothing once
    /// `go_on` has returned false.
    ///
    /// # Errors
    ///
    /// As [`Consumer::commit`].
    pub fn commit_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.check_open()?;
        self.check_member()?;
        self.shared.handle().writer()?.flush(go_on)?;
        match go_on() {
            true => self.shared.save_progress(),
            false => Ok(()),
        }
    }

    /// Restarts the visibility timeout of a message that was taken a while ago.
    ///
    /// # Errors
    ///
    /// As [`Consumer::ack`].
    pub fn renew(&self, receipt: &Receipt) -> Result<()> {
        self.postpone(receipt, self.options.visibility_timeout)
    }

    fn is_forked(&self) -> bool {
        self.shared.handle().is_forked()
    }

    /// The queues that the consumer owns, or will own when their owner has settled what it holds.
    ///
    /// # Errors
    ///
    /// Errors of reading.
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

    /// Continues at `to` in the queues that the consumer owns: in all of its topics, or in the
    /// named ones. Current deliveries of these queues become invalid.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a topic that the consumer does not read,
    /// [`Error::UnknownQueue`], [`Error::OwnershipLost`] for an offset in a queue that another
    /// consumer owns, [`Error::OffsetOutOfRange`].
    pub fn seek(&self, to: &Start) -> Result<()> {
        let (lanes, _) = self.lanes(self.shared.now())?;
        let engine = self.shared.handle().engine()?;
        if let Start::ByTopic(bounds) = to {
            check_named("to", bounds, &self.topics, engine)?;
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
        let moved = moves
            .into_iter()
            .try_for_each(|(lane, offset)| lane.seek(offset));
        self.shared.stir();
        moved
    }

    fn check_open(&self) -> Result<()> {
        self.with_ground(|_| Ok(()))
    }

    /// Leaves the group: its unsettled messages are delivered to others at once. A second call does
    /// nothing.
    ///
    /// # Errors
    ///
    /// Errors of saving the progress; the consumer is closed nevertheless. [`Error::Forked`] in a
    /// child process, which must not touch anything: a thread of the parent may have held a lock.
    pub fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.group.leave(self.number(), self.shared.now());
        self.shared.stir();
        match self.shared.handle().engine() {
            Ok(_) => self.shared.save_progress(),
            // The store saved it when it was closed.
            Err(_) => Ok(()),
        }
    }
}

/// Checks that the lanes include every queue for which an offset is given.
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
        // To learn of errors, callers use `close`.
        let _ = self.close();
    }
}
