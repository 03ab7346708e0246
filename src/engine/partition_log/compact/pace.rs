//! Keeps compaction in the background below its bytes per second.

use super::stop::{Done, Stop};
use crate::engine::service::shutdown::Shutdown;
use std::time::{Duration, Instant};

/// The pace of one compaction.
pub(super) struct Pace<'a> {
    shutdown: &'a Shutdown,
    /// Bytes per second; `None` without a limit.
    rate: Option<u64>,
    began: Instant,
    spent: u64,
}

impl Pace<'_> {
    /// The pace of a compaction that begins. Its waits end when `shutdown` begins.
    pub(super) fn new(shutdown: &Shutdown, rate: Option<u64>) -> Pace<'_> {
        Pace {
            shutdown,
            rate,
            began: Instant::now(),
            spent: 0,
        }
    }

    /// Waits until `bytes` more may have been read.
    ///
    /// # Errors
    ///
    /// [`Stop::Asked`] if the store is being closed.
    pub(super) fn spend(&mut self, bytes: u64) -> Done<()> {
        self.spent += bytes;
        if let Some(rate) = self.rate {
            let nanos = u128::from(self.spent) * 1_000_000_000 / u128::from(rate.max(1));
            let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            while !self.shutdown.has_begun()
                && let Some(left) = due.checked_sub(self.began.elapsed())
                && !left.is_zero()
            {
                self.shutdown.sleep(left);
            }
        }
        match self.shutdown.has_begun() {
            true => Err(Stop::Asked),
            false => Ok(()),
        }
    }
}
