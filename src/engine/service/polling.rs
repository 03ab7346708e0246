//! Whether a thread polls for a moment before it sleeps.
//!
//! A thread that sleeps is woken by a system call of the other side, and then its processor has to
//! come back from idle: together tens of microseconds. A thread that polls sees the news at once,
//! but uses its processor meanwhile. So it polls only if its last wait was short, and gives up when
//! this one is not.
//!
//! It polls on a processor that nobody else needs. If other threads want to run, a thread that
//! polls takes time from them, such as from the sender that it waits for, and runs later itself
//! than one that is woken. It learns of them in two ways. Now and then it compares how many threads
//! want to run with the number of processors. And it leaves its processor to them in each turn, so
//! that it comes back late if there are any. Then the store *rests*: its readers sleep, for a time.
//!
//! ```text
//!   short of processors --> rest: 2 ms, twice as long each time, up to 1 s
//!   rest is over        --> poll; short again sooner than after another such time? rest longer
//!                                 the longer it goes well, the shorter is the next rest
//! ```
//!
//! So on a machine that is busy all the time readers look once a second whether it still is, and
//! where something else runs for a moment they poll most of the time.

use crate::disk::Processors;
use std::fmt::Debug;
#[cfg(test)]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to poll. If the last wait was longer, none of the next one is spent polling. The
/// default of Linux's `halt_poll_ns`, which decides the same for virtual processors.
const POLL_MAX: Duration = Duration::from_micros(200);
/// A thread that was off its processor for longer leaves it to the others.
const OFF_MAX: Duration = Duration::from_micros(20);
/// Between two looks at how many threads want to run. A look takes some microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The shortest and the longest rest, in us.
const REST_MIN: u64 = 2_000;
const REST_MAX: u64 = 1_000_000;

/// What a thread that polls sees of its machine.
pub trait Host: Debug + Send + Sync {
    /// The time since some moment.
    fn now(&self) -> Duration;

    /// Leaves the processor to another thread that waits for it, if any does.
    fn give_way(&self);

    /// Whether more threads want to run than there are processors.
    fn is_short(&self) -> bool;
}

/// The machine on which this process runs.
#[derive(Debug)]
struct Here {
    began: Instant,
    processors: Processors,
}

impl Host for Here {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn give_way(&self) {
        thread::yield_now();
    }

    fn is_short(&self) -> bool {
        self.processors.are_short()
    }
}

/// What the last waits were like, of all threads of a process that wait for the same.
#[derive(Debug)]
pub struct Polling {
    here: Here,
    #[cfg(test)]
    planted: OnceLock<Box<dyn Host>>,
    was_short: AtomicBool,
    /// Whether a thread polls. Another one sleeps: one that polls serves all.
    polls: AtomicBool,
    /// When a thread looked last how many want to run, in us.
    looked: AtomicU64,
    /// When the last rest is over, in us, and how long it is. Threads that change them at the same
    /// time may count one shortage.
    rest_end: AtomicU64,
    rest: AtomicU64,
}

impl Default for Polling {
    fn default() -> Polling {
        Polling {
            here: Here {
                began: Instant::now(),
                processors: Processors::of_process(),
            },
            #[cfg(test)]
            planted: OnceLock::new(),
            was_short: AtomicBool::new(false),
            polls: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            rest_end: AtomicU64::new(0),
            rest: AtomicU64::new(0),
        }
    }
}

impl Polling {
    /// Runs `wait`, which waits for at most `timeout`, and notes whether it ended early and soon.
    pub fn measure<T>(&self, timeout: Duration, wait: impl FnOnce() -> T) -> T {
        let began = self.host().now();
        let result = wait();
        let took = self.host().now() - began;
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
        if !self.was_short.load(Ordering::Relaxed)
            || micros(self.host().now()) < self.rest_end.load(Ordering::Relaxed)
            || self.polls.swap(true, Ordering::Relaxed)
        {
            return false;
        }
        let said = self.poll_alone(timeout, is_over);
        self.polls.store(false, Ordering::Relaxed);
        said
    }

    fn poll_alone(&self, timeout: Duration, is_over: &dyn Fn() -> bool) -> bool {
        let host = self.host();
        let began = host.now();
        let mut now = began;
        loop {
            if self.is_short(now) {
                self.rest_from(now);
                return is_over();
            }
            let before = host.now();
            host.give_way();
            now = host.now();
            if now - before > OFF_MAX {
                self.rest_from(now);
                return is_over();
            }
            if is_over() {
                return true;
            }
            if now - began >= POLL_MAX.min(timeout) {
                return false;
            }
        }
    }

    /// Looks whether more threads want to run than there are processors, if the last look was long
    /// enough ago.
    fn is_short(&self, now: Duration) -> bool {
        let looked = Duration::from_micros(self.looked.load(Ordering::Relaxed));
        if !looked.is_zero() && now.saturating_sub(looked) < LOOK_EVERY {
            return false;
        }
        self.looked.store(micros(now).max(1), Ordering::Relaxed);
        self.host().is_short()
    }

    /// Begins a rest: twice as long as the last one if that did not help for as long as it took,
    /// and otherwise the shorter the longer it helped.
    fn rest_from(&self, now: Duration) {
        let (now, last) = (micros(now), self.rest.load(Ordering::Relaxed));
        let calm = now.saturating_sub(self.rest_end.load(Ordering::Relaxed));
        let rest = match calm < last {
            true => last * 2,
            false => last * last / calm.max(1),
        };
        let rest = rest.clamp(REST_MIN, REST_MAX);
        self.rest.store(rest, Ordering::Relaxed);
        self.rest_end.store(now + rest, Ordering::Relaxed);
        // The first look after it is due at once.
        self.looked.store(0, Ordering::Relaxed);
    }

    fn host(&self) -> &dyn Host {
        #[cfg(test)]
        if let Some(planted) = self.planted.get() {
            return &**planted;
        }
        &self.here
    }

    /// Has the host be another one.
    #[cfg(test)]
    pub fn plant(&self, host: Box<dyn Host>) {
        assert!(self.planted.set(host).is_ok(), "planted twice");
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod test;
