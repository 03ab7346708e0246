//! Tails as Python iterators.

use super::handle::Handle;
use super::message::Message;
use super::ticket::SLICE;
use crate::Step;
use parking_lot::Mutex;
use pyo3::prelude::*;

/// Messages of all queues of a topic in the order in which they were stored; made by `Store.tail`.
///
/// Any thread may take the next message; each message goes to one of them.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Tail {
    core: Mutex<crate::Tail>,
    topic: String,
    store: Handle,
}

impl Tail {
    pub(super) fn new(store: Handle, topic: &str, core: crate::Tail) -> Tail {
        let topic = topic.to_owned();
        Tail {
            core: Mutex::new(core),
            topic,
            store,
        }
    }

    /// Waits a slice for the next message, or for another thread that waits for one.
    fn step(&self) -> crate::Result<Step> {
        match self.core.try_lock_for(SLICE) {
            Some(mut tail) => tail.next(SLICE),
            None => Ok(Step::Nothing),
        }
    }
}

#[pymethods]
impl Tail {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        // What was read ahead is handed out without letting go of the interpreter.
        let ready = self.core.try_lock().and_then(|mut tail| tail.next_ready());
        if let Some(message) = ready {
            return Ok(Some(message.into()));
        }
        loop {
            match self.store.call(py, |_| self.step())? {
                Step::Message(message) => return Ok(Some(message.into())),
                Step::End => return Ok(None),
                Step::Nothing => py.check_signals()?,
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<Tail of {:?}>", self.topic)
    }
}
