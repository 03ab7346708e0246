//! Tickets of `send_nowait`.

use super::convert::duration;
use super::errors::exception;
use super::producer::{Origin, SendResult};
use crate::Error;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest that a call waits before it looks whether Ctrl-C was pressed.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// A message in the log that becomes durable later; returned by `Producer.send_nowait`.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     orders = store.producer("orders")
/// ...     tickets = [orders.send_nowait(b"body") for _ in range(3)]
/// ...     all(ticket.result(timeout=5).durable for ticket in tickets)
/// True
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Ticket {
    origin: Arc<Origin>,
    core: crate::Ticket,
    delay_level: u8,
}

impl Ticket {
    pub(super) fn new(origin: &Arc<Origin>, core: crate::Ticket, delay_level: u8) -> Ticket {
        Ticket {
            origin: Arc::clone(origin),
            core,
            delay_level,
        }
    }
}

#[pymethods]
impl Ticket {
    /// Whether `result` would return, or raise, at once.
    fn done(&self) -> bool {
        self.core.is_done()
    }

    /// Wait until the message is durable and return where it is.
    ///
    /// Parameters
    /// ----------
    /// timeout
    ///     Seconds or a timedelta; None waits for as long as it takes.
    ///
    /// Returns
    /// -------
    /// SendResult
    ///     As `Producer.send` returns it, with ``durable`` true.
    ///
    /// Raises
    /// ------
    /// FlushTimeoutError
    ///     If the message is not durable in time; ``result`` says where it is. Do not send it
    ///     again.
    /// StoreFailedError
    ///     If the flush failed: the message is in the log, its durability unknown.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<SendResult> {
        let timeout = timeout
            .map(|timeout| duration("timeout", timeout))
            .transpose()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            let waited = if self.core.is_done() {
                Duration::ZERO
            } else {
                slice
            };
            match py.detach(|| self.core.wait(waited)) {
                Some(Ok(sent)) => return Ok(SendResult::new(&self.origin, sent, self.delay_level)),
                Some(Err(error)) => return Err(exception(py, &error)),
                None if left.is_some_and(|left| left <= SLICE) => {
                    return Err(self.timed_out(py, timeout.unwrap_or_default()));
                }
                None => py.check_signals()?,
            }
        }
    }

    fn __repr__(&self) -> String {
        let place = self.core.sent().place;
        let state = if self.core.is_done() {
            "done"
        } else {
            "waiting"
        };
        let topic = &self.origin.topic;
        format!(
            "<Ticket of {topic:?} queue {} offset {}: {state}>",
            place.queue, place.offset
        )
    }
}

impl Ticket {
    fn timed_out(&self, py: Python<'_>, timeout: Duration) -> PyErr {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let error = exception(py, &Error::FlushTimeout { timeout_ms });
        let result = SendResult::new(&self.origin, self.core.sent(), self.delay_level);
        match error.value(py).setattr("result", result) {
            Ok(()) => error,
            Err(failure) => failure,
        }
    }
}
