//! Opening a store.

use super::store::Store;
use super::{log, options};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

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
    let core = py.detach(|| crate::Store::open(&path, parsed))?;
    log::warnings(py, &core);
    Ok(Store::new(core, path, given.unbind()))
}
