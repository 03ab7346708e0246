//! How a consumer joins its group, and joins it again after others have removed it.
//!
//! In a shared store, a process that has hung for the session time-out loses its consumers. Each
//! thread that polls then notices that the consumer is no longer a member. One of them joins again:
//! if each did, the members that nobody polls for would keep their queues until the process ends.

use super::group::{Ground, Joining};
use super::member::Consumer;
use super::patience::Patience;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Consumer {
    /// Calls `attempt`, in a shared store until no other process has the table of groups locked;
    /// see [`Patience`]. The caller holds no lock.
    pub(super) fn patiently<T>(&self, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        self.patiently_with(&mut Patience::default(), attempt)
    }

    pub(super) fn patiently_with<T>(
        &self,
        patience: &mut Patience,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match self.group.occupation() {
            Some(occupation) => patience.repeat(occupation.table(), attempt),
            None => attempt(),
        }
    }

    /// Joins the group.
    pub(super) fn join_group(&self, joining: Joining<'_>) -> Result<()> {
        let (topics, options) = (&self.topics, (&self.options, joining));
        let join = |it: Ground<'_>| self.group.join(it, self.number(), topics, options);
        self.number
            .store(self.with_ground(join)?, Ordering::Release);
        self.shared.stir();
        Ok(())
    }

    /// Joins the group after others have removed this consumer, unless another thread has done so
    /// meanwhile. Does not wait for the table of a shared store.
    ///
    /// # Errors
    ///
    /// [`Error::ConsumerClosed`]; those of the table of a shared store.
    pub(super) fn join_again(&self) -> Result<()> {
        let mut prepared = self.joining.lock();
        self.check_open()?;
        let removed = self.number();
        if self.group.has(removed) {
            return Ok(());
        }
        self.join_group(Joining::Again(&mut prepared))?;
        self.group.forget(removed);
        Ok(())
    }

    /// Number of the member. In a shared store, no consumer of any process has the same.
    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Gives the consumer another number, and returns its own.
    #[cfg(test)]
    pub fn swap_number(&self, number: u64) -> u64 {
        self.number.swap(number, Ordering::AcqRel)
    }

    /// Checks that this consumer is still a member. Other processes remove it when its process has
    /// shown no sign of life for the session time-out.
    pub(super) fn check_member(&self) -> Result<()> {
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
}

#[cfg(test)]
impl super::Consumers {
    /// Calls `run` while this process has the owners of queues locked.
    pub(crate) fn while_locked<T>(&self, run: impl FnOnce() -> T) -> Result<T> {
        let Some(occupation) = self.occupation()? else {
            return Ok(run());
        };
        let _held = occupation.patiently(|| occupation.lock())?;
        Ok(run())
    }
}

/// For tests of a consumer that joins again.
#[cfg(test)]
impl Consumer {
    /// Removes the consumers of this process, as another process would, and calls `run` while the
    /// table is locked, so that no consumer can join. `run` gets a function that unlocks it.
    /// Returns the number of consumers in all groups afterwards.
    pub(crate) fn members_after_removal(&self, run: impl FnOnce(Box<dyn FnOnce() + '_>)) -> usize {
        let Ok(Some(occupation)) = self.shared.occupation() else {
            return 0;
        };
        let table = occupation.table();
        let _ = occupation.evict(table.own_slot(), 0);
        let held = occupation.lock();
        run(Box::new(|| drop(held)));
        table.members().count()
    }

    /// Whether a thread joins again.
    pub(crate) fn joins_again(&self) -> bool {
        self.joining.try_lock().is_none()
    }
}
