//! Long calls that report their progress.

use super::waiting::answering;
use crate::is_interrupted;
use pyo3::prelude::*;

/// Runs `work` detached from the interpreter, and passes its progress to the callable `progress`.
/// An exception from it, or a signal such as Ctrl-C, stops the work.
pub(super) fn with_progress<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> bool) -> crate::Result<T> + Send,
) -> PyResult<T> {
    if let Some(given) = &progress {
        let check = py.import("forebay.given")?.getattr("check_function")?;
        check.call1(("progress", given, "callable, or None"))?;
    }
    let mut stopped = None;
    let done = py.detach(|| {
        work(&mut |done, all| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                progress
                    .as_ref()
                    // Dropped while attached.
                    .map(|told| told.call1(py, (done, all)).map(drop))
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

/// Runs `work`, which may take long, detached from the interpreter. It asks now and then whether to
/// go on; a signal such as Ctrl-C stops it.
pub(super) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> crate::Result<T> + Send,
) -> PyResult<T> {
    answering(py, || work(&mut || !is_interrupted()))
}
