//! A queue as one group consumes it: its owner, and its unsettled messages.
//!
//! One consumer of a group owns a queue at a time. The next owner, the heir, gets it when the owner
//! has settled what it holds, so nothing is delivered twice because a consumer joined. Until then
//! the queue delivers nothing. The heir does not wait for an owner that leaves or whose deliveries
//! time out.
//!
//! In a shared store the owner may be in another process. Then the table of groups says who owns
//! the queue, and each call compares its epoch ([`Claim`]) before it delivers or settles anything.

use super::claim::{Adopted, Claim, Shown};
use super::window::{Settling, Window};
use crate::engine::{COPIED_MAX, Check, Engine, Filter, Rows, Topic};
use crate::error::{Error, Result};
use crate::meter::GetMeter;
use crate::plant::{Point, pass};
use crate::record::Message;
use crate::sync::{Mutex, MutexGuard};
use crate::warning::Warning;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of rows per step of a cursor.
const STEP_ROWS: usize = 1024;

/// What is guaranteed about the order of messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// A refused message goes to the retry topic; the messages after it are delivered.
    #[default]
    None,
    /// A refused message is delivered again before any message after it.
    Queue,
}

/// A queue of one group.
#[derive(Debug)]
pub struct Lane {
    /// The topic that is read. A retried message was sent to another one.
    pub topic: Arc<Topic>,
    /// The queue.
    pub queue: u32,
    /// The queue in the table of groups, if the store is shared.
    claim: Option<Claim>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// In a shared store, only a consumer of this process.
    owner: Option<u64>,
    heir: Option<u64>,
    /// The last epoch in which this process had the queue.
    epoch: Option<u16>,
    /// What the table says of it.
    stored: (u64, Shown),
    since: i64,
    /// When `committed` last moved, in ms.
    moved: Option<i64>,
    retries: u64,
    window: Window,
    /// Where the part of the queue ends that the group has consumed, if the log came back shorter
    /// than when the progress was saved: other messages have the offsets after it.
    shrunk: Option<u64>,
}

/// A message that a consumer holds until it is settled.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// Settles the message.
    pub receipt: Receipt,
}

/// Identifies one delivery of one message.
#[derive(Clone, Debug)]
pub struct Receipt {
    lane: Arc<Lane>,
    offset: u64,
    serial: u32,
}

/// How messages are taken from a lane.
pub(super) struct Taking<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) gets: &'a GetMeter,
    pub(super) member: u64,
    pub(super) filter: &'a Filter,
    pub(super) order: Order,
    pub(super) now: i64,
    /// When the taken messages become due again.
    pub(super) deadline: i64,
    pub(super) max_unsettled: u64,
    /// Bytes that were read again or copied for the taken messages.
    pub(super) copied: Cell<u64>,
}

impl Taking<'_> {
    /// Whether no more messages are to be taken.
    pub(super) fn has_enough(&self) -> bool {
        self.copied.get() >= COPIED_MAX
    }
}

/// The progress of a group in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneProgress {
    /// The smallest offset that is not settled.
    pub committed: u64,
    /// Messages delivered but not settled.
    pub unsettled: u64,
    /// Number of the member that owns the queue.
    pub owner: Option<u64>,
    /// Since when the member owns it, in ms.
    pub since: i64,
    /// When `committed` last moved, in ms.
    pub moved: Option<i64>,
    /// Messages that were refused, or whose delivery was not settled.
    pub retries: u64,
    /// Whether the log came back shorter than the progress.
    pub is_shrunk: bool,
}

impl Receipt {
    /// Topic and queue from which the message was read, and its offset there.
    pub fn place(&self) -> (&str, u32, u64) {
        (&self.lane.topic.name, self.lane.queue, self.offset)
    }

    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    fn settled(&self, settling: Settling) -> Result<()> {
        let (topic, queue, offset) = self.place();
        match settling {
            Settling::Done => Ok(()),
            Settling::Already => Err(Error::AlreadySettled {
                topic: topic.to_owned(),
                queue,
                offset,
            }),
            Settling::Lost => Err(self.lost()),
        }
    }

    fn lost(&self) -> Error {
        let (topic, queue, _) = self.place();
        Error::OwnershipLost {
            topic: topic.to_owned(),
            queue,
        }
    }
}

impl Lane {
    /// A lane that nobody owns.
    pub(super) fn new(topic: Arc<Topic>, queue: u32, committed: u64) -> Lane {
        Lane::with(topic, queue, committed, None)
    }

    /// A lane of a shared store.
    pub(super) fn shared(topic: Arc<Topic>, queue: u32, claim: Claim) -> Lane {
        let committed = claim.fence().committed;
        Lane::with(topic, queue, committed, Some(claim))
    }

    fn with(topic: Arc<Topic>, queue: u32, committed: u64, claim: Option<Claim>) -> Lane {
        let state = State {
            owner: None,
            heir: None,
            epoch: None,
            stored: (committed, Shown::default()),
            since: 0,
            moved: None,
            retries: 0,
            window: Window::new(committed),
            shrunk: None,
        };
        Lane {
            topic,
            queue,
            claim,
            state: Mutex::new(state),
        }
    }

    /// The lane after the log came back shorter, with only the part below `end` left of the
    /// consumed queue. If the progress is after `end`, nothing is delivered before a
    /// [`Lane::seek`].
    pub(super) fn ending_at(self, end: u64) -> Lane {
        let mut state = self.state.lock();
        state.shrunk = Some(end).filter(|end| state.window.committed() > *end);
        drop(state);
        self
    }

    /// The member that owns the lane or will own it.
    pub(super) fn claimed_by(&self) -> Option<u64> {
        if let Some(claim) = &self.claim {
            return claim.claimed_by();
        }
        let state = self.state.lock();
        state.heir.or(state.owner)
    }

    /// The current state.
    fn current(&self, now: i64) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if let Some(claim) = &self.claim {
            state.follow(claim, now)?;
        }
        Ok(state)
    }

    /// Stores the progress in the table of a shared store. Returns whether the queue still belongs
    /// to the owner; in a store of one process it does.
    fn store(&self, state: &mut State) -> Result<bool> {
        let Some((claim, epoch)) = self.claim.as_ref().zip(state.epoch) else {
            return Ok(true);
        };
        let window = &state.window;
        let shown = Shown {
            moved: state.moved,
            unsettled: window.unsettled() as u64,
            retries: state.retries,
        };
        let stored = (window.committed(), shown);
        let is_owned = match stored == state.stored {
            true => claim.fence().epoch == epoch,
            false => claim.store(epoch, stored.0, shown)?,
        };
        match is_owned {
            true => state.stored = stored,
            false => state.owner = None,
        }
        Ok(is_owned)
    }

    /// Gives the lane to its heir if its owner holds nothing that has not timed out.
    ///
    /// # Errors
    ///
    /// Those of the table of a shared store.
    pub(super) fn pass_on(&self, now: i64) -> Result<()> {
        let mut state = self.current(now)?;
        self.inherit_after(&mut state, now)
    }

    fn inherit_after(&self, state: &mut State, now: i64) -> Result<()> {
        match &self.claim {
            None => state.inherit_after(now),
            Some(claim) => {
                let is_free = state.heir.is_some() && !state.window.is_out(now);
                if let Some(epoch) = state.epoch.filter(|_| is_free && state.owner.is_some()) {
                    claim.hand_over(epoch, now)?;
                    state.owner = None;
                }
            }
        }
        Ok(())
    }

    /// Gives the lane to `member`: at once if nobody owns it, else when its owner has settled what
    /// it holds.
    pub(super) fn give_to(&self, member: Option<u64>, now: i64) {
        let mut state = self.state.lock();
        state.heir = None;
        if state.owner != member {
            state.heir = member;
            if member.is_none() {
                state.leave(now);
            }
            state.inherit(now);
        }
    }

    /// Takes the lane from a member that has left. Its unsettled messages become due at once.
    pub(super) fn leave(&self, member: u64, now: i64) {
        let mut state = self.state.lock();
        if state.heir == Some(member) {
            state.heir = None;
        }
        if state.owner == Some(member) {
            state.leave(now);
            state.inherit(now);
        }
    }

    /// The progress of the group.
    pub(super) fn progress(&self) -> LaneProgress {
        let state = self.state.lock();
        let shared = self.claim.as_ref();
        LaneProgress {
            committed: shared.map_or(state.window.committed(), |it| it.fence().committed),
            unsettled: state.window.unsettled() as u64,
            owner: state.owner,
            since: state.since,
            moved: state.moved,
            retries: state.retries,
            is_shrunk: state.shrunk.is_some(),
        }
    }

    /// Continues at `offset`. Current deliveries become invalid.
    ///
    /// # Errors
    ///
    /// Those of the table of a shared store.
    pub(super) fn seek(&self, offset: u64) -> Result<()> {
        match &self.claim {
            // The owner begins again there when it finds another epoch.
            Some(claim) => claim.reset(offset),
            None => {
                let mut state = self.state.lock();
                state.window.begin_again(offset);
                state.shrunk = None;
                Ok(())
            }
        }
    }

    /// When `member` may get another message of the lane without a send or a settlement; `None` if
    /// never.
    pub(super) fn next_due(&self, member: u64, order: Order, now: i64) -> Option<i64> {
        let state = self.state.lock();
        // An owner in another process wakes its heir.
        let is_heir = state.heir == Some(member) && self.claim.is_none();
        let window = &state.window;
        let owns = state.owner == Some(member) && state.heir.is_none();
        match window.out_until(now) {
            // All delivered messages must be settled, or be due again, first.
            Some(until) if is_heir || (owns && order == Order::Queue) => Some(until),
            None if is_heir => Some(now),
            _ if owns => window.next_deadline(),
            _ => None,
        }
    }

    /// Adds up to `max` messages to `taken`, beginning with those that are due again. Returns
    /// whether the lane may have more right now.
    ///
    /// # Errors
    ///
    /// [`Error::LogShrunk`] if the queue ends before what the group has settled; errors of reading.
    /// Messages read before the error are in `taken`.
    pub(super) fn take(
        self: &Arc<Lane>,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<bool> {
        let mut state = self.current(by.now)?;
        self.inherit_after(&mut state, by.now)?;
        if state.owner != Some(by.member) || state.heir.is_some() {
            return Ok(false);
        }
        if let Some(end) = state.shrunk {
            return Err(self.shrunk(state.window.committed(), end));
        }
        let begin = taken.len();
        let more = self.take_owned(&mut state, by, max, taken);
        if !self.store(&mut state)? {
            // Another process owns the queue by now, and delivers them.
            taken.truncate(begin);
            return Ok(false);
        }
        more
    }

    fn take_owned(
        self: &Arc<Lane>,
        state: &mut State,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<bool> {
        let State {
            window, retries, ..
        } = state;
        if by.order == Order::Queue && window.is_out(by.now) {
            return Ok(false);
        }
        let begin = taken.len();
        self.take_again(window, by, max, taken)?;
        let seen = |again: &&Delivery| window.attempts(again.receipt.offset) > 1;
        let again = taken.iter().skip(begin).filter(seen).count();
        by.gets.delivered(0, again);
        *retries += again as u64;
        let waits = by.order == Order::Queue && window.unsettled() > taken.len() - begin;
        let room = max - (taken.len() - begin);
        if waits || room == 0 {
            return Ok(false);
        }
        self.take_new(window, by, room, taken)
    }

    fn take_again(
        self: &Arc<Lane>,
        window: &mut Window,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<()> {
        let mut retired = 0;
        let mut failed = Ok(());
        for _ in 0..max {
            let Some(offset) = window.due(by.now).filter(|_| !by.has_enough()) else {
                break;
            };
            match by.engine.get(&self.topic, self.queue, offset) {
                Ok(Some(message)) => {
                    let len = message.record().bytes().len() as u64;
                    by.copied.set(by.copied.get() + len);
                    let serial = window.deliver_again(offset, by.deadline);
                    taken.extend(serial.map(|serial| self.delivery(message, offset, serial)));
                }
                // Retired, compacted or damaged meanwhile: nobody can handle it.
                Ok(None) | Err(Error::Corrupt { .. } | Error::OffsetOutOfRange { .. }) => {
                    window.give_up(offset);
                    let bounds = by.engine.bounds(&self.topic, self.queue);
                    let is_retired = |bounds: Option<Range<u64>>| {
                        bounds.is_some_and(|bounds| offset < bounds.start)
                    };
                    retired += u64::from(bounds.is_ok_and(is_retired));
                }
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        if retired > 0 {
            self.warn_of_retired(by, retired);
        }
        failed
    }

    fn take_new(
        self: &Arc<Lane>,
        window: &mut Window,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<bool> {
        let Some(bounds) = by.engine.bounds(&self.topic, self.queue)? else {
            return Ok(false);
        };
        if window.next() > bounds.end {
            return Err(self.shrunk(window.next(), bounds.end));
        }
        if window.next() < bounds.start {
            self.warn_of_retired(by, bounds.start - window.next());
            window.skip_to(bounds.start);
        }
        let begin = window.next();
        let end = bounds.end.min(window.committed() + by.max_unsettled);
        if begin >= end {
            return Ok(false);
        }
        pass(Point::Bounded);
        let (topic, range) = (&self.topic, begin..end);
        let mut cursor = by
            .engine
            .cursor(topic, self.queue, range, by.filter, Check::Full)?;
        let mut rows = Rows::default();
        let mut left = max;
        while left > 0 && !by.has_enough() {
            rows.clear();
            cursor.next(left.min(STEP_ROWS), &mut rows)?;
            if rows.retired > 0 {
                // Retention has deleted them since the bounds were read.
                self.warn_of_retired(by, rows.retired);
            }
            if rows.rows.is_empty() {
                break;
            }
            left -= rows.rows.len();
            by.copied.set(by.copied.get() + rows.copied);
            for message in rows.rows.iter().filter_map(|row| rows.message(row)) {
                let offset = message.record().queue_offset().cast_unsigned();
                let serial = window.deliver(offset, by.deadline);
                taken.push(self.delivery(message, offset, serial));
            }
        }
        window.skip_to(cursor.offset());
        Ok(window.next() < bounds.end && window.next() > begin)
    }

    fn warn_of_retired(&self, by: &Taking<'_>, messages: u64) {
        by.engine.report().warnings.add(Warning::Retired {
            topic: self.topic.name.clone(),
            queue: self.queue,
            messages,
        });
    }

    fn shrunk(&self, offset: u64, end: u64) -> Error {
        Error::LogShrunk {
            topic: self.topic.name.to_string(),
            queue: self.queue,
            offset,
            end,
        }
    }

    fn delivery(self: &Arc<Lane>, message: Message, offset: u64, serial: u32) -> Delivery {
        let lane = Arc::clone(self);
        Delivery {
            message,
            receipt: Receipt {
                lane,
                offset,
                serial,
            },
        }
    }

    /// The state, if `member` owns the lane.
    fn owned(&self, member: u64, receipt: &Receipt, now: i64) -> Result<MutexGuard<'_, State>> {
        let state = self.current(now)?;
        match state.owner == Some(member) {
            true => Ok(state),
            false => Err(receipt.lost()),
        }
    }

    /// Checks that `member` may still settle a delivery. Returns how often the message was
    /// delivered.
    pub(super) fn check(&self, member: u64, receipt: &Receipt, now: i64) -> Result<u32> {
        let window = &mut self.owned(member, receipt, now)?.window;
        receipt.settled(window.check(receipt.offset, receipt.serial))?;
        Ok(window.attempts(receipt.offset))
    }

    /// Settles a delivery. If it was the owner's last one, the lane goes to its heir.
    pub(super) fn settle(&self, member: u64, receipt: &Receipt, now: i64) -> Result<()> {
        let mut state = self.owned(member, receipt, now)?;
        let before = state.window.committed();
        let settling = state.window.settle(receipt.offset, receipt.serial);
        receipt.settled(settling)?;
        if state.window.committed() > before {
            state.moved = Some(now);
        }
        pass(Point::Settled);
        if !self.store(&mut state)? {
            return Err(receipt.lost());
        }
        match (&self.claim, state.window.unsettled()) {
            (None, _) => state.inherit(now),
            // The message is settled even if this fails; it is tried again.
            (Some(_), 0) => drop(self.inherit_after(&mut state, now)),
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// Counts a message that goes to the retry topic.
    pub(super) fn count_retry(&self) {
        let mut state = self.state.lock();
        state.retries += 1;
        // For other processes. If this fails, the next change shows it.
        let _ = self.store(&mut state);
    }

    /// Postpones the time at which a delivered message becomes due again.
    pub(super) fn extend(
        &self,
        member: u64,
        receipt: &Receipt,
        (until, now): (i64, i64),
    ) -> Result<()> {
        let mut state = self.owned(member, receipt, now)?;
        let window = &mut state.window;
        receipt.settled(window.extend(receipt.offset, receipt.serial, until))
    }

    /// Refuses a delivery, and takes back all later ones of the queue: they become due at `due`.
    pub(super) fn refuse(
        &self,
        member: u64,
        receipt: &Receipt,
        (due, now): (i64, i64),
    ) -> Result<()> {
        let mut state = self.owned(member, receipt, now)?;
        receipt.settled(state.window.refuse(receipt.offset, receipt.serial, due))
    }

    /// Takes back a delivery that nobody has used: it is due at once.
    pub(super) fn give_back(&self, member: u64, receipt: &Receipt, now: i64) {
        if let Ok(mut state) = self.owned(member, receipt, now) {
            let window = &mut state.window;
            window.give_back(receipt.offset, receipt.serial, now);
            // If this fails, the heir gets it later.
            let _ = self.inherit_after(&mut state, now);
        }
    }
}

impl State {
    /// Updates owner and heir from the table of a shared store.
    fn follow(&mut self, claim: &Claim, now: i64) -> Result<()> {
        self.heir = claim.heir();
        if self.owner.is_some() && self.epoch == Some(claim.fence().epoch) {
            return Ok(());
        }
        self.owner = None;
        if let Some(Adopted {
            fence,
            owner,
            since,
            shown,
        }) = claim.adopt()?
        {
            // If no other process has owned it since, the messages settled past the committed
            // offset are still known.
            let next = self.epoch.map(|epoch| epoch.wrapping_add(1));
            // A caller has set where to continue.
            let is_moved = fence.committed != self.window.committed();
            self.shrunk = self.shrunk.filter(|_| !is_moved);
            if next == Some(fence.epoch) && fence.committed == self.window.committed() {
                self.window.recall_from(0, now);
            } else {
                self.window.begin_again(fence.committed);
            }
            (self.moved, self.retries) = (shown.moved, shown.retries);
            self.stored = (fence.committed, shown);
            (self.epoch, self.owner, self.since) = (Some(fence.epoch), Some(owner), since);
        }
        Ok(())
    }

    fn leave(&mut self, now: i64) {
        self.owner = None;
        self.window.recall_from(0, now);
    }

    /// Gives the lane to its heir if its owner holds nothing.
    fn inherit(&mut self, now: i64) {
        if self.heir.is_some() && (self.owner.is_none() || self.window.unsettled() == 0) {
            self.owner = self.heir.take();
            self.since = now;
        }
    }

    /// Gives the lane to its heir if all deliveries of its owner have timed out.
    fn inherit_after(&mut self, now: i64) {
        if self.heir.is_some() && !self.window.is_out(now) {
            self.leave(now);
            self.inherit(now);
        }
    }
}
