//! How many messages were read and delivered.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts messages that were handed out.
#[derive(Debug, Default)]
pub struct GetMeter {
    read: AtomicU64,
    delivered: AtomicU64,
    delivered_again: AtomicU64,
}

/// Messages handed out since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gets {
    /// Messages that reads, queries and tails returned.
    pub read: u64,
    /// Messages that consumers got.
    pub delivered: u64,
    /// Those of them that had been delivered before and were not settled.
    pub delivered_again: u64,
}

impl GetMeter {
    /// Counts messages that were read.
    pub fn read(&self, messages: usize) {
        self.read.fetch_add(messages as u64, Ordering::Relaxed);
    }

    /// Counts messages that a consumer got, of which `again` had been delivered before.
    pub fn delivered(&self, messages: usize, again: usize) {
        self.delivered.fetch_add(messages as u64, Ordering::Relaxed);
        self.delivered_again
            .fetch_add(again as u64, Ordering::Relaxed);
    }

    /// The counts.
    pub fn counts(&self) -> Gets {
        Gets {
            read: self.read.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            delivered_again: self.delivered_again.load(Ordering::Relaxed),
        }
    }
}
