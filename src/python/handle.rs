//! The reference to an open store that objects made from it hold.

use super::log;
use super::waiting::answering;
use pyo3::prelude::*;

/// An open store.
///
/// The object of class `Store` closes the store when its last reference is dropped. So everything
/// that may still use the store holds that object, too.
pub(super) struct Handle {
    core: crate::Store,
    object: Py<PyAny>,
}

impl Handle {
    pub(super) fn new(core: crate::Store, object: Py<PyAny>) -> Handle {
        Handle { core, object }
    }

    pub(super) fn core(&self) -> &crate::Store {
        &self.core
    }

    /// The object of class `Store`.
    pub(super) fn object(&self, py: Python<'_>) -> Py<PyAny> {
        self.object.clone_ref(py)
    }

    /// As [`call`].
    pub(super) fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&crate::Store) -> crate::Result<T> + Send,
    ) -> crate::Result<T> {
        call(py, &self.core, run)
    }
}

/// Runs a call of the core detached from the interpreter, and logs the store's warnings.
pub(super) fn call<T: Send>(
    py: Python<'_>,
    store: &crate::Store,
    run: impl FnOnce(&crate::Store) -> crate::Result<T> + Send,
) -> crate::Result<T> {
    let done = py.detach(|| run(store));
    log::warnings(py, store);
    done
}

/// As [`call`], but a signal ends waits for other processes. The call must not hold a lock while it
/// waits for them.
pub(super) fn call_answering<T: Send>(
    py: Python<'_>,
    store: &crate::Store,
    run: impl FnOnce(&crate::Store) -> crate::Result<T> + Send,
) -> PyResult<T> {
    let done = answering(py, || run(store));
    log::warnings(py, store);
    done
}
