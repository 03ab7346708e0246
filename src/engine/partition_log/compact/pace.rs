//! Keeps compaction in the background below its bytes per second.

use super::stop::{Done, Stop};
use crate::engine::service::shutdown::Shutdown;
use std::time::{Duration, Instant};

/// What a pace measures, and how it waits.
pub(super) trait Time {
    /// The time since the compaction began.
    fn elapsed(&self) -> Duration;

    /// Sleeps for `time`, or less.
    fn sleep(&mut self, time: Duration);

    /// Whether the store is being closed, so that nothing waits any more.
    fn is_over(&self) -> bool;
}

/// The time of the machine.
pub(super) struct Steady<'a> {
    shutdown: &'a Shutdown,
    began: Instant,
}

impl Time for Steady<'_> {
    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&mut self, time: Duration) {
        self.shutdown.sleep(time);
    }

    fn is_over(&self) -> bool {
        self.shutdown.has_begun()
    }
}

/// The pace of one compaction.
pub(super) struct Pace<T> {
    time: T,
    /// Bytes per second; `None` without a limit.
    rate: Option<u64>,
    spent: u64,
}

impl Pace<Steady<'_>> {
    /// The pace of a compaction that begins. Its waits end when `shutdown` begins.
    pub(super) fn new(shutdown: &Shutdown, rate: Option<u64>) -> Pace<Steady<'_>> {
        let began = Instant::now();
        Pace {
            time: Steady { shutdown, began },
            rate,
            spent: 0,
        }
    }
}

impl<T: Time> Pace<T> {
    /// Waits until `bytes` more may have been read.
    ///
    /// # Errors
    ///
    /// [`Stop::Asked`] if the store is being closed.
    pub(super) fn spend(&mut self, bytes: u64) -> Done<()> {
        self.spent += bytes;
        if let Some(rate) = self.rate {
            let nanos = u128::from(self.spent) * 1_000_000_000 / u128::from(rate.max(1));
            let due = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            while !self.time.is_over()
                && let Some(left) = due.checked_sub(self.time.elapsed())
                && !left.is_zero()
            {
                self.time.sleep(left);
            }
        }
        match self.time.is_over() {
            true => Err(Stop::Asked),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// A time that only sleeping moves.
    struct Virtual {
        now: Duration,
        /// A sleep ends early after this.
        longest: Duration,
        ends: Duration,
        sleeps: u32,
    }

    impl Time for Virtual {
        fn elapsed(&self) -> Duration {
            self.now
        }

        fn sleep(&mut self, time: Duration) {
            self.now += time.min(self.longest);
            self.sleeps += 1;
        }

        fn is_over(&self) -> bool {
            self.now >= self.ends
        }
    }

    fn pace(rate: Option<u64>) -> Pace<Virtual> {
        Pace {
            time: Virtual {
                now: Duration::ZERO,
                longest: Duration::from_secs(3600),
                ends: Duration::MAX,
                sleeps: 0,
            },
            rate,
            spent: 0,
        }
    }

    #[test]
    fn bytes_take_the_time_that_the_limit_gives_them() {
        for longest in [Duration::from_millis(3), Duration::from_secs(3600)] {
            let mut pace = pace(Some(1000));
            pace.time.longest = longest;
            for piece in 1..=40 {
                pace.spend(100).unwrap();
                assert_eq!(pace.time.now, Duration::from_millis(100 * piece));
            }
            pace.spend(0).unwrap();
            assert_eq!(pace.time.now, Duration::from_secs(4));
        }
    }

    #[test]
    fn a_compaction_that_is_slower_than_the_limit_does_not_wait() {
        let mut pace = pace(Some(1000));
        pace.time.now = Duration::from_secs(2);
        pace.spend(2000).unwrap();
        assert_eq!(pace.time.sleeps, 0);
        pace.spend(500).unwrap();
        assert_eq!(pace.time.now, Duration::from_millis(2500));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pace = pace(None);
        for _ in 0..3 {
            pace.spend(1 << 40).unwrap();
        }
        assert_eq!(pace.time.sleeps, 0);
    }

    #[test]
    fn a_wait_ends_when_the_store_is_closed() {
        let mut slow = pace(Some(1));
        slow.time.longest = Duration::from_secs(1);
        slow.time.ends = Duration::from_secs(5);
        assert!(matches!(slow.spend(1000), Err(Stop::Asked)));
        assert_eq!(slow.time.sleeps, 5);
        let mut unlimited = pace(None);
        unlimited.time.ends = Duration::ZERO;
        assert!(matches!(unlimited.spend(1), Err(Stop::Asked)));
    }
}
