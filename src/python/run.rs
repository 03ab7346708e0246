//! The polls of `Consumer.run`.

use super::consumer::Consumer;
use super::message::Message;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The polls of `Consumer.run`, which end when it stops.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Run {
    consumer: Py<Consumer>,
    stopped: AtomicBool,
}

#[pymethods]
impl Run {
    #[new]
    fn new(consumer: Bound<'_, Consumer>) -> Run {
        Run {
            consumer: consumer.unbind(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Waits for messages; returns an empty list once `stop` was called.
    fn poll<'py>(&self, py: Python<'py>, max_messages: usize) -> PyResult<Bound<'py, PyList>> {
        let stopped = || self.stopped.load(Ordering::Acquire);
        let mut got = Vec::new();
        while got.is_empty() && !stopped() {
            let consumer = self.consumer.get();
            got = consumer.ask(py, |core| {
                core.poll_until(max_messages, Duration::MAX, &stopped)
            })??;
        }
        PyList::new(py, got.into_iter().map(Message::from).collect::<Vec<_>>())
    }

    /// Ends all polls, including those that wait.
    fn stop(&self, py: Python<'_>) {
        self.stopped.store(true, Ordering::Release);
        py.detach(|| self.consumer.get().core().wake());
    }
}
