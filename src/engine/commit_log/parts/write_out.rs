//! Makes appended messages visible to readers: writes the transient pool out to the files, and
//! dispatches.

use super::Parts;
use crate::error::Result;
use crate::mapped::TransientPool;
use crate::options::Options;
use crate::region::PAGE;
use std::time::{Duration, Instant};

/// When the transient pool is written out.
#[derive(Clone, Copy, Debug)]
pub struct WriteOutRules {
    /// Maximum time that bytes wait.
    pub interval: Duration,
    /// At least this many bytes are written out without waiting.
    least_bytes: u64,
}

impl WriteOutRules {
    /// The rules for a store with these options.
    pub fn new(options: &Options) -> WriteOutRules {
        WriteOutRules {
            interval: options.commit_interval.max(Duration::from_millis(1)),
            least_bytes: u64::from(options.commit_least_pages) * PAGE as u64,
        }
    }

    /// One step of the write-out service, after a pause or because a buffer is full. `written`:
    /// when the pool was last written out.
    pub fn step(&self, parts: &Parts, time: Instant, written: &mut Instant) {
        let waiting = parts.wrote().saturating_sub(parts.log.published());
        let waited = time.saturating_duration_since(*written) >= self.interval;
        let full = parts.pool.as_ref().is_some_and(TransientPool::has_full);
        if waiting >= self.least_bytes.max(1) || waited || full {
            // A failure has already failed the store for writers.
            let _ = parts.write_out();
            *written = time;
        }
    }
}

impl Parts {
    /// End of the appended bytes, readable or not.
    pub fn wrote(&self) -> u64 {
        self.pool
            .as_ref()
            .map_or_else(|| self.log.published(), TransientPool::wrote)
    }

    /// Writes out the transient pool, so that readers see its messages.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`](crate::error::Error::Failed): writing has ended.
    pub fn write_out(&self) -> Result<()> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        if pool.wrote() <= self.log.published() {
            return Ok(());
        }
        self.health.check_appended()?;
        let written = pool.write_out(|end| self.log.publish(end));
        written.map_err(|error| self.fail_appended(&error))?;
        self.tell_readers();
        Ok(())
    }

    /// Builds queues and index up to the readable end, if this process writes the store. After a
    /// failure readers see what they saw before.
    #[inline]
    pub fn catch_up(&self) {
        if !self.is_written() {
            return;
        }
        // A failure has already failed the store for writers.
        let _ = self.write_out();
        let end = self.log.readable_end();
        if self.dispatcher.dispatched() < end {
            self.dispatch_to(end);
        }
    }

    /// Builds queues and index at least up to `end`, or up to the end of the log at the call if
    /// that is less, so that readers see it.
    ///
    /// # Errors
    ///
    /// Errors of dispatch, which [`Parts::catch_up`] ignores.
    pub fn make_readable(&self, end: u64) -> Result<()> {
        let end = end.min(self.wrote());
        if self.log.sync {
            // Here readers see only durable messages.
            self.flush_to(end)?;
        } else if self.log.published() < end {
            self.write_out()?;
        }
        self.dispatcher.catch_up(self.log.readable_end())
    }

    /// Builds queues and index up to `end`. A permanent failure ends writing.
    pub fn dispatch_to(&self, end: u64) {
        if let Err(error) = self.dispatcher.catch_up(end)
            && error.ends_writing()
        {
            self.fail(&error);
        }
    }
}
