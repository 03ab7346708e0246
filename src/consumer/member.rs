//! One consumer: it learns which queues it owns, saves progress, and leaves.
//!
//! How it joins its group is in `membership.rs`, how it takes messages in `polling.rs`, and how it
//! settles them in `settling.rs`.

use super::Anchor;
use super::group::{Ground, Group, Joining, Prepared};
use super::lane::Lane;
use super::options::ConsumerOptions;
use super::patience::is_locked;
use super::progress::{CLOSE_TIMEOUT, LOCK_TIMEOUT};
use super::start::{Start, check_named, offset_of};
use crate::bound::Bound;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::table::subscriptions::Subscription;
use crate::warning::Warning;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How often a consumer that is called checks for new queues.
const REFRESH_MS: i64 = 1_000;

/// A member of a group. Any thread may use it. Closing or dropping it gives back its unsettled
/// messages.
pub struct Consumer {
    pub(super) shared: Arc<Anchor>,
    pub(super) group: Arc<Group>,
    pub(super) topics: Vec<Box<str>>,
    pub(super) retry: Box<str>,
    /// Its number. Changes when it joins its group again after others have removed it.
    pub(super) number: AtomicU64,
    /// Held while it joins again or leaves. What it has prepared to join again, if it has found the
    /// table locked.
    pub(super) joining: Mutex<Option<Prepared>>,
    pub(super) options: ConsumerOptions,
    pub(super) subscription: Subscription,
    pub(super) turn: Mutex<Turn>,
    pub(super) closed: AtomicBool,
}

/// The queues of a consumer, and which one is next.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) lanes: Arc<[Arc<Lane>]>,
    /// The number of the consumer, and the generation of its group, for which these were found.
    of: Option<(u64, u64)>,
    next: usize,
    /// When the consumer last checked for new queues, by the steady clock.
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
    /// Number of messages from `committed` on, delivered or not.
    pub lag: u64,
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
            joining: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        if let Err(error) = consumer.join_group(Joining::First) {
            // It must not leave a group.
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

    pub(super) fn with_ground<T>(&self, run: impl FnOnce(Ground<'_>) -> Result<T>) -> Result<T> {
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
            clock: &*handle.clock,
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
            // Saving may wait for another process that saves progress.
            true => self.shared.save_progress(LOCK_TIMEOUT),
            false => Ok(()),
        }
    }

    pub(super) fn is_forked(&self) -> bool {
        self.shared.handle().is_forked()
    }

    /// The lanes, and the index of the first one for this call, at `now_ms` by the steady clock.
    /// Does not wait for the table of a shared store.
    pub(super) fn lanes(&self, now_ms: i64) -> Result<(Arc<[Arc<Lane>]>, usize)> {
        // A thread of a process that was forked may hold the lock for ever.
        self.check_open()?;
        let mut turn = self.turn.lock();
        let queues = self.with_ground(|ground| Ok(self.count_queues(ground.engine)))?;
        let is_time = now_ms.abs_diff(turn.refreshed) >= REFRESH_MS.unsigned_abs();
        if is_time || queues != turn.queues {
            match self.with_ground(|ground| self.group.refresh(ground)) {
                Ok(has_changed) => {
                    if has_changed {
                        self.shared.stir();
                    }
                    (turn.refreshed, turn.queues) = (now_ms, queues);
                }
                // The next call tries again. The queues that are already known may have messages.
                Err(error) if is_locked(&error) && !turn.lanes.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        // The number is read first: a consumer that joins again gets its new number after the table
        // has it.
        let of = (self.number(), self.group.generation());
        if turn.of != Some(of) {
            turn.lanes = self.group.lanes_of(of.0).into();
            turn.of = Some(of);
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

    /// The queues that the consumer owns, or will own once their present owner has settled its
    /// messages.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn assignment(&self) -> Result<Vec<Assigned>> {
        let (lanes, _) = self.patiently(|| self.lanes(self.shared.steady()))?;
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
        let (lanes, _) = self.patiently(|| self.lanes(self.shared.steady()))?;
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
            .try_for_each(|(lane, offset)| self.patiently(|| lane.seek(offset)));
        self.shared.stir();
        moved
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.with_ground(|_| Ok(()))
    }

    /// Leaves the group: its unsettled messages are delivered to others at once. A second call does
    /// nothing.
    ///
    /// # Errors
    ///
    /// Errors of saving the progress, such as [`Error::Busy`] if another process keeps its table
    /// locked; the consumer is closed even then, and the progress is saved later.
    /// [`Error::Forked`] in a child process, which must not touch anything: a thread of the parent
    /// may have held a lock.
    pub fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        {
            // A poll may be joining the group again, under another number.
            let _joining = self.joining.lock();
            self.group.leave(self.number(), self.shared.moment());
        }
        if let Some(occupation) = self.group.occupation() {
            // If this fails, the next step of the peers removes the consumer.
            let _ = occupation.patiently(|| occupation.remove_left(self.shared.now()));
        }
        self.shared.stir();
        match self.shared.handle().engine() {
            Ok(_) => self.shared.save_progress(CLOSE_TIMEOUT),
            // The store saved the progress when it was closed.
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
        // Callers that need the errors call `close`.
        let _ = self.close();
    }
}
