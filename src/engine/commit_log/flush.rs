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

use super::shared::Shared;
use super::state::Mark;
use crate::mapped::TransientPool;
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

/// When the transient pool is written out.
#[derive(Clone, Copy, Debug)]
pub struct WriteOutRules {
    /// How long bytes wait at most.
    pub interval: Duration,
    /// So many do not wait for the interval.
    pub least_bytes: u64,
    /// Whether a full pool refuses appends.
    pub fail_fast: bool,
}

/// One look of the write-out service at the pool, after a pause or because a buffer is full.
pub fn step_write_out(shared: &Shared, time: Instant, written: &mut Instant) {
    let waiting = shared.wrote().saturating_sub(shared.log.published());
    let waited = time.saturating_duration_since(*written) >= shared.write_out_rules.interval;
    let full = shared.pool.as_ref().is_some_and(TransientPool::has_full);
    if waiting >= shared.write_out_rules.least_bytes.max(1) || waited || full {
        // A failure has made the store fail for writers.
        let _ = shared.write_out();
        *written = time;
    }
}

/// Between the end of a full pass and the next lie this many times what it took.
const PASS_PAUSE: u32 = 20;

/// A log file that is full, durable and not read for so long is unmapped.
const UNMAP_EACH: Duration = Duration::from_secs(10);

/// The state of the service.
#[derive(Debug)]
pub struct FlushService {
    /// When the log was last as durable as it was written.
    flushed: Instant,
    /// When the next full pass is due.
    pass_due: Instant,
    /// When log files that nobody reads are unmapped.
    unmap_due: Instant,
}

impl FlushService {
    /// The service of a store that was opened at `start`.
    pub fn new(rules: &FlushRules, start: Instant) -> FlushService {
        FlushService {
            flushed: start,
            pass_due: start + rules.full_pass,
            unmap_due: start + UNMAP_EACH,
        }
    }

    /// Does what is due at `time`; returns when it wants to run next. A failure has made the store
    /// fail for writers; there is nobody here to tell.
    pub fn step(&mut self, shared: &Shared, time: Instant) -> Instant {
        let rules = &shared.flush_rules;
        let end = shared.log.published();
        let behind = end.saturating_sub(shared.log.state.get(Mark::Durable));
        let waited = time.saturating_duration_since(self.flushed) >= rules.thorough;
        if behind == 0 || ((behind >= rules.least_bytes || waited) && shared.flush_to(end).is_ok())
        {
            self.flushed = time;
        }
        let _ = shared.save_table();
        shared.queues.unmap_idle();
        if time >= self.unmap_due {
            // Below the mark nothing is synced or dispatched again.
            shared
                .log
                .files
                .unmap_unused(shared.log.state.get(Mark::Settled));
            self.unmap_due = time + UNMAP_EACH;
        }
        if time >= self.pass_due {
            let started = Instant::now();
            let _ = shared.settle();
            self.pass_due = time + rules.full_pass.max(started.elapsed() * PASS_PAUSE);
        }
        time + rules.interval
    }
}
