//! Polls of event loops: what a consumer took without waiting, and what to wait for.

use pyo3::prelude::*;
use pyo3::types::PyList;
use std::time::Duration;

/// What an event loop waits for if there is no message: a position of the log and a number of
/// changes, for ``limit`` at most.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Pause {
    position: u64,
    changes: u64,
    limit: Option<Duration>,
}

impl Pause {
    pub(super) fn of(polled: &crate::Polled) -> Pause {
        Pause {
            position: polled.seen,
            changes: polled.changes,
            limit: (polled.wait != Duration::MAX).then_some(polled.wait),
        }
    }
}

/// Messages that a consumer took without waiting, and what to wait for if there are none.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Polled {
    pub(super) messages: Py<PyList>,
    pub(super) pause: Py<Pause>,
}
