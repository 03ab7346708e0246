//! What was appended comes to readers: what the transient pool holds is written out to the files,
//! and dispatched.

use super::Parts;
use crate::error::Result;
use crate::mapped::TransientPool;
use crate::options::Options;
use crate::region::PAGE;
use std::time::{Duration, Instant};

/// When the transient pool is written out.
#[derive(Clone, Copy, Debug)]
pub struct WriteOutRules {
    /// How long bytes wait at most.
    pub interval: Duration,
    /// This many bytes do not wait for the interval.
    least_bytes: u64,
}

impl WriteOutRules {
    /// The rules of a store with these options.
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
            // A failure has made the store fail for writers.
            let _ = parts.write_out();
            *written = time;
        }
    }
}

impl Parts {
    /// End of what was appended, readable or not.
    pub fn wrote(&self) -> u64 {
        self.pool
            .as_ref()
            .map_or_else(|| self.log.published(), TransientPool::wrote)
    }

    /// Writes out what the transient pool holds, so that readers see it.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`](crate::error::Error::Failed): the writing has ended.
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

    /// Builds queues and index up to what may be read, where this process writes the store. After a
    /// failure readers see what was there before.
    #[inline]
    pub fn catch_up(&self) {
        if !self.is_written() {
            return;
        }
        // A failure has made the store fail for writers.
        let _ = self.write_out();
        let end = self.log.readable_end();
        if self.dispatcher.dispatched() < end {
            self.dispatch_to(end);
        }
    }

    /// Builds queues and index at least up to `end`, or up to all that was appended before if that
    /// is less, so that readers see it.
    ///
    /// # Errors
    ///
    /// Those of building them, which [`Parts::catch_up`] leaves out.
    pub fn make_readable(&self, end: u64) -> Result<()> {
        let end = end.min(self.wrote());
        if self.log.sync {
            // There readers see what is durable alone.
            self.flush_to(end)?;
        } else if self.log.published() < end {
            self.write_out()?;
        }
        self.dispatcher.catch_up(self.log.readable_end())
    }

    /// Builds queues and index up to `end`. A failure that does not pass ends the writing.
    pub fn dispatch_to(&self, end: u64) {
        if let Err(error) = self.dispatcher.catch_up(end)
            && error.ends_writing()
        {
            self.fail(&error);
        }
    }
}
