//! A queue as one group consumes it: its owner, and its unsettled messages.
//!
//! One consumer of a group owns a queue at a time. The next owner, the heir, gets it when the owner
//! has settled the messages that it holds, so nothing is delivered twice because a consumer joined.
//! Until then the queue delivers nothing. The heir does not wait for an owner that leaves or whose
//! deliveries time out.
//!
//! In a shared store the owner may be in another process. Then the table of groups says who owns
//! the queue, and each call compares its epoch ([`Claim`]) before it delivers or settles anything.

use super::claim::{Claim, Shown};
use super::lane_state::State;
use super::order::Order;
use super::patience::{Threads, is_locked};
use super::returned::{Returned, Unused};
use super::window::Settling;
use crate::clock::Moment;
use crate::engine::Topic;
use crate::error::{Error, Result};
use crate::plant::{Point, pass};
use crate::record::Message;
use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;

/// A queue of one group.
#[derive(Debug)]
pub struct Lane {
    /// The topic that is read. A retried message was sent to another one.
    pub topic: Arc<Topic>,
    /// The queue.
    pub queue: u32,
    /// The group that consumes it.
    group: Identity,
    /// The queue in the table of groups, if the store is shared.
    claim: Option<Claim>,
    state: Mutex<State>,
    returned: Returned,
}

/// Distinguishes a group from all others of the process, including those of other stores.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity(Arc<()>);

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
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
    serial: u64,
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
    /// When the member got it, in ms.
    pub since: i64,
    /// When `committed` last moved, in ms.
    pub moved: Option<i64>,
    /// Messages that were refused, or whose delivery was not settled.
    pub retries: u64,
    /// Whether the log came back shorter than when the progress was saved.
    pub is_shrunk: bool,
}

impl Receipt {
    /// Topic and queue from which the message was read, and its offset there.
    pub fn place(&self) -> (&str, u32, u64) {
        (&self.lane.topic.name, self.lane.queue, self.offset)
    }

    /// The lane of the delivery, if it was made to the group `group`.
    ///
    /// # Errors
    ///
    /// [`Error::OwnershipLost`] if it was made to another group, perhaps of another store.
    pub(super) fn lane_of(&self, group: &Identity) -> Result<&Lane> {
        match self.lane.group == *group {
            true => Ok(&self.lane),
            false => Err(self.lost()),
        }
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
            Settling::Lost | Settling::TakenBack => Err(self.lost()),
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
    /// A lane of `group` that nobody owns.
    pub(super) fn new(group: &Identity, topic: Arc<Topic>, queue: u32, committed: u64) -> Lane {
        Lane {
            topic,
            queue,
            group: group.clone(),
            claim: None,
            state: Mutex::new(State::new(committed)),
            returned: Returned::default(),
        }
    }

    /// A lane of a shared store.
    pub(super) fn shared(group: &Identity, topic: Arc<Topic>, queue: u32, claim: Claim) -> Lane {
        let committed = claim.fence().committed;
        Lane {
            claim: Some(claim),
            ..Lane::new(group, topic, queue, committed)
        }
    }

    /// The lane after the log came back shorter, when only the part of the consumed messages below
    /// `end` is left. If the progress is after `end`, nothing is delivered before a [`Lane::seek`].
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
    pub(super) fn current(&self, now: Moment, threads: Threads) -> Result<MutexGuard<'_, State>> {
        let mut state = threads.lock(&self.state)?;
        self.returned.take_back(&mut state, now);
        if let Some(claim) = &self.claim {
            state.follow(claim, now, threads)?;
        }
        Ok(state)
    }

    /// Stores the progress in the table of a shared store. Returns whether the queue still belongs
    /// to the owner; in a store of one process it does.
    pub(super) fn store(&self, state: &mut State) -> Result<bool> {
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

    /// Gives the lane to its heir if its owner holds no message, or only messages that have timed
    /// out.
    ///
    /// # Errors
    ///
    /// Those of the table of a shared store.
    pub(super) fn pass_on(&self, now: Moment) -> Result<()> {
        let mut state = self.current(now, Threads::Await)?;
        self.inherit_after(&mut state, now, Threads::Await)
    }

    /// Gives the lane to its heir if all deliveries of its owner have timed out. While another
    /// process has locked the table, the lane stays until a later step of the peers.
    pub(super) fn inherit_after(
        &self,
        state: &mut State,
        now: Moment,
        threads: Threads,
    ) -> Result<()> {
        match &self.claim {
            None => state.inherit_after(now),
            Some(claim) => {
                let is_free = state.heir.is_some() && !state.window.is_out(now.steady_ms);
                if let Some(epoch) = state.epoch.filter(|_| is_free && state.owner.is_some()) {
                    match claim.hand_over(epoch, now.wall_ms, threads) {
                        Err(error) if is_locked(&error) => {}
                        handed => {
                            handed?;
                            state.owner = None;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives the lane to `member`: at once if nobody owns it, else when its owner has settled the
    /// messages that it holds.
    pub(super) fn give_to(&self, member: Option<u64>, now: Moment) {
        let mut state = self.state.lock();
        self.returned.take_back(&mut state, now);
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
    pub(super) fn leave(&self, member: u64, now: Moment) {
        let mut state = self.state.lock();
        self.returned.take_back(&mut state, now);
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
            // The owner begins again at `offset` when it finds another epoch.
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
    /// never. Times are by the steady clock.
    pub(super) fn next_due(&self, member: u64, order: Order, now_ms: i64) -> Option<i64> {
        let state = self.state.lock();
        // An owner in another process wakes its heir.
        let is_heir = state.heir == Some(member) && self.claim.is_none();
        let window = &state.window;
        let owns = state.owner == Some(member) && state.heir.is_none();
        match window.out_until(now_ms) {
            // The lane delivers nothing until all delivered messages are settled or due again.
            Some(until) if is_heir || (owns && order == Order::Queue) => Some(until),
            None if is_heir => Some(now_ms),
            _ if owns => match order {
                Order::None => window.next_deadline(),
                Order::Queue => window.first_deadline(),
            },
            _ => None,
        }
    }

    /// A delivery of a message of this lane.
    pub(super) fn delivery(
        self: &Arc<Lane>,
        message: Message,
        offset: u64,
        serial: u64,
    ) -> Delivery {
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
    fn owned(
        &self,
        member: u64,
        receipt: &Receipt,
        (now, threads): (Moment, Threads),
    ) -> Result<MutexGuard<'_, State>> {
        let state = self.current(now, threads)?;
        match state.owner == Some(member) {
            true => Ok(state),
            false => Err(receipt.lost()),
        }
    }

    /// Checks that `member` may still settle a delivery. Returns how often the message was
    /// delivered.
    pub(super) fn check(&self, member: u64, receipt: &Receipt, now: Moment) -> Result<u32> {
        let attempts = self.check_refusal(member, receipt, now)?;
        attempts.ok_or_else(|| receipt.lost())
    }

    /// As [`Lane::check`]; `None` if the delivery was taken back, so that it is delivered again in
    /// any case.
    pub(super) fn check_refusal(
        &self,
        member: u64,
        receipt: &Receipt,
        now: Moment,
    ) -> Result<Option<u32>> {
        let window = &self.owned(member, receipt, (now, Threads::Await))?.window;
        match window.check(receipt.offset, receipt.serial) {
            Settling::TakenBack => Ok(None),
            settling => {
                receipt.settled(settling)?;
                Ok(Some(window.attempts(receipt.offset)))
            }
        }
    }

    /// Settles a delivery. If it was the owner's last one, the lane goes to its heir.
    pub(super) fn settle(
        &self,
        member: u64,
        receipt: &Receipt,
        (now, threads): (Moment, Threads),
    ) -> Result<()> {
        let mut state = self.owned(member, receipt, (now, threads))?;
        let before = state.window.committed();
        let settling = state.window.settle(receipt.offset, receipt.serial);
        receipt.settled(settling)?;
        if state.window.committed() > before {
            state.moved = Some(now.wall_ms);
        }
        pass(Point::Settled);
        if !self.store(&mut state)? {
            return Err(receipt.lost());
        }
        match (&self.claim, state.window.unsettled()) {
            (None, _) => state.inherit(now),
            // The message is settled even if the hand-over fails; a later call repeats the
            // hand-over.
            (Some(_), 0) => drop(self.inherit_after(&mut state, now, threads)),
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// Counts a message that goes to the retry topic.
    pub(super) fn count_retry(&self) {
        let mut state = self.state.lock();
        state.retries += 1;
        // Publishes the count for other processes. If this fails, the next change publishes it.
        let _ = self.store(&mut state);
    }

    /// Postpones the time at which a delivered message becomes due again to `until`, by the steady
    /// clock.
    pub(super) fn extend(
        &self,
        member: u64,
        receipt: &Receipt,
        (until, now, threads): (i64, Moment, Threads),
    ) -> Result<()> {
        let mut state = self.owned(member, receipt, (now, threads))?;
        let window = &mut state.window;
        receipt.settled(window.extend(receipt.offset, receipt.serial, until))
    }

    /// Refuses a delivery, and takes back all later ones of the queue: they become due at `due` by
    /// the steady clock.
    pub(super) fn refuse(
        &self,
        member: u64,
        receipt: &Receipt,
        (due, now): (i64, Moment),
    ) -> Result<()> {
        let mut state = self.owned(member, receipt, (now, Threads::Await))?;
        receipt.settled(state.window.refuse(receipt.offset, receipt.serial, due))
    }

    /// Takes back a delivery that nobody has used: it is due at once. Does not wait: if another
    /// thread uses the lane, the next one that uses it takes the delivery back.
    pub(super) fn give_back(&self, member: u64, receipt: &Receipt, now: Moment) {
        self.returned.add(Unused {
            member,
            offset: receipt.offset,
            serial: receipt.serial,
        });
        if let Ok(mut state) = self.current(now, Threads::Avoid) {
            // If this fails, the heir gets the lane later.
            let _ = self.inherit_after(&mut state, now, Threads::Avoid);
        }
    }
}
