//! Tails: the messages of all queues of a topic, as they arrive.
//!
//! A tail works in rounds. A round takes the readable end of the log, reads what each queue has
//! below it, and merges the queues by position. So the messages of a round come in the order in
//! which they were stored. This also holds across rounds, because the next round finds only
//! messages after the end of this one. A queue may return messages after that end, because it can
//! grow meanwhile; they wait for their round.

use crate::bound::{Bound, Bounded};
use crate::engine::{Check, Engine, Filter, Point, Rows, Topic};
use crate::error::{Error, Result};
use crate::record::Message;
use crate::store::Store;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of messages of one queue that are read ahead.
const LANE_LEN: usize = 256;

/// What a tail does at the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It waits for messages.
    Follow,
    /// It ends where the log ended when the tail was created.
    Stop,
}

/// The result of [`Tail::next`].
#[derive(Debug)]
pub enum Step {
    /// The next message.
    Message(Message),
    /// No message came within the timeout.
    Nothing,
    /// The tail has ended.
    End,
}

/// One queue of a tail.
#[derive(Debug)]
struct Lane {
    /// Offset of the first message that is not read yet.
    next: u64,
    /// Offset at which the tail ends. A position would not do if each queue has its own log.
    until: u64,
    ahead: VecDeque<Message>,
}

/// Reads a topic in log order, and can wait for messages. Used by one reader.
pub struct Tail {
    store: Store,
    topic: Arc<Topic>,
    lanes: BTreeMap<u32, Lane>,
    /// Queues that have more messages in this round, by the position of the next one.
    heads: BinaryHeap<Reverse<(u64, u32)>>,
    /// Readable end of the log at which this round ends.
    end: u64,
    at_end: AtEnd,
    closed: Arc<AtomicBool>,
    /// A tail belongs to the process that created it.
    generation: u32,
}

/// Closes a [`Tail`], from any thread.
#[derive(Clone)]
pub struct TailCloser {
    store: Store,
    closed: Arc<AtomicBool>,
}

impl TailCloser {
    /// Ends the tail, even while it waits.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Ok(engine) = self.store.engine() {
            engine.wake();
        }
    }

    /// Whether the tail was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Tail {
    /// A tail of `topic` from `start` on.
    ///
    /// # Errors
    ///
    /// `UnknownTopic`; `UnknownQueue` and `OffsetOutOfRange` for offsets that the topic does not
    /// have; `Closed`, `Forked`.
    pub fn new(store: &Store, topic: &str, start: &Bound, at_end: AtEnd) -> Result<Tail> {
        let topic = store.topic(topic)?;
        let engine = store.engine()?;
        let mut tail = Tail {
            store: store.clone(),
            topic: Arc::clone(&topic),
            lanes: BTreeMap::new(),
            heads: BinaryHeap::new(),
            end: 0,
            at_end,
            closed: Arc::default(),
            generation: crate::disk::fork_generation(),
        };
        let queues = engine.queues(&topic);
        if let Bound::Offsets(offsets) = start
            && let Some(queue) = offsets.keys().find(|queue| !queues.contains(queue))
        {
            return Err(topic.unknown_queue(*queue));
        }
        for queue in queues {
            let next = tail.first_offset(queue, start)?;
            tail.add_lane(queue, next)?;
        }
        tail.add_new_lanes()?;
        // Read last: a reader of files knows of a message only after it has read its queue.
        tail.end = tail.engine()?.readable_position();
        tail.enter_all()?;
        Ok(tail)
    }

    fn first_offset(&self, queue: u32, start: &Bound) -> Result<u64> {
        let engine = self.engine()?;
        let bounds = engine.bounds(&self.topic, queue)?.unwrap_or(0..0);
        let there = Bounded {
            topic: &self.topic.name,
            queue,
            offsets: bounds,
        };
        there.start(start, |time| {
            engine.offset_at(&self.topic, queue, Point::Time(time))
        })
    }

    fn add_lane(&mut self, queue: u32, next: u64) -> Result<()> {
        let bounds = || self.engine()?.bounds(&self.topic, queue);
        let until = match self.at_end {
            AtEnd::Follow => u64::MAX,
            AtEnd::Stop => bounds()?.map_or(0, |offsets| offsets.end),
        };
        let ahead = VecDeque::new();
        self.lanes.insert(queue, Lane { next, until, ahead });
        Ok(())
    }

    /// A handle that closes the tail.
    pub fn closer(&self) -> TailCloser {
        TailCloser {
            store: self.store.clone(),
            closed: Arc::clone(&self.closed),
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.store.is_closed()
    }

    /// The next message; waits for one up to `timeout`. The tail ends when it or its store closes,
    /// even while it waits.
    ///
    /// # Errors
    ///
    /// Errors of reading; `Forked`.
    pub fn next(&mut self, timeout: Duration) -> Result<Step> {
        let usable = self.engine().map(drop);
        if self.closed.load(Ordering::Acquire) {
            return Ok(Step::End);
        }
        match usable.and_then(|()| self.step(timeout)) {
            Err(Error::Closed { .. }) => Ok(Step::End),
            Ok(Step::Nothing) if self.is_closed() => Ok(Step::End),
            step => step,
        }
    }

    fn step(&mut self, timeout: Duration) -> Result<Step> {
        if let Some(message) = self.next_of_round()? {
            return Ok(Step::Message(message));
        }
        if self.at_end == AtEnd::Stop {
            return Ok(Step::End);
        }
        let is_closed = || self.closed.load(Ordering::Acquire);
        let engine = self.engine()?;
        let end = engine.wait_until(self.end, timeout, &is_closed);
        if end > self.end {
            self.end = end;
            self.begin_round()?;
            if let Some(message) = self.next_of_round()? {
                return Ok(Step::Message(message));
            }
        }
        Ok(Step::Nothing)
    }

    /// The next message, if it is available without reading or waiting.
    pub fn next_ready(&mut self) -> Option<Message> {
        if self.is_closed() {
            return None;
        }
        let Reverse((_, queue)) = self.heads.peek()?;
        let lane = self.lanes.get(queue)?;
        // The message after it must be read ahead too, because its position is needed next.
        if lane.ahead.len() < 2 {
            None
        } else {
            self.next_of_round().ok().flatten()
        }
    }

    /// Position up to which the log was readable when the tail read it last.
    pub fn seen(&self) -> u64 {
        self.end
    }

    fn begin_round(&mut self) -> Result<()> {
        self.add_new_lanes()?;
        self.enter_all()
    }

    /// Adds the queues that the tail does not have yet.
    fn add_new_lanes(&mut self) -> Result<()> {
        let engine = self.engine()?;
        engine.refresh(Some(&self.topic.name))?;
        for queue in engine.queues(&self.topic) {
            if !self.lanes.contains_key(&queue) {
                self.add_lane(queue, 0)?;
            }
        }
        Ok(())
    }

    fn enter_all(&mut self) -> Result<()> {
        let queues: Vec<u32> = self.lanes.keys().copied().collect();
        queues.into_iter().try_for_each(|queue| self.enter(queue))
    }

    /// Adds a queue to the round, if it has a message before the end of the round.
    fn enter(&mut self, queue: u32) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(&queue) else {
            return Ok(());
        };
        if lane.ahead.is_empty() {
            lane.read(&self.store, &self.topic, queue)?;
        }
        let position = lane
            .ahead
            .front()
            .map(|message| message.record().position());
        let position = position.and_then(|position| u64::try_from(position).ok());
        if let Some(position) = position.filter(|position| *position < self.end) {
            self.heads.push(Reverse((position, queue)));
        }
        Ok(())
    }

    fn next_of_round(&mut self) -> Result<Option<Message>> {
        let Some(Reverse((_, queue))) = self.heads.pop() else {
            return Ok(None);
        };
        let message = self
            .lanes
            .get_mut(&queue)
            .and_then(|lane| lane.ahead.pop_front());
        self.enter(queue)?;
        self.store.count_read(usize::from(message.is_some()));
        Ok(message)
    }

    /// The engine.
    ///
    /// # Errors
    ///
    /// `Closed`, and `Forked` also if the store can be used in a child.
    fn engine(&self) -> Result<&dyn Engine> {
        match self.generation == crate::disk::fork_generation() {
            true => self.store.engine(),
            false => Err(Error::Forked),
        }
    }
}

impl Lane {
    /// Reads ahead from `next` on. Skips messages that retention has deleted.
    fn read(&mut self, store: &Store, topic: &Topic, queue: u32) -> Result<()> {
        let engine = store.engine()?;
        let Some(bounds) = engine.bounds(topic, queue)? else {
            return Ok(());
        };
        let (first, end) = (self.next.max(bounds.start), self.until.min(bounds.end));
        if first >= end {
            return Ok(());
        }
        let all = Filter::default();
        let mut cursor = engine.cursor(topic, queue, first..end, &all, Check::Full)?;
        let mut rows = Rows::default();
        cursor.next(LANE_LEN, &mut rows)?;
        self.ahead
            .extend(rows.rows.iter().filter_map(|row| rows.message(row)));
        self.next = cursor.offset();
        Ok(())
    }
}

#[cfg(test)]
mod test;
