//! Waits and streams that answer Ctrl-C.

use super::edge::raise_later;
use crate::{INTERRUPT_SLICE, Interrupt, allow_interrupts};
use pyo3::prelude::*;
use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// The longest that the main thread waits before it checks whether Ctrl-C was pressed.
pub(super) const SLICE: Duration = INTERRUPT_SLICE;

thread_local! {
    /// The exception of the signal that has ended a wait.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Runs `work` detached from the interpreter. A signal such as Ctrl-C ends its waits for other
/// processes. The handler of the signal runs in the meantime, and may use the store.
pub(super) fn answering<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> crate::Result<T> + Send,
) -> PyResult<T> {
    let done = py.detach(|| allow_interrupts(is_raised, work));
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => Ok(done?),
    }
}

fn is_raised() -> bool {
    let raised = Python::attach(|py| py.check_signals()).err();
    let is_raised = raised.is_some();
    RAISED.set(raised);
    is_raised
}

/// A wait, in slices between which signals are handled. Python handles signals in the main thread
/// only. Any other thread finds out after one slice that it is not the main thread, and then waits
/// in one go.
pub(super) struct Wait {
    deadline: Option<Instant>,
    longest: Duration,
}

impl Wait {
    /// A wait for `timeout`; without a limit if there is none.
    pub(super) fn new(timeout: Option<Duration>) -> Wait {
        Wait {
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            longest: SLICE,
        }
    }

    /// How long to wait before the next call of [`Wait::pause`]; zero once the time is up.
    pub(super) fn slice(&self) -> Duration {
        self.deadline.map_or(self.longest, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            left.min(self.longest)
        })
    }

    /// Handles signals between two slices.
    pub(super) fn pause(&mut self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        if self.longest == SLICE && !is_main_thread(py)? {
            self.longest = Duration::MAX;
        }
        Ok(())
    }
}

/// Handles signals while the main thread reads a stream; `None` for a stream of another thread.
///
/// The reader is foreign code, which would drop Python's exception. So the stream ends with an
/// error, and the interpreter raises the exception as soon as it runs Python code again.
pub(super) fn stream_interrupt(py: Python<'_>) -> PyResult<Option<Interrupt>> {
    if !is_main_thread(py)? {
        return Ok(None);
    }
    let main = thread::current().id();
    let mut checked: Option<Instant> = None;
    Ok(Some(Box::new(move || {
        // Another thread must not attach: the main thread may be attached and wait for it.
        if thread::current().id() != main || checked.is_some_and(|at| at.elapsed() < SLICE) {
            return false;
        }
        checked = Some(Instant::now());
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(raised) => {
                raise_later(py, raised);
                true
            }
        })
    })))
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}
