//! Whether a thread polls for a moment before it sleeps.
//!
//! A thread that sleeps is woken by a system call of the other side, and then its processor has to
//! come back from idle: together tens of microseconds. A thread that polls sees the news at once,
//! but uses its processor meanwhile. So it polls only if its last wait was short, and gives up when
//! this one is not.
//!
//! If other threads need the processor, a thread that polls runs later than one that is woken. It
//! finds that out by leaving the processor to them in each turn. Then it sleeps for some waits
//! before it polls again: twice as many as the last time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to poll. If the last wait was longer, none of the next one is spent polling. The
/// default of Linux's `halt_poll_ns`, which decides the same for virtual processors.
const POLL_MAX: Duration = Duration::from_micros(200);
/// A thread that was off its processor for longer leaves it to the others.
const OFF_MAX: Duration = Duration::from_micros(20);
/// Most waits without polling after that.
const SKIPS_MAX: u32 = 1024;

/// What the last waits were like, of all threads that wait for the same.
#[derive(Debug, Default)]
pub struct Polling {
    was_short: AtomicBool,
    /// Waits to come without polling.
    skips: AtomicU32,
    /// How many there were the last time that others needed the processor, and half as many after
    /// each time that they did not.
    skipped: AtomicU32,
}

impl Polling {
    /// Runs `wait`, which waits for at most `timeout`, and notes whether it ended early and soon.
    pub fn measure<T>(&self, timeout: Duration, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = wait();
        let took = began.elapsed();
        let was_short = took <= POLL_MAX && took < timeout;
        self.was_short.store(was_short, Ordering::Relaxed);
        result
    }

    /// Checks once whether the wait `is_over`, or, if the last wait was short, until it is or the
    /// caller had better sleep, at most for `timeout`. Returns what the last check said.
    pub fn poll(&self, timeout: Duration, is_over: &dyn Fn() -> bool) -> bool {
        if is_over() {
            return true;
        }
        if !self.was_short.load(Ordering::Relaxed) {
            return false;
        }
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 {
            self.skips.store(skips - 1, Ordering::Relaxed);
            return false;
        }
        let began = Instant::now();
        let mut now = began;
        loop {
            thread::yield_now();
            let before = std::mem::replace(&mut now, Instant::now());
            if now - before > OFF_MAX {
                self.note(true);
                return is_over();
            }
            if is_over() {
                self.note(false);
                return true;
            }
            if now - began >= POLL_MAX.min(timeout) {
                return false;
            }
        }
    }

    /// Notes whether others needed the processor. Threads that do so at the same time may count
    /// one.
    fn note(&self, is_crowded: bool) {
        let skipped = self.skipped.load(Ordering::Relaxed);
        let now = match is_crowded {
            true => (skipped * 2).clamp(1, SKIPS_MAX),
            false => skipped / 2,
        };
        if is_crowded {
            self.skips.store(now, Ordering::Relaxed);
        }
        if now != skipped {
            self.skipped.store(now, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::cell::Cell;

    /// How often a wait is checked that is over at the `last` check, and what the last one said.
    fn checks(polling: &Polling, timeout: Duration, last: u32) -> (u32, bool) {
        let count = Cell::new(0);
        let is_over = || {
            count.set(count.get() + 1);
            count.get() >= last
        };
        let said = polling.poll(timeout, &is_over);
        (count.get(), said)
    }

    fn polling(was_short: bool) -> Polling {
        Polling {
            was_short: AtomicBool::new(was_short),
            ..Polling::default()
        }
    }

    #[test]
    fn a_thread_polls_only_if_its_last_wait_was_short() {
        assert_eq!(checks(&polling(false), Duration::MAX, 2), (1, false));
        assert_eq!(checks(&polling(true), Duration::MAX, 2), (2, true));
        assert_eq!(checks(&polling(true), Duration::MAX, 1), (1, true));
    }

    #[test]
    fn polling_ends_with_the_timeout_and_after_a_moment() {
        let none = Duration::ZERO;
        assert_eq!(checks(&polling(true), none, u32::MAX), (2, false));
        let (_, said) = checks(&polling(true), Duration::MAX, u32::MAX);
        assert!(!said);
    }

    #[test]
    fn a_wait_that_ends_by_itself_or_late_is_not_short() {
        let polling = Polling::default();
        let was_short = || polling.was_short.load(Ordering::Relaxed);
        // A thread may lose its processor in between.
        while !was_short() {
            polling.measure(Duration::MAX, || ());
        }
        polling.measure(Duration::ZERO, || ());
        assert!(!was_short());
        polling.was_short.store(true, Ordering::Relaxed);
        polling.measure(Duration::MAX, || thread::sleep(POLL_MAX * 2));
        assert!(!was_short());
    }

    #[test]
    fn a_thread_whose_processor_others_need_polls_ever_more_seldom() {
        let polling = polling(true);
        for skipped in [1, 2, 4] {
            polling.note(true);
            for _ in 0..skipped {
                assert_eq!(checks(&polling, Duration::MAX, 2), (1, false));
            }
            assert_eq!(polling.skips.load(Ordering::Relaxed), 0);
        }
        (0..20).for_each(|_| polling.note(true));
        assert_eq!(polling.skips.load(Ordering::Relaxed), SKIPS_MAX);
        (0..20).for_each(|_| polling.note(false));
        polling.note(true);
        assert_eq!(polling.skips.load(Ordering::Relaxed), 1);
    }
}
