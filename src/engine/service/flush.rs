//! The flush service: flushes what no sender waits for, and makes a full pass from time to time.
//!
//! Each [`FlushRules::interval`] it checks how many bytes are not durable. It flushes
//! [`FlushRules::least_bytes`] or more at once; fewer wait for [`FlushRules::thorough`], so that a
//! trickle of messages does not keep the disk busy. In a synchronous store nothing waits, because
//! readers see only what is durable.
//!
//! A *full pass* also makes queues, index and tables durable and moves the marks that spare the
//! next opening a rebuild. It may take long with many queues, so it keeps to a share of the time.

use super::durability::Durable;
use crate::options::{Flush, Options};
use crate::region::PAGE;
use std::time::{Duration, Instant};

/// When the log is flushed.
#[derive(Clone, Copy, Debug)]
pub struct FlushRules {
    /// Between two checks.
    pub interval: Duration,
    /// This many bytes do not wait.
    pub least_bytes: u64,
    /// How long fewer bytes wait at most.
    pub thorough: Duration,
    /// Between two full passes.
    pub full_pass: Duration,
}

impl FlushRules {
    /// The rules of a store with these options.
    pub fn new(options: &Options) -> FlushRules {
        let pages = match options.flush() {
            Flush::Sync => 0,
            Flush::Async => options.flush_least_pages,
        };
        FlushRules {
            // However short the interval is, the service pauses.
            interval: options.flush_interval.max(Duration::from_millis(1)),
            least_bytes: u64::from(pages) * PAGE as u64,
            thorough: options.flush_thorough_interval,
            full_pass: options.queue_flush_interval,
        }
    }
}

/// The pause after a full pass is at least this many times as long as the pass.
const PASS_PAUSE: u32 = 20;

/// Between two searches for log files that nobody reads, to unmap them.
const UNMAP_EACH: Duration = Duration::from_secs(10);

/// The state of the service.
#[derive(Debug)]
pub struct FlushService {
    rules: FlushRules,
    /// When the log was last as durable as it was written.
    flushed: Instant,
    /// When the next full pass is due.
    pass_due: Instant,
    /// When log files that nobody reads are unmapped.
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

    /// Does what is due at `time`; returns when the next step is due. An error is dropped: it has
    /// failed the store for writers already.
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
