//! Objects that are made once for the process, all of them when the module loads;
//! [`load`](super::loading::load) explains why. No other file of the binding may have a lock that
//! is initialised on first use.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

/// The objects of this module. One lock holds all of them, so that none can be forgotten.
struct Made {
    /// 1970-01-01 in UTC.
    epoch: Py<PyAny>,
    /// `"send"`.
    send: Py<PyString>,
    /// The names of `forebay.errors`. While the interpreter shuts down, nothing can be imported.
    errors: Py<PyDict>,
}

static MADE: PyOnceLock<Made> = PyOnceLock::new();

/// 1970-01-01 in UTC.
pub(super) fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    Ok(made(py)?.epoch.bind(py))
}

/// The interned string `"send"`.
pub(super) fn send(py: Python<'_>) -> PyResult<&Bound<'_, PyString>> {
    Ok(made(py)?.send.bind(py))
}

/// The class of an error, by its name.
pub(super) fn error_class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    made(py)?.errors.bind(py).as_any().get_item(name)
}

/// Makes all of them.
pub(super) fn make(py: Python<'_>) -> PyResult<()> {
    made(py).map(drop)
}

#[inline]
fn made(py: Python<'_>) -> PyResult<&Made> {
    MADE.get_or_try_init(py, || {
        let module = py.import("datetime")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let class = module.getattr("datetime")?;
        Ok(Made {
            epoch: class.call1((1970, 1, 1, 0, 0, 0, 0, utc))?.unbind(),
            send: PyString::intern(py, "send").unbind(),
            errors: py.import("forebay.errors")?.dict().copy()?.unbind(),
        })
    })
}
