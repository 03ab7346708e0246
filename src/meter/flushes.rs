//! How long the syncs of the log take, and how long senders wait for them.

use super::{Histogram, Latency, nanos};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Measures flushes. All are timed: next to a sync a look at the clock costs nothing.
#[derive(Debug, Default)]
pub struct FlushMeter {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    waits: Histogram,
}

/// What a [`FlushMeter`] has measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushes {
    /// Syncs of the log.
    pub count: u64,
    /// Time spent in them.
    pub total: Duration,
    /// The longest of them.
    pub longest: Duration,
    /// How long each sender, or ticket, waited until its message was durable.
    pub waits: Latency,
}

impl FlushMeter {
    /// Counts a sync of the log.
    pub fn flushed(&self, took: Duration) {
        let took = nanos(took);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(took, Ordering::Relaxed);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
    }

    /// Counts one who waited for a sync.
    pub fn waited(&self, time: Duration) {
        self.waits.add(time, 1);
    }

    /// What was measured so far.
    pub fn read(&self) -> Flushes {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        Flushes {
            count: self.count.load(Ordering::Relaxed),
            total: time(&self.total_ns),
            longest: time(&self.longest_ns),
            waits: self.waits.read(),
        }
    }
}
