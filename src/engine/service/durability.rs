//! What services ask of the log that they make durable, whatever its format is.

use crate::error::Result;
use std::time::Duration;

/// A log that is appended to, and made durable by services.
pub trait Durable: Send + Sync + 'static {
    /// End of what is published.
    fn published(&self) -> u64;

    /// End of what is durable.
    fn durable(&self) -> u64;

    /// Makes the log durable up to `position`.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`](crate::error::Error::Failed): the writing has ended for good.
    fn flush_to(&self, position: u64) -> Result<()>;

    /// Counts how long an append has waited for its flush.
    fn count_wait(&self, waited: Duration);

    /// Makes everything durable, and moves the marks that spare the next opening its work.
    fn full_pass(&self) -> Result<()>;

    /// Saves tables that have changed, and closes what nobody uses.
    fn tidy(&self);

    /// Unmaps log files that are durable and not read.
    fn unmap_unused(&self);
}
