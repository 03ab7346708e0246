//! Signals, such as Ctrl-C, during a long loop over rows.

use pyo3::prelude::*;

/// Rows between two checks.
const ROWS: usize = 1024;

/// Raises the exception of a pending signal; checks at one row in 1,024. Converting a batch of many
/// rows takes seconds, attached to the interpreter.
#[inline]
pub(super) fn check_signals(py: Python<'_>, row: usize) -> PyResult<()> {
    match row % ROWS == ROWS - 1 {
        true => py.check_signals(),
        false => Ok(()),
    }
}
