//! Tails as Python iterators.

use super::convert::duration;
use super::handle::Handle;
use super::message::Message;
use super::ticket::SLICE;
use crate::Step;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Messages of all queues of a topic in the order in which they were stored; made by `Store.tail`.
///
/// Any thread may take the next message; each message goes to one of them. Iteration ends when the
/// tail or its store is closed, also in threads that wait. It also ends if no message comes for
/// ``timeout``; then the tail can be iterated again.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     _ = store.send("orders", b"body")
/// ...     with store.tail("orders", start="earliest", timeout=0.1) as tail:
/// ...         [message.body for message in tail]
/// [b'body']
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Tail {
    core: Mutex<crate::Tail>,
    topic: String,
    store: Handle,
    timeout: Option<Duration>,
    closed: AtomicBool,
}

impl Tail {
    pub(super) fn new(
        store: Handle,
        topic: &str,
        core: crate::Tail,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tail> {
        let timeout = timeout.map(|timeout| duration("timeout", timeout));
        Ok(Tail {
            core: Mutex::new(core),
            topic: topic.to_owned(),
            store,
            timeout: timeout.transpose()?,
            closed: AtomicBool::new(false),
        })
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits a slice for the next message, or for another thread that waits for one.
    fn step(&self, slice: Duration) -> crate::Result<Step> {
        match self.core.try_lock_for(slice) {
            Some(mut tail) => tail.next(slice),
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
        if self.is_closed() {
            return Ok(None);
        }
        // What was read ahead is handed out without letting go of the interpreter.
        let ready = self.core.try_lock().and_then(|mut tail| tail.next_ready());
        if let Some(message) = ready {
            return Ok(Some(message.into()));
        }
        let began = Instant::now();
        while !self.is_closed() {
            let left = self
                .timeout
                .map(|timeout| timeout.saturating_sub(began.elapsed()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            match self.store.call(py, |_| self.step(slice))? {
                Step::Message(message) => return Ok(Some(message.into())),
                Step::End => return Ok(None),
                Step::Nothing => py.check_signals()?,
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// End the iteration, also in threads that wait for a message. A second call does nothing.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let state = if self.is_closed() { ", closed" } else { "" };
        format!("<Tail of {:?}{state}>", self.topic)
    }
}
