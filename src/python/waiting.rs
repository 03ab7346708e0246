//! Waits that answer Ctrl-C.

use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// The longest that the main thread waits before it checks whether Ctrl-C was pressed.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// A wait, in slices between which signals are handled. Python handles them in the main thread, so
/// any other thread takes one slice to find out that it is none, and then waits in one go.
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

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}
