//! A queue of a shared store, as seen by a process that may own it.

use super::occupation::Occupation;
use super::patience::Threads;
use crate::engine::directory::group_table::Row;
use crate::engine::service::fence::{self, Fence, Fenced};
use crate::error::Result;
use std::sync::Arc;

/// Where a queue stands in the table of groups.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    occupation: Arc<Occupation>,
    row: u32,
}

/// What the table said when a process was given a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adopted {
    /// Epoch and progress.
    pub(super) fence: Fence,
    /// Number of the consumer that owns the queue.
    pub(super) owner: u64,
    /// When that consumer got the queue, in ms.
    pub(super) since: i64,
    /// What the previous owner published.
    pub(super) shown: Shown,
}

/// What an owner publishes about its queue, for other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// When its progress last moved, in ms.
    pub(super) moved: Option<i64>,
    /// Messages that are unsettled.
    pub(super) unsettled: u64,
    /// Messages that were refused, or not settled in time.
    pub(super) retries: u64,
}

impl Claim {
    pub(super) fn new(occupation: &Arc<Occupation>, row: u32) -> Claim {
        Claim {
            occupation: Arc::clone(occupation),
            row,
        }
    }

    fn row(&self) -> Row<'_> {
        self.occupation.table().row(self.row)
    }

    /// Epoch and progress.
    pub(super) fn fence(&self) -> Fence {
        self.row().fence()
    }

    /// Number of the consumer to which the queue goes next.
    pub(super) fn heir(&self) -> Option<u64> {
        self.row().heir()
    }

    /// Number of the consumer that owns the queue or will own it.
    pub(super) fn claimed_by(&self) -> Option<u64> {
        let row = self.row();
        row.heir().or(row.owner())
    }

    /// Epoch and progress from which this process continues; `None` if it does not own the queue.
    ///
    /// # Errors
    ///
    /// Those of locking the table.
    pub(super) fn adopt(&self, threads: Threads) -> Result<Option<Adopted>> {
        if !self.row().is_mine() {
            return Ok(None);
        }
        let adopted = self.occupation.adopt(self.row, threads)?;
        let row = self.row();
        let (unsettled, retries) = row.counts();
        Ok(adopted.map(|(fence, owner)| Adopted {
            fence,
            owner,
            since: row.since(),
            shown: Shown {
                moved: row.moved(),
                unsettled: u64::from(unsettled),
                retries: u64::from(retries),
            },
        }))
    }

    /// Stores the progress of the owner with `epoch`, and what it publishes. Returns `false` if it
    /// no longer owns the queue.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`] if the table cannot be accessed.
    pub(super) fn store(&self, epoch: u16, committed: u64, shown: Shown) -> Result<bool> {
        let row = self.row();
        let stored = fence::advance(&row, epoch, committed);
        if stored {
            let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
            row.show(shown.moved, short(shown.unsettled), short(shown.retries));
        }
        self.occupation.table().check().map(|()| stored)
    }

    /// Gives the queue to its heir, if the owner with `epoch` still has it.
    ///
    /// # Errors
    ///
    /// Those of locking the table.
    pub(super) fn hand_over(&self, epoch: u16, now: i64, threads: Threads) -> Result<()> {
        self.occupation.hand_over(self.row, epoch, (now, threads))
    }

    /// Makes the group continue at `offset`, whichever member owns the queue.
    ///
    /// # Errors
    ///
    /// As [`Claim::hand_over`]; [`crate::Error::Unsupported`] for an offset that does not fit.
    pub(super) fn reset(&self, offset: u64) -> Result<()> {
        self.occupation.reset(self.row, offset)
    }
}
