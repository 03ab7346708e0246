//! Appending what other processes have staged, and what the store appends for itself.

use super::{Atomicity, Engine, Topic};
use crate::error::Result;
use crate::record::Batch;

/// An engine that takes up staged rows; see `staging` of an [`Engine`].
pub trait Staging: Engine {
    /// Appends rows that other processes have staged, and returns their end. Starts writing them to
    /// the disk, so that a following flush has little left to do. The owner of the store did not
    /// send them: a failure is not counted among its sends.
    fn append_staged(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
    ) -> Result<u64>;

    /// Makes the log durable up to `end`, the end of an append. Syncs nothing if it already is.
    fn flush_to(&self, end: u64) -> Result<()>;

    /// Lets readers, here and in other processes, see the log up to `end`, or up to its end when
    /// the call began if that is less. Reads leave out messages that cannot be published because
    /// the disk is full; this call reports it as an error.
    fn make_readable(&self, end: u64) -> Result<()>;
}
