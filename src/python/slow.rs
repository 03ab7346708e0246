//! Slow puts, told through Python's `logging`.
//!
//! The core keeps them; the call that comes out of the core next logs them, attached to the
//! interpreter and without any lock. No thread of the core ever calls Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Logs the slow puts that were not logged yet.
#[inline]
pub(super) fn log(py: Python<'_>, core: &crate::Producer) {
    if core.has_slow_puts() {
        log_all(py, core);
    }
}

#[cold]
fn log_all(py: Python<'_>, core: &crate::Producer) {
    for put in core.take_slow_puts() {
        if let Err(error) = warn(py, &put) {
            // The messages are in the log: a logger that fails must not make the send fail.
            error.write_unraisable(py, None);
        }
    }
}

fn warn(py: Python<'_>, put: &crate::SlowPut) -> PyResult<()> {
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("forebay",))?;
    let text = "slow put: %d message(s), %d bytes, to topic %s took %.3f s";
    let took = put.took.as_secs_f64();
    let facts = (text, put.messages, put.bytes, &*put.topic, took);
    logger.call_method("warning", facts, None::<&Bound<'_, PyDict>>)?;
    Ok(())
}
