//! Whether a thread polls for a moment before it sleeps.
//!
//! A thread that sleeps is woken by a system call of the other side, and then its processor has to
//! come back from idle: together tens of microseconds. A thread that polls sees the news at once,
//! but uses its processor meanwhile. So it polls only if its last wait was short, and gives up when
//! this one is not.
//!
//! In each turn it yields its processor to other threads. If it gets the processor back late,
//! threads that run for long need it, perhaps the sender that it waits for. Then the readers of its
//! process *rest*: they do not poll for some time. The next rest is twice as long if it begins soon
//! after this one. So on a machine that stays busy, readers lose their processor to others about
//! once a second.

use crate::sync::Mutex;
use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to poll. If the last wait was longer, none of the next one is spent polling. The
/// default of Linux's `halt_poll_ns`, which decides the same for virtual processors.
const POLL_MAX: Duration = Duration::from_micros(200);
/// A thread that gets its processor back later than this waited for threads that run for long.
/// Threads that are woken for a message give it back sooner.
const OFF_MAX: Duration = Duration::from_micros(100);
/// The shortest and the longest rest.
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(1);

/// What a thread that polls sees of its machine.
pub trait Host: Debug + Send {
    /// The time.
    fn now(&self) -> Instant;

    /// Leaves the processor to another thread that waits for it, if any does.
    fn give_way(&self);
}

/// The machine on which this process runs.
#[derive(Debug)]
pub struct Here;

impl Host for Here {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn give_way(&self) {
        thread::yield_now();
    }
}

/// What the last waits were like, of all threads of a process that wait for the same.
#[derive(Debug)]
pub struct Polling(Mutex<State>);

/// Locked by the thread that polls. Other threads sleep meanwhile: one that polls serves all.
#[derive(Debug)]
struct State {
    host: Box<dyn Host>,
    was_short: bool,
    /// The last rest, and when it is over.
    rest: Duration,
    rest_end: Option<Instant>,
}

impl Default for Polling {
    fn default() -> Polling {
        Polling::on(Box::new(Here))
    }
}

impl Polling {
    fn on(host: Box<dyn Host>) -> Polling {
        Polling(Mutex::new(State {
            host,
            was_short: false,
            rest: Duration::ZERO,
            rest_end: None,
        }))
    }

    /// Runs `wait`, which waits for at most `timeout`, and notes whether it ended early and soon.
    pub fn measure<T>(&self, timeout: Duration, wait: impl FnOnce() -> T) -> T {
        let now = || self.0.try_lock().map(|state| state.host.now());
        let began = now();
        let result = wait();
        if let (Some(began), Some(mut state)) = (began, self.0.try_lock()) {
            let took = state.host.now() - began;
            state.was_short = took <= POLL_MAX && took < timeout;
        }
        result
    }

    /// Checks whether the wait `is_over`. If the last wait was short, checks repeatedly, at most
    /// for `timeout`, until it is over or other threads need the processor. Returns the result of
    /// the last check.
    pub fn poll(&self, timeout: Duration, is_over: &dyn Fn() -> bool) -> bool {
        is_over()
            || self
                .0
                .try_lock()
                .is_some_and(|mut state| state.poll(timeout.min(POLL_MAX), is_over))
    }

    /// Replaces the host.
    #[cfg(test)]
    pub fn plant(&self, host: Box<dyn Host>) {
        self.0.lock().host = host;
    }
}

impl State {
    fn poll(&mut self, timeout: Duration, is_over: &dyn Fn() -> bool) -> bool {
        let began = self.host.now();
        if !self.was_short || self.rest_end.is_some_and(|end| began < end) {
            return false;
        }
        let mut now = began;
        loop {
            let left = now;
            self.host.give_way();
            now = self.host.now();
            if now - left > OFF_MAX {
                self.rest_from(now);
                return is_over();
            }
            if is_over() {
                return true;
            }
            if now - began >= timeout {
                return false;
            }
        }
    }

    /// Begins a rest. It is twice as long as the last one if that ended less than its own length
    /// ago.
    fn rest_from(&mut self, now: Instant) {
        let is_soon = self.rest_end.is_some_and(|end| now - end < self.rest);
        self.rest = match is_soon {
            true => REST_MAX.min(self.rest * 2),
            false => REST_MIN,
        };
        self.rest_end = Some(now + self.rest);
    }
}

#[cfg(test)]
mod test;
