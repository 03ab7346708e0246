//! The flush service: flushes what no sender waits for, and makes a full pass from time to time.
//!
//! Each [`FlushRules::interval`] it checks how many bytes are not durable. It flushes
//! [`FlushRules::least_bytes`] or more at once; fewer wait for [`FlushRules::thorough`], so that a
//! trickle of messages does not keep the disk busy. In a synchronous store nothing waits, because
//! readers see only durable bytes.
//!
//! A *full pass* also makes queues, index and tables durable, and moves the marks that save the
//! next opening a rebuild. It may take long with many queues, so it runs a limited share of the
//! time.

use super::durability::Durable;
use crate::options::{Flush, Options};
use crate::region::PAGE;
use std::time::{Duration, Instant};

/// When the log is flushed.
#[derive(Clone, Copy, Debug)]
pub struct FlushRules {
    /// Time between two checks.
    pub interval: Duration,
    /// This many bytes are flushed at once.
    pub least_bytes: u64,
    /// Longest time that fewer bytes wait.
    pub thorough: Duration,
    /// Time between two full passes.
    pub full_pass: Duration,
}

impl FlushRules {
    /// The rules for a store with these options.
    pub fn new(options: &Options) -> FlushRules {
        let pages = match options.flush() {
            Flush::Sync => 0,
            Flush::Async => options.flush_least_pages,
        };
        FlushRules {
            // The service pauses even if the interval is 0.
            interval: options.flush_interval.max(Duration::from_millis(1)),
            least_bytes: u64::from(pages) * PAGE as u64,
            thorough: options.flush_thorough_interval,
            full_pass: options.queue_flush_interval,
        }
    }
}

/// The pause after a full pass is at least this many times as long as the pass.
const PASS_PAUSE: u32 = 20;

/// Time between two searches for unused log files to unmap.
const UNMAP_EACH: Duration = Duration::from_secs(10);

/// The state of the service.
#[derive(Debug)]
pub struct FlushService {
    rules: FlushRules,
    /// When all written bytes were last durable.
    flushed: Instant,
    /// When the next full pass is due.
    pass_due: Instant,
    /// When unused log files are unmapped next.
    unmap_due: Instant,
}

impl FlushService {
    /// The service of a store that was opened at `start`.
    pub fn new(rules: FlushRules, start: Instant) -> FlushService {
        FlushService {
            rules,
            flushed: start,
            pass_due: start + rules.full_pass,
            unmap_due: start + UNMAP_EACH,
        }
    }

    /// Does what is due at `time`; returns when the next step is due. Errors are ignored: they have
    /// already failed the store for writers, or the next step tries again.
    pub fn step(&mut self, log: &impl Durable, time: Instant) -> Instant {
        let rules = &self.rules;
        let end = log.published();
        let behind = end.saturating_sub(log.durable());
        let waited = time.saturating_duration_since(self.flushed) >= rules.thorough;
        if behind == 0 || ((behind >= rules.least_bytes || waited) && log.flush_to(end).is_ok()) {
            self.flushed = time;
        }
        log.tidy();
        if time >= self.unmap_due {
            log.unmap_unused();
            self.unmap_due = time + UNMAP_EACH;
        }
        if time >= self.pass_due {
            let started = Instant::now();
            let _ = log.full_pass();
            self.pass_due = time + rules.full_pass.max(started.elapsed() * PASS_PAUSE);
        }
        time + rules.interval
    }
}
