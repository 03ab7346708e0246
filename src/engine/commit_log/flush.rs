//! The flush service: makes the log durable where no sender waits for it, and now and then
//! everything.
//!
//! Each [`FlushRules::interval`] it looks at what is not durable. At least
//! [`FlushRules::least_bytes`] are flushed at once; less waits for [`FlushRules::thorough`], so
//! that a trickle of messages does not keep the disk busy. In a synchronous store readers see what
//! is durable alone, so there nothing waits.
//!
//! A *full pass* makes queues, index and tables durable too and moves the marks that spare the next
//! opening their rebuild. It may take long, with many queues, so it keeps to a share of the time.

use super::durability::Durable;
use crate::mapped::PAGE;
use crate::options::{Flush, Options};
use std::time::{Duration, Instant};

/// When the log is flushed.
#[derive(Clone, Copy, Debug)]
pub struct FlushRules {
    /// Between two looks.
    pub interval: Duration,
    /// Fewer bytes wait.
    pub least_bytes: u64,
    /// How long they wait at most.
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
            // The service takes a breath however short the interval is.
            interval: options.flush_interval.max(Duration::from_millis(1)),
            least_bytes: u64::from(pages) * PAGE as u64,
            thorough: options.flush_thorough_interval,
            full_pass: options.queue_flush_interval,
        }
    }
}

/// Between the end of a full pass and the next lie this many times what it took.
const PASS_PAUSE: u32 = 20;

/// A log file that is full, durable and not read for so long is unmapped.
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

    /// Does what is due at `time`; returns when it wants to run next. A failure has made the store
    /// fail for writers; there is nobody here to tell.
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
