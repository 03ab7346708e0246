//! How long the syncs of the log take, and how long senders wait for them.

use super::{Histogram, Latency, SLOW, nanos};
use crate::warning::{Warning, Warnings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Measures flushes. All are timed: reading the clock costs nothing compared to a sync.
#[derive(Debug, Default)]
pub struct FlushMeter {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    waits: Histogram,
    warnings: Arc<Warnings>,
}

/// The measurements of a [`FlushMeter`].
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
    /// A meter that adds slow syncs to `warnings`.
    pub fn new(warnings: &Arc<Warnings>) -> FlushMeter {
        FlushMeter {
            warnings: Arc::clone(warnings),
            ..FlushMeter::default()
        }
    }

    /// Counts a sync of `bytes` bytes of the log. One that takes longer than 500 ms adds a warning.
    pub fn flushed(&self, bytes: u64, took: Duration) {
        if took > SLOW {
            self.warnings.add(Warning::SlowFlush { bytes, took });
        }
        let took = nanos(took);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(took, Ordering::Relaxed);
        self.longest_ns.fetch_max(took, Ordering::Relaxed);
    }

    /// Counts a sender that waited for a sync.
    pub fn waited(&self, time: Duration) {
        self.waits.add(time, 1);
    }

    /// The measurements so far.
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

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_flush_longer_than_half_a_second_warns_once() {
        let warnings = Arc::default();
        let meter = FlushMeter::new(&warnings);
        meter.flushed(100, Duration::from_millis(500));
        assert!(!warnings.any());
        let took = Duration::from_millis(501);
        meter.flushed(4096, took);
        let found = warnings.take();
        assert_eq!(found, [Warning::SlowFlush { bytes: 4096, took }]);
        assert!(warnings.take().is_empty());
        assert_eq!(meter.read().count, 2);
    }
}
