//! Slow puts and other warnings, told through Python's `logging`.
//!
//! The core keeps them; the call that comes out of the core next logs them, attached to the
//! interpreter and without any lock. No thread of the core ever calls Python.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Logs the slow puts and the warnings that were not logged yet.
#[inline]
pub(super) fn log(py: Python<'_>, core: &crate::Producer) {
    if core.has_slow_puts() || core.has_warnings() {
        log_all(py, core);
    }
}

#[cold]
fn log_all(py: Python<'_>, core: &crate::Producer) {
    let slow = core.take_slow_puts();
    let slow = slow.iter().map(|put| {
        let text = "slow put: %d message(s), %d bytes, to topic %s took %.3f s";
        let took = put.took.as_secs_f64();
        warn(py, (text, put.messages, put.bytes, &*put.topic, took))
    });
    let warnings = core.take_warnings();
    let warnings = warnings.iter().map(|warning| warn(py, ("%s", warning)));
    for error in slow.chain(warnings).filter_map(Result::err) {
        // The messages are in the log: a logger that fails must not make the send fail.
        error.write_unraisable(py, None);
    }
}

fn warn<'py>(py: Python<'py>, facts: impl PyCallArgs<'py>) -> PyResult<()> {
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("forebay",))?;
    logger.call_method("warning", facts, None::<&Bound<'_, PyDict>>)?;
    Ok(())
}
