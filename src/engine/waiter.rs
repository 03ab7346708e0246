//! Waiting until a message is durable.

use crate::error::{Error, Result};
use crate::sync::{AtomicBool, Condvar, Instant, Mutex, Ordering, thread};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Polls `is_there` for at most `longest`, yielding to other threads.
pub(crate) fn spin(longest: Duration, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() && began.elapsed() < longest {
        thread::yield_now();
    }
}

/// How waiting ended. All waiters hit by one failure share the error.
pub type Completion = Result<(), Arc<Error>>;

/// Is notified when a waiter has its outcome, so that no thread waits for it.
pub trait Listener: Send + Sync + Debug {
    /// The waiter to which [`Waiter::listen`] gave `token` has its outcome. Called by the thread
    /// that flushes, so it must not wait.
    fn completed(&self, token: u64);
}

/// Waits until the log is durable up to a position. Completed once, by the thread that flushes.
#[derive(Debug, Default)]
pub struct Waiter {
    state: Mutex<State>,
    completed: Condvar,
    /// Set with the outcome.
    done: AtomicBool,
    /// Whether nobody else waits. Then the waiter polls before it sleeps, because waking a thread
    /// can take as long as the sync.
    alone: bool,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Completion>,
    /// The listener to notify of the outcome, and its token.
    listener: Option<(Arc<dyn Listener>, u64)>,
}

/// How long a lone waiter polls before it sleeps: the time of a few syncs of a fast disk.
const SPIN: Duration = Duration::from_micros(300);

/// How long a wait continues before it calls `go_on` again.
const SLICE: Duration = Duration::from_millis(50);

impl Waiter {
    /// A waiter that already has its outcome.
    pub fn completed(outcome: Completion) -> Arc<Waiter> {
        Arc::new(Waiter {
            state: Mutex::new(State {
                outcome: Some(outcome),
                listener: None,
            }),
            done: AtomicBool::new(true),
            ..Waiter::default()
        })
    }

    /// A waiter without an outcome. `alone`: nobody else waits.
    pub fn new(alone: bool) -> Arc<Waiter> {
        Arc::new(Waiter {
            alone,
            ..Waiter::default()
        })
    }

    /// Sets the outcome if there is none yet, wakes the waiting threads and calls the listener.
    pub fn complete(&self, outcome: Completion) {
        let mut state = self.state.lock();
        state.outcome.get_or_insert(outcome);
        let listener = state.listener.take();
        drop(state);
        self.done.store(true, Ordering::Release);
        self.completed.notify_all();
        if let Some((listener, token)) = listener {
            listener.completed(token);
        }
    }

    /// Notifies `listener` once, with `token`, when the waiter completes. If it has completed,
    /// returns false and notifies nobody. A later listener replaces an earlier one.
    pub fn listen(&self, listener: Arc<dyn Listener>, token: u64) -> bool {
        let mut state = self.state.lock();
        let is_to_come = state.outcome.is_none();
        if is_to_come {
            state.listener = Some((listener, token));
        }
        is_to_come
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    /// Waits for the outcome; `None` after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Completion> {
        if self.alone {
            spin(SPIN.min(timeout), || self.done.load(Ordering::Acquire));
        }
        let mut state = self.state.lock();
        if state.outcome.is_none() {
            let is_to_come = |state: &mut State| state.outcome.is_none();
            state = self.completed.wait_while_for(state, is_to_come, timeout);
        }
        state.outcome.clone()
    }

    /// As [`Waiter::wait_or_fail`]. Calls `go_on` every 50 ms meanwhile; once it returns false,
    /// the wait ends without an error.
    ///
    /// # Errors
    ///
    /// As [`Waiter::wait_or_fail`].
    pub fn wait_while(&self, timeout: Duration, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            match self.wait(left.min(SLICE)) {
                None if left > SLICE && go_on() => {}
                None if left > SLICE => return Ok(()),
                outcome => return outcome_or_fail(outcome, timeout),
            }
        }
    }

    /// Waits for the message to be durable.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the sync failed, [`Error::FlushTimeout`] if it takes longer than
    /// `timeout`. In both cases the message is in the log.
    pub fn wait_or_fail(&self, timeout: Duration) -> Result<()> {
        outcome_or_fail(self.wait(timeout), timeout)
    }
}

/// The outcome of a wait for `timeout`, as a result for the sender of the message.
fn outcome_or_fail(outcome: Option<Completion>, timeout: Duration) -> Result<()> {
    match outcome {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Error::Failed {
            reason: match &*error {
                Error::Failed { reason, .. } => reason.clone(),
                other => other.to_string(),
            },
            appended: true,
        }),
        None => Err(Error::FlushTimeout {
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        }),
    }
}
