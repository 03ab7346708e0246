//! Tickets of `send_nowait`.

use super::convert::duration;
use super::errors::exception;
use super::sent::{Origin, SendResult};
use crate::{Error, Sent, Waiter};
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
    /// ForkedError
    ///     In a child of the process that sent the message.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<SendResult> {
        let timeout = timeout
            .map(|timeout| duration("timeout", timeout))
            .transpose()?;
        let waiter = self.core.waiter().map_err(|e| exception(py, &e))?;
        let durable = wait(py, waiter, timeout)?;
        let sent = Sent {
            durable,
            ..self.core.sent()
        };
        let result = SendResult::new(&self.origin, sent, self.delay_level);
        in_time(py, durable, timeout.unwrap_or_default(), result)
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

/// Waits for durability, for as long as it takes where there is no timeout; false where it came
/// first. Ctrl-C ends the waiting.
pub(super) fn wait(py: Python<'_>, waiter: &Waiter, timeout: Option<Duration>) -> PyResult<bool> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        match py.detach(|| waiter.wait(slice)) {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) => return Err(exception(py, &error)),
            None if left.is_some_and(|left| left <= SLICE) => return Ok(false),
            None => py.check_signals()?,
        }
    }
}

/// The result of what was settled in time; else the error of what is in the log and was not durable
/// within `timeout`, which carries it.
pub(super) fn in_time<T: for<'py> IntoPyObject<'py>>(
    py: Python<'_>,
    settled: bool,
    timeout: Duration,
    result: T,
) -> PyResult<T> {
    if settled {
        return Ok(result);
    }
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let error = exception(py, &Error::FlushTimeout { timeout_ms });
    error.value(py).setattr("result", result)?;
    Err(error)
}
