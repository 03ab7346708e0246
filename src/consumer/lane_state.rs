//! The state of a lane: its owner, its heir, and its unsettled messages.

use super::claim::{Adopted, Claim, Shown};
use super::patience::Threads;
use super::window::Window;
use crate::clock::Moment;
use crate::error::Result;

/// Who owns a lane, and what is unsettled in it.
#[derive(Debug)]
pub(super) struct State {
    /// In a shared store, `None` unless the owner is a consumer of this process.
    pub(super) owner: Option<u64>,
    pub(super) heir: Option<u64>,
    /// The last epoch in which this process had the queue.
    pub(super) epoch: Option<u16>,
    /// The queue in the table.
    pub(super) stored: (u64, Shown),
    pub(super) since: i64,
    /// When `committed` last moved, in ms.
    pub(super) moved: Option<i64>,
    pub(super) retries: u64,
    pub(super) window: Window,
    /// If the log came back shorter than when the progress was saved: the end of the consumed
    /// messages that are left. Offsets after it belong to other messages.
    pub(super) shrunk: Option<u64>,
}

impl State {
    /// The state of a lane that nobody owns.
    pub(super) fn new(committed: u64) -> State {
        State {
            owner: None,
            heir: None,
            epoch: None,
            stored: (committed, Shown::default()),
            since: 0,
            moved: None,
            retries: 0,
            window: Window::new(committed),
            shrunk: None,
        }
    }

    /// Updates owner and heir from the table of a shared store.
    pub(super) fn follow(&mut self, claim: &Claim, now: Moment, threads: Threads) -> Result<()> {
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
        }) = claim.adopt(threads)?
        {
            // If no other process has owned the queue since, the messages settled past the
            // committed offset are still known.
            let next = self.epoch.map(|epoch| epoch.wrapping_add(1));
            // A caller has set where to continue.
            let is_moved = fence.committed != self.window.committed();
            self.shrunk = self.shrunk.filter(|_| !is_moved);
            if next == Some(fence.epoch) && fence.committed == self.window.committed() {
                self.window.recall(now.steady_ms);
            } else {
                self.window.begin_again(fence.committed);
            }
            (self.moved, self.retries) = (shown.moved, shown.retries);
            self.stored = (fence.committed, shown);
            (self.epoch, self.owner, self.since) = (Some(fence.epoch), Some(owner), since);
        }
        Ok(())
    }

    /// Takes the lane from its owner, whose unsettled messages become due at once.
    pub(super) fn leave(&mut self, now: Moment) {
        self.owner = None;
        self.window.recall(now.steady_ms);
    }

    /// Gives the lane to its heir if its owner holds nothing.
    pub(super) fn inherit(&mut self, now: Moment) {
        if self.heir.is_some() && (self.owner.is_none() || self.window.unsettled() == 0) {
            self.owner = self.heir.take();
            self.since = now.wall_ms;
        }
    }

    /// Gives the lane to its heir if all deliveries of its owner have timed out.
    pub(super) fn inherit_after(&mut self, now: Moment) {
        if self.heir.is_some() && !self.window.is_out(now.steady_ms) {
            self.leave(now);
            self.inherit(now);
        }
    }
}
