//! Long work that tells how far it is.

use pyo3::prelude::*;

/// Runs long work detached from the interpreter. What it tells goes to `progress`; an exception
/// from there, or a signal, ends it.
pub(super) fn with_progress<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> bool) -> crate::Result<T> + Send,
) -> PyResult<T> {
    let mut stopped = None;
    let done = py.detach(|| {
        work(&mut |done, all| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                progress
                    .as_ref()
                    .map(|told| told.call1(py, (done, all)))
                    .transpose()
            });
            stopped = told.err();
            stopped.is_none()
        })
    });
    match stopped {
        Some(error) => Err(error),
        None => Ok(done?),
    }
}
