//! The thread that delivers delayed messages and saves progress.
//!
//! It starts with the first consumer or the first delayed message, sleeps until the next message is
//! due, and ends with the store. In a shared store it starts in the process that leads, and each
//! process can wake it.

use super::Consumers;
use super::loan::Loan;
use crate::engine::directory::group_table::joint::Work;
use crate::engine::service::condition::Condition;
use crate::error::Error;
use crate::sync::Mutex;
use crate::warning::Warning;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest sleep without and with a waiting message. The second bounds how late a message is
/// delivered after the clock was set forward or the machine has slept.
const IDLE: Duration = Duration::from_secs(3_600);
const DUE: Duration = Duration::from_secs(10);
/// The pause after a failure.
const AFTER_FAILURE_MS: i64 = 1_000;

/// When a service must run next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// At once: a step ended with work left.
    Now,
    /// At this time, in ms.
    At(i64),
    /// Only when it is woken.
    Never,
}

/// Runs the steps of [`Consumers`].
#[derive(Debug, Default)]
pub(super) struct Service {
    /// Shared with the thread, which holds no reference to the store.
    sleep: Arc<Sleep>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Sleep {
    condition: Condition,
    /// The thread sleeps on this instead if the store is shared.
    shared: OnceLock<Work>,
    /// Incremented by each wake.
    woken: AtomicU64,
    ended: AtomicBool,
}

impl Service {
    /// Starts the thread, unless it runs or has ended. Wakes it if it sleeps.
    pub(super) fn start(&self, consumers: &Consumers) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() && !self.sleep.ended.load(Ordering::Acquire) {
            if let Some(joint) = consumers.handle.joint() {
                let _ = self.sleep.shared.set(joint.work());
            }
            let consumers = Arc::clone(&consumers.loan);
            let sleep = Arc::clone(&self.sleep);
            let named = std::thread::Builder::new().name("forebay-groups".to_owned());
            *thread = Some(named.spawn(move || sleep.run(&consumers))?);
        }
        drop(thread);
        self.wake();
        Ok(())
    }

    /// Makes the thread check for work.
    pub(super) fn wake(&self) {
        self.sleep.woken.fetch_add(1, Ordering::Release);
        self.sleep.notify();
    }

    /// Ends the thread and waits for it.
    pub(super) fn end(&self) {
        self.sleep.ended.store(true, Ordering::Release);
        self.sleep.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Sleep {
    fn notify(&self) {
        match self.shared.get() {
            Some(work) => work.notify(),
            None => self.condition.notify(),
        }
    }

    fn sleep(&self, (woken, seen): (u64, u32), timeout: Duration) {
        let ready =
            || self.ended.load(Ordering::Acquire) || self.woken.load(Ordering::Acquire) != woken;
        match self.shared.get() {
            Some(work) if !ready() => work.sleep(seen, timeout),
            Some(_) => {}
            None => self.condition.sleep(timeout, ready),
        }
    }

    fn run(&self, consumers: &Loan<Consumers>) {
        let mut failure = None;
        while !self.ended.load(Ordering::Acquire) {
            let seen = self.shared.get().map_or(0, Work::seen);
            let woken = self.woken.load(Ordering::Acquire);
            let stepped = consumers.borrow(|it| {
                let now = it.now();
                (now, it.step_or_warn(now, &mut failure))
            });
            let timeout = match stepped {
                None | Some((_, None)) => return,
                Some((_, Some(Due::Now))) => continue,
                Some((now, Some(Due::At(at)))) => {
                    let left = at.saturating_sub(now).max(0);
                    Duration::from_millis(left.unsigned_abs()).min(DUE)
                }
                Some((_, Some(Due::Never))) => IDLE,
            };
            self.sleep((woken, seen), timeout);
        }
    }
}

impl Consumers {
    /// A step at `now`; `None` if the store is closed. Warns of a `failure` once, until a step
    /// succeeds or fails for another reason.
    fn step_or_warn(&self, now: i64, failure: &mut Option<String>) -> Option<Due> {
        match self.step(now) {
            Ok(due) => {
                *failure = None;
                Some(due)
            }
            Err(Error::Closed { .. } | Error::Forked) => None,
            Err(error) => {
                let reason = error.to_string();
                if failure.as_ref() != Some(&reason) {
                    self.warn(Warning::Delayed {
                        reason: reason.clone(),
                    });
                }
                *failure = Some(reason);
                Some(Due::At(now + AFTER_FAILURE_MS))
            }
        }
    }
}
