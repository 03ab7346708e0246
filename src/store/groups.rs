//! Consumers and the progress of their groups.

use super::Store;
use crate::bound::Bound;
use crate::consumer::{Anchor, Consumer, ConsumerOptions, GroupQueue, ProgressRow, record};
use crate::disk::Disk;
use crate::engine::partition_log::segments::names::is_log_directory;
use crate::error::Result;
use crate::table::TablePlace;
#[cfg(doc)]
use crate::{engine::Engine, error::Error};
use std::path::Path;
use std::sync::Arc;

/// Sets rows of the table of offsets of the store at `root`, for groups that consume elsewhere, and
/// keeps all others. Durable on return.
///
/// # Errors
///
/// [`Error::Corrupt`] and [`Error::Unsupported`] if the table exists but cannot be read; it is then
/// left unchanged. [`Error::Busy`] if another process keeps the table locked; [`Error::Io`].
pub fn record_progress(disk: &Arc<dyn Disk>, root: &Path, rows: &[ProgressRow]) -> Result<()> {
    let (own, root) = (Arc::clone(disk), root.to_owned());
    let place = match is_log_directory(&**disk, &root)? {
        true => TablePlace::flat(own, root),
        false => TablePlace::nested(own, root),
    };
    record(&place, rows)
}

impl Store {
    /// A consumer of `topics` in `group`; see [`Consumer`]. Missing topics are created.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::InvalidTopic`]; [`Error::ReadOnly`] if the store is not
    /// open for writing; [`Error::Corrupt`] if the table of offsets cannot be read; errors of
    /// reading.
    pub fn consumer(
        &self,
        topics: &[&str],
        group: &str,
        options: ConsumerOptions,
    ) -> Result<Consumer> {
        self.consumers()?.consumer(topics, group, options)
    }

    /// The consumers of this process. A child of the process that opened a shared store has its
    /// own.
    pub(super) fn consumers(&self) -> Result<&Arc<Anchor>> {
        match self.is_forked() {
            false => Ok(&self.consumers),
            true => Ok(&self.above()?.consumers),
        }
    }

    /// Delivers the messages that became due when the clock of [`Store::open_with_clock`] was
    /// moved.
    ///
    /// # Errors
    ///
    /// Those of sending and of storing progress; [`Error::Closed`], [`Error::Forked`].
    pub fn clock_moved(&self) -> Result<()> {
        self.engine()?;
        self.consumers()?.clock_moved()
    }

    /// A number that grows when consumers may get messages without a send: a message was refused or
    /// is due again, or a queue has another owner. Threads in [`Engine::wait_until`] are woken
    /// then.
    pub fn changes(&self) -> u64 {
        self.consumers().map_or(0, |consumers| consumers.changes())
    }

    /// The position from which retention must keep the log for groups of consumers.
    #[cfg(test)]
    pub(crate) fn keep_from(&self) -> Result<u64> {
        self.consumers.keep_from()
    }

    /// Called by retention before it deletes the log below `until`.
    #[cfg(test)]
    pub(crate) fn let_go(&self, until: u64) -> Result<bool> {
        self.consumers.let_go(until)
    }

    /// Calls `run` while this process has the owners of queues locked; in a shared store.
    #[cfg(test)]
    pub(crate) fn while_owners_are_locked<T>(&self, run: impl FnOnce() -> T) -> Result<T> {
        self.consumers.while_locked(run)
    }

    /// The progress of each group in each queue.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the table of offsets cannot be read; errors of reading.
    pub fn groups(&self) -> Result<Vec<GroupQueue>> {
        self.groups_while(&mut || true)
    }

    /// As [`Store::groups`]. Calls `go_on` after every few thousand messages that are not consumed;
    /// once it returns false, the remaining queues are left out.
    ///
    /// # Errors
    ///
    /// As [`Store::groups`].
    pub fn groups_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<GroupQueue>> {
        self.consumers()?.groups(go_on)
    }

    /// Sets the progress of `group` in `topic`. Durable on return. Consumers of this process
    /// continue there, and their current deliveries become invalid.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`];
    /// [`Error::ReadOnly`]; [`Error::Corrupt`] if the table of offsets cannot be read.
    pub fn reset_offsets(&self, group: &str, topic: &str, to: &Bound) -> Result<()> {
        self.consumers()?.reset_offsets(group, topic, to)
    }
}
