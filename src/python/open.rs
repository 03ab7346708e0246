//! Opening a store.

use super::store::Store;
use super::waiting::SLICE;
use super::{log, options};
use crate::{Error, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Open a store; `forebay.open` checks and documents the arguments.
#[pyfunction]
pub(crate) fn open_store(
    py: Python<'_>,
    path: PathBuf,
    mode: &str,
    engine: Option<&str>,
    flush: Option<&str>,
    adopt: bool,
    options: Bound<'_, PyDict>,
) -> PyResult<Store> {
    let parsed = options::read(mode, engine, flush, adopt, &options)?;
    let given = options.copy()?;
    given.set_item("mode", mode)?;
    given.set_item("engine", engine)?;
    given.set_item("flush", flush)?;
    given.set_item("adopt", adopt)?;
    let core = open_in_slices(py, &path, &parsed)?;
    log::warnings(py, &core);
    Ok(Store::new(core, path, given.unbind()))
}

/// Opens a store. While it waits for the lock, Ctrl-C interrupts it.
fn open_in_slices(py: Python<'_>, path: &Path, options: &Options) -> PyResult<crate::Store> {
    let began = Instant::now();
    loop {
        let left = options.lock_timeout.saturating_sub(began.elapsed());
        let slice = Options {
            lock_timeout: left.min(SLICE),
            ..options.clone()
        };
        match py.detach(|| crate::Store::open(path, slice)) {
            Err(Error::Locked { .. }) if left > SLICE => py.check_signals()?,
            opened => return Ok(opened?),
        }
    }
}
