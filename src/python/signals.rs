//! Signals, such as Ctrl-C, during a long loop over rows.

use pyo3::prelude::*;

/// Raises the exception of a signal that has come, at one row in 1,024: a batch of many rows is
/// converted for seconds, attached to the interpreter.
#[inline]
pub(super) fn look_for_signals(py: Python<'_>, row: usize) -> PyResult<()> {
    match is_row_to_look(row) {
        true => py.check_signals(),
        false => Ok(()),
    }
}

/// Whether to look for signals at this row.
#[inline]
pub(super) fn is_row_to_look(row: usize) -> bool {
    const ROWS: usize = 1024;
    row % ROWS == ROWS - 1
}
