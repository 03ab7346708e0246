//! Initialisation when the module loads, for the sake of children that are forked later.
//!
//! Any process may fork, and a child of one that shares a store goes on using it. A lock that is
//! initialised on first use is a trap for such a child. The thread that initialises it lets other
//! threads run meanwhile; if one of them forks, the lock in the child is held by a thread that does
//! not exist there, and the child waits for it forever. So [`load`] initialises every such lock
//! before any code can use the module: those of [`once`], which is the only file of the binding
//! that may have any, and those inside PyO3.
//!
//! The binding has no other lock that a thread holds while another may fork. Classes are created
//! when the module exports them. The locks of an object are held while attached to the
//! interpreter, and so is `fork`; the core's rules for a child are those of its handles.
//!
//! Importing a module of the standard library on first use is the same trap, because the
//! interpreter has a lock for each import; see [`import_early`].

use super::clock::ManualClock;
use super::once;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::{PyDateTime, PyDelta, PyDeltaAccess, PyIterator, PyList, PyMapping, PySequence};

/// Initialises the locks of [`once`], and those that PyO3 initialises on first use.
pub(super) fn load(py: Python<'_>) -> PyResult<()> {
    once::make(py)?;
    // PyO3's check that the interpreter runs, made by a thread that attaches.
    py.detach(|| Python::attach(|_| ()));
    PanicException::type_object(py);
    PyIterator::type_object(py);
    PyMapping::type_object(py);
    PySequence::type_object(py);
    PyDateTime::type_object(py);
    let delta = PyDelta::new(py, 0, 0, 0, false)?;
    let _ = (
        delta.get_days(),
        delta.get_seconds(),
        delta.get_microseconds(),
    );
    // The names that PyO3 looks up: in an iterator, in a bool of numpy, ...
    let _ = PyIterator::from_object(&PyList::empty(py))?.size_hint();
    let class = c"type('bool', (), {'__module__': 'numpy', '__bool__': lambda self: True})()";
    py.eval(class, None, None)?.extract::<bool>()?;
    // ... in an argument of a wrong type, and in an exception that is shown as text.
    if let Err(wrong) = py.get_type::<ManualClock>().call1(("now",)) {
        let _ = format!("{wrong:?}");
    }
    if let Err(raised) = py.eval(c"0 / 0", None, None) {
        let _ = format!("{raised:?}");
    }
    Ok(())
}

/// Imports the modules that the package imports on first use, for a process whose children continue
/// to use a store.
///
/// Other processes import them when needed: with all of them, `import forebay` would take markedly
/// longer.
pub(super) fn import_early(py: Python<'_>) -> PyResult<()> {
    ["difflib", "inspect", "logging", "threading"]
        .into_iter()
        .try_for_each(|name| py.import(name).map(drop))
}
