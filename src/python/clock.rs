//! Clocks that a test moves; see `forebay.testing`.

use super::store::Store;
use pyo3::prelude::*;
use std::sync::Arc;

/// A clock that changes only when it is moved.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct ManualClock {
    core: Arc<crate::ManualClock>,
}

impl ManualClock {
    pub(super) fn core(&self) -> Arc<crate::ManualClock> {
        Arc::clone(&self.core)
    }
}

#[pymethods]
impl ManualClock {
    #[new]
    fn new(now_ms: i64) -> ManualClock {
        ManualClock {
            core: crate::ManualClock::at(now_ms),
        }
    }

    /// The time in ms since the epoch.
    #[getter]
    fn now_ms(&self) -> i64 {
        crate::Clock::now_ms(&*self.core)
    }

    /// Move the clock forward.
    fn advance(&self, by_ms: u64) {
        self.core.advance(by_ms);
    }
}

/// Deliver the messages of a store that became due when its clock was moved.
#[pyfunction]
pub(crate) fn clock_moved(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<()> {
    Ok(store.get().call(py, crate::Store::clock_moved)?)
}
