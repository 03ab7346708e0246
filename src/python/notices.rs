//! Waits for `forebay.aio` that end with a readable descriptor.
//!
//! No thread of the core calls Python. One that ends a wait posts its token, and the loop takes all
//! that were posted in one call.

use super::convert::wrong_type;
use super::handle::Handle;
use super::store::Store;
use super::ticket::{BatchTicket, Ticket};
use crate::Watch;
use pyo3::prelude::*;
use std::sync::Arc;

/// The waits of one event loop in one store.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Notices {
    core: Arc<crate::Notices>,
    watch: Watch,
    store: Handle,
}

#[pymethods]
impl Notices {
    #[new]
    fn new(store: &Bound<'_, Store>) -> PyResult<Notices> {
        let store = Store::handle(store);
        let core = Arc::new(crate::Notices::new(store.core())?);
        let watch = Watch::new(store.core(), &core);
        Ok(Notices { core, watch, store })
    }

    /// The descriptor that is readable while `take` has something to return.
    fn fileno(&self) -> i32 {
        self.core.descriptor()
    }

    /// The tokens of the waits that ended since the last call.
    fn take(&self) -> Vec<u64> {
        self.core.take()
    }

    /// Post `token` when a ticket is done. Returns false if it is done already.
    fn when_done(&self, ticket: &Bound<'_, PyAny>, token: u64) -> PyResult<bool> {
        let listener = Arc::<crate::Notices>::clone(&self.core);
        let one = ticket.cast::<Ticket>().ok();
        let batch = ticket.cast::<BatchTicket>().ok();
        let waiter = match (&one, &batch) {
            (Some(one), _) => one.get().waiter(),
            (None, Some(batch)) => batch.get().waiter(),
            (None, None) => return Err(wrong_type("ticket", ticket, "a ticket")),
        };
        Ok(waiter?.listen(listener, token))
    }

    /// Post `token` when the log is readable above `position`, consumers may have got
    /// messages since `changes` was read, or the store closes.
    fn when_readable(&self, position: u64, changes: Option<u64>, token: u64) -> PyResult<()> {
        Ok(self.watch.when_readable(position, changes, token)?)
    }

    /// Do not post a token of `when_readable` any more.
    fn forget(&self, token: u64) {
        self.watch.forget(token);
    }

    /// End the thread that watches the store.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.store.call(py, |_| {
            self.watch.end();
            Ok(())
        })?;
        Ok(())
    }
}
