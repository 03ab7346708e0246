//! Opening a store.

use super::clock::ManualClock;
use super::store::Store;
use super::waiting::{SLICE, answering};
use super::{loading, log, named, options};
use crate::{Error, Mode, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Open a store; `forebay.open` checks and documents the arguments.
#[pyfunction]
#[pyo3(signature = (path, mode, engine, flush, adopt, options, clock=None))]
#[allow(
    clippy::too_many_arguments,
    reason = "they are the arguments of the Python function"
)]
pub(crate) fn open_store(
    py: Python<'_>,
    #[pyo3(from_py_with = named::path)] path: PathBuf,
    #[pyo3(from_py_with = named::mode)] mode: &str,
    #[pyo3(from_py_with = named::engine)] engine: Option<&str>,
    #[pyo3(from_py_with = named::flush_word)] flush: Option<&str>,
    adopt: bool,
    options: Bound<'_, PyDict>,
    clock: Option<&Bound<'_, ManualClock>>,
) -> PyResult<Store> {
    let parsed = options::read(mode, engine, flush, adopt, &options)?;
    let given = options.copy()?;
    given.set_item("mode", mode)?;
    given.set_item("engine", engine)?;
    given.set_item("flush", flush)?;
    given.set_item("adopt", adopt)?;
    if parsed.mode == Mode::Share {
        loading::import_early(py)?;
    }
    let clock = clock.map(|clock| clock.get().core());
    let core = open_in_slices(py, &path, &parsed, clock.as_ref())?;
    log::warnings(py, &core);
    Ok(Store::new(core, path, given.unbind()))
}

/// Opens a store. While it waits for the lock, Ctrl-C interrupts it.
fn open_in_slices(
    py: Python<'_>,
    path: &Path,
    options: &Options,
    clock: Option<&Arc<crate::ManualClock>>,
) -> PyResult<crate::Store> {
    let began = Instant::now();
    loop {
        let left = options.lock_timeout.saturating_sub(began.elapsed());
        let slice = Options {
            lock_timeout: left.min(SLICE),
            ..options.clone()
        };
        let open = || match clock {
            Some(clock) => {
                let clock = Arc::<crate::ManualClock>::clone(clock);
                crate::Store::open_with_clock(path, slice, clock)
            }
            None => crate::Store::open(path, slice),
        };
        match answering(py, || match open() {
            Err(Error::Locked { .. }) if left > SLICE => Ok(None),
            opened => opened.map(Some),
        })? {
            None => py.check_signals()?,
            Some(store) => return Ok(store),
        }
    }
}
