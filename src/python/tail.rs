//! Tails as Python iterators.

use super::convert::duration;
use super::handle::Handle;
use super::message::Message;
use super::waiting::Wait;
use crate::TimedMutex;
use crate::{Error, Step, TailCloser};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::time::Duration;

/// Messages of all queues of a topic in the order in which they were stored; made by `Store.tail`.
///
/// Any thread may take the next message; each message goes to one of them. Iteration ends when the
/// tail or its store is closed, even in waiting threads. It also ends if no message comes for
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
    core: TimedMutex<crate::Tail>,
    closer: TailCloser,
    topic: String,
    store: Handle,
    timeout: Option<Duration>,
}

/// The result of a tail without waiting: a message, or None; whether the tail is over; and the
/// position above which new messages are.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct TailStep {
    message: Option<Py<Message>>,
    is_over: bool,
    position: u64,
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
            closer: core.closer(),
            core: TimedMutex::new(core),
            topic: topic.to_owned(),
            store,
            timeout: timeout.transpose()?,
        })
    }

    /// Waits for the next message, or for another thread that waits for one.
    fn step(&self, wait: &Wait) -> crate::Result<Step> {
        if self.store.core().is_forked() {
            // In a forked child, a thread of the parent may hold the lock forever.
            return Err(Error::Forked);
        }
        match self.core.try_lock_for(wait.slice()) {
            Some(mut tail) => tail.next(wait.slice()),
            None => Ok(Step::Nothing),
        }
    }
}

#[pymethods]
impl Tail {
    /// The next message, if it can be had without reading or waiting.
    #[pyo3(name = "_ready")]
    fn ready(&self) -> Option<Message> {
        let ready = self.core.try_lock().and_then(|mut tail| tail.next_ready());
        ready.map(Message::from)
    }

    /// The next message, without waiting.
    #[pyo3(name = "_try_next")]
    fn try_next(&self, py: Python<'_>) -> PyResult<TailStep> {
        let next = |_: &crate::Store| {
            let mut tail = self.core.lock();
            Ok((tail.next(Duration::ZERO)?, tail.seen()))
        };
        let (step, position) = self.store.call(py, next)?;
        let is_over = matches!(step, Step::End);
        let message = match step {
            Step::Message(message) => Some(Py::new(py, Message::from(message))?),
            Step::Nothing | Step::End => None,
        };
        Ok(TailStep {
            message,
            is_over,
            position,
        })
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        // Messages read ahead are returned without detaching from the interpreter.
        if let Some(message) = self.ready() {
            return Ok(Some(message));
        }
        let mut wait = Wait::new(self.timeout);
        loop {
            let is_last = wait.slice().is_zero();
            match self.store.call(py, |_| self.step(&wait))? {
                Step::Message(message) => return Ok(Some(message.into())),
                Step::End => return Ok(None),
                Step::Nothing if is_last => return Ok(None),
                Step::Nothing => wait.pause(py)?,
            }
        }
    }

    /// End the iteration, even in threads that wait for a message. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.closer.close());
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closer.is_closed() {
            ", closed"
        } else {
            ""
        };
        format!("<Tail of {:?}{state}>", self.topic)
    }
}
