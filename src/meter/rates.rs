//! Rates over a recent window, from counters that are looked at now and then.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far back the recent rates look.
const WINDOW: Duration = Duration::from_secs(10);
/// Looks that are closer together than this are one.
const APART: Duration = Duration::from_millis(500);

/// Messages and bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Messages a second since the store was opened.
    pub messages: f64,
    /// Bytes of the log a second since the store was opened.
    pub bytes: f64,
    /// Messages a second lately.
    pub recent_messages: f64,
    /// Bytes a second lately.
    pub recent_bytes: f64,
}

/// Counters as they stood at some moments. There is no timer: whoever passes by looks.
#[derive(Debug)]
pub struct Looks {
    opened: Instant,
    looks: Mutex<VecDeque<Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    messages: u64,
    bytes: u64,
}

impl Default for Looks {
    /// Looks of a store that is opened at this moment.
    fn default() -> Looks {
        let opened = Instant::now();
        let first = Look {
            at: opened,
            messages: 0,
            bytes: 0,
        };
        Looks {
            opened,
            looks: Mutex::new(VecDeque::from([first])),
        }
    }
}

impl Looks {
    /// Takes a look, unless one was just taken or is being taken. `counters` gives messages and
    /// bytes since opening.
    pub fn look(&self, now: Instant, counters: impl FnOnce() -> (u64, u64)) {
        let Some(mut looks) = self.looks.try_lock() else {
            return;
        };
        let last = looks.back().map_or(self.opened, |look| look.at);
        if now.saturating_duration_since(last) < APART {
            return;
        }
        let (messages, bytes) = counters();
        looks.push_back(Look {
            at: now,
            messages,
            bytes,
        });
        // One that is older than the window is kept, for the window to begin with.
        let old = |look: &Look| now.saturating_duration_since(look.at) >= WINDOW;
        while looks.get(1).is_some_and(old) {
            looks.pop_front();
        }
    }

    /// The rates at `now`, when the counters stand at these values. The window is ten seconds and
    /// what lies between two looks, or the life of the store where that is shorter.
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

    /// The newest look that is as old as the window, else the first one.
    fn start_of_window(&self, now: Instant) -> Look {
        let looks = self.looks.lock();
        let old = |look: &&Look| now.saturating_duration_since(look.at) >= WINDOW;
        let found = looks.iter().rev().find(old).or(looks.front());
        found.copied().unwrap_or(Look {
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
    fn recent_rates_forget_what_is_older_than_the_window() {
        let looks = Looks::default();
        let after = |seconds: u64| looks.opened + Duration::from_secs(seconds);
        // 1,000 messages a second for 20 seconds, then 10 a second for 20 more.
        let sent = |seconds: u64| seconds.min(20) * 1000 + seconds.saturating_sub(20) * 10;
        for second in 1..=40 {
            looks.look(after(second), || (sent(second), sent(second) * 100));
        }
        let found = looks.rates(after(40), sent(40), sent(40) * 100);
        assert!(near(found.messages, 20_200.0 / 40.0));
        assert!(near(found.recent_messages, 10.0), "{found:?}");
        assert!(near(found.recent_bytes, 1000.0), "{found:?}");
        assert!(looks.looks.lock().len() <= 12);
    }

    #[test]
    fn a_store_that_is_younger_than_the_window_has_the_same_rate_twice() {
        let looks = Looks::default();
        let now = looks.opened + Duration::from_secs(2);
        looks.look(now, || (300, 3000));
        let found = looks.rates(now, 400, 4000);
        assert!(near(found.messages, 200.0) && near(found.recent_messages, 200.0));
    }

    #[test]
    fn a_long_silence_brings_the_recent_rate_down() {
        let looks = Looks::default();
        let after = |seconds: u64| looks.opened + Duration::from_secs(seconds);
        looks.look(after(1), || (1_000_000, 1));
        let found = looks.rates(after(1001), 1_000_010, 1);
        assert!(near(found.recent_messages, 0.01), "{found:?}");
    }

    #[test]
    fn looks_that_are_close_together_are_one() {
        let looks = Looks::default();
        for milli in 0..1000 {
            looks.look(looks.opened + Duration::from_millis(milli), || (milli, 0));
        }
        assert_eq!(looks.looks.lock().len(), 2);
    }
}
