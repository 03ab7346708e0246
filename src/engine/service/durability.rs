//! The interface between services and the log that they make durable, whatever its format.

use crate::error::Result;
use std::time::Duration;

/// A log that services make durable.
pub trait Durable: Send + Sync + 'static {
    /// End of the published bytes.
    fn published(&self) -> u64;

    /// End of the durable bytes.
    fn durable(&self) -> u64;

    /// Makes the log durable up to `position`.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`](crate::error::Error::Failed): writing has failed for good.
    fn flush_to(&self, position: u64) -> Result<()>;

    /// Counts how long an append has waited for its flush.
    fn count_wait(&self, waited: Duration);

    /// Makes everything durable, and moves the marks that save the next opening a rebuild.
    fn full_pass(&self) -> Result<()>;

    /// Saves changed tables, and closes unused files.
    fn tidy(&self);

    /// Unmaps log files that are durable and not read.
    fn unmap_unused(&self);
}
