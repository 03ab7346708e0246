//! Rates over a recent window, from counters that callers sample from time to time.

use crate::sync::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Length of the window of the recent rates.
const WINDOW: Duration = Duration::from_secs(10);
/// Minimum time between two samples.
const APART: Duration = Duration::from_millis(500);

/// Messages and bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Messages a second since the store was opened.
    /// Messages a second since the store was opened.
    pub messages: f64,
    /// Bytes of the log a second since the store was opened.
    pub bytes: f64,
    /// Messages a second in the recent window.
    pub recent_messages: f64,
    /// Bytes a second in the recent window.
    pub recent_bytes: f64,
}

/// Samples of the counters. There is no timer: callers on frequent paths take the samples.
#[derive(Debug)]
pub struct RateSampler {
    opened: Instant,
    samples: Mutex<VecDeque<Sample>>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    messages: u64,
    bytes: u64,
}

impl Default for RateSampler {
    /// Sampler for a store that opens at this moment.
    fn default() -> RateSampler {
        let opened = Instant::now();
        let first = Sample {
            at: opened,
            messages: 0,
            bytes: 0,
        };
        RateSampler {
            opened,
            samples: Mutex::new(VecDeque::from([first])),
        }
    }
}

impl RateSampler {
    /// Takes a sample, unless the last one is recent or another thread is taking one. `counters`
    /// returns messages and bytes since opening.
    pub fn sample(&self, now: Instant, counters: impl FnOnce() -> (u64, u64)) {
        let Some(mut samples) = self.samples.try_lock() else {
            return;
        };
        let last = samples.back().map_or(self.opened, |sample| sample.at);
        if now.saturating_duration_since(last) < APART {
            return;
        }
        let (messages, bytes) = counters();
        samples.push_back(Sample {
            at: now,
            messages,
            bytes,
        });
        // Keep one sample that is older than the window: the window starts there.
        let old = |sample: &Sample| now.saturating_duration_since(sample.at) >= WINDOW;
        while samples.get(1).is_some_and(old) {
            samples.pop_front();
        }
    }

    /// The rates at `now`, when the counters have these values. The window is ten seconds, extended
    /// to the sample before, or the lifetime of the store if that is shorter.
    pub fn rates(&self, now: Instant, messages: u64, bytes: u64) -> Rates {
        let start = self.start_of_window(now);
        let rate = |count: u64, since: Instant| match now.saturating_duration_since(since) {
            Duration::ZERO => 0.0,
            time => count as f64 / time.as_secs_f64(),
        };
        Rates {
            messages: rate(messages, self.opened),
            bytes: rate(bytes, self.opened),
            recent_messages: rate(messages.saturating_sub(start.messages), start.at),
            recent_bytes: rate(bytes.saturating_sub(start.bytes), start.at),
        }
    }

    /// The newest sample that is as old as the window, or else the first one.
    fn start_of_window(&self, now: Instant) -> Sample {
        let samples = self.samples.lock();
        let old = |sample: &&Sample| now.saturating_duration_since(sample.at) >= WINDOW;
        let found = samples.iter().rev().find(old).or(samples.front());
        found.copied().unwrap_or(Sample {
            at: self.opened,
            messages: 0,
            bytes: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < wanted * 1e-6 + 1e-9
    }

    #[test]
    fn recent_rates_ignore_what_is_older_than_the_window() {
        let sampler = RateSampler::default();
        let after = |seconds: u64| sampler.opened + Duration::from_secs(seconds);
        // 1,000 messages a second for 20 seconds, then 10 a second for 20 more.
        let sent = |seconds: u64| seconds.min(20) * 1000 + seconds.saturating_sub(20) * 10;
        for second in 1..=40 {
            sampler.sample(after(second), || (sent(second), sent(second) * 100));
        }
        let found = sampler.rates(after(40), sent(40), sent(40) * 100);
        assert!(near(found.messages, 20_200.0 / 40.0));
        assert!(near(found.recent_messages, 10.0), "{found:?}");
        assert!(near(found.recent_bytes, 1000.0), "{found:?}");
        assert!(sampler.samples.lock().len() <= 12);
    }

    #[test]
    fn a_store_younger_than_the_window_has_equal_rates() {
        let sampler = RateSampler::default();
        let now = sampler.opened + Duration::from_secs(2);
        sampler.sample(now, || (300, 3000));
        let found = sampler.rates(now, 400, 4000);
        assert!(near(found.messages, 200.0) && near(found.recent_messages, 200.0));
    }

    #[test]
    fn a_long_pause_lowers_the_recent_rate() {
        let sampler = RateSampler::default();
        let after = |seconds: u64| sampler.opened + Duration::from_secs(seconds);
        sampler.sample(after(1), || (1_000_000, 1));
        let found = sampler.rates(after(1001), 1_000_010, 1);
        assert!(near(found.recent_messages, 0.01), "{found:?}");
    }

    #[test]
    fn samples_close_together_are_skipped() {
        let sampler = RateSampler::default();
        for milli in 0..1000 {
            sampler.sample(sampler.opened + Duration::from_millis(milli), || (milli, 0));
        }
        assert_eq!(sampler.samples.lock().len(), 2);
    }
}
