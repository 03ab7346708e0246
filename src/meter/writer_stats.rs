//! The measurements that a writer publishes for other processes.

use super::{Flushes, Meters, Summary};
use std::time::{Duration, Instant};

/// The measurements that a live writer publishes for other processes. [`Stats`](crate::Stats)
/// explains the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriterStats {
    /// The process that writes; in a shared store, the one that runs the services for all.
    pub pid: u32,
    /// How long ago these values last changed. The writer checks about once a second.
    pub age: Duration,
    /// Messages that it has appended.
    pub messages_sent: u64,
    /// Bytes that it has appended to the log.
    pub bytes_sent: u64,
    /// Messages a second in the recent window.
    pub recent_messages: f64,
    /// Bytes a second in the recent window.
    pub recent_bytes: f64,
    /// How long puts take.
    pub puts: Summary,
    /// Puts that took longer than 500 ms.
    pub slow_puts: u64,
    /// Syncs of the log.
    pub flushes: u64,
    /// Time spent in them.
    pub flush_time: Duration,
    /// The longest of them.
    pub longest_flush: Duration,
    /// How long senders waited until their messages were durable.
    pub waits: Summary,
}

impl WriterStats {
    /// The measurements of this process, which has appended messages and bytes as in `counters`.
    pub fn measure(counters: (u64, u64), meters: &Meters, flushes: &Flushes) -> WriterStats {
        let now = Instant::now();
        meters.rates.sample(now, || counters);
        let (messages_sent, bytes_sent) = counters;
        let rates = meters.rates.rates(now, messages_sent, bytes_sent);
        let puts = meters.puts.read();
        WriterStats {
            pid: std::process::id(),
            age: Duration::ZERO,
            messages_sent,
            bytes_sent,
            recent_messages: rates.recent_messages,
            recent_bytes: rates.recent_bytes,
            puts: puts.latency.summary(),
            slow_puts: puts.slow,
            flushes: flushes.count,
            flush_time: flushes.total,
            longest_flush: flushes.longest,
            waits: flushes.waits.summary(),
        }
    }
}
