//! Tickets of `send_nowait`.

use super::convert::duration;
use super::errors::exception;
use super::sent::{BatchResult, Origin, SendResult};
use super::waiting::Wait;
use crate::{Delay, Error, Sent, Waiter};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// A message that is not durable yet; returned by `Producer.send_nowait`.
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
    delay: Delay,
}

impl Ticket {
    pub(super) fn new(origin: &Arc<Origin>, core: crate::Ticket, delay: Delay) -> Ticket {
        Ticket {
            origin: Arc::clone(origin),
            core,
            delay,
        }
    }

    pub(super) fn waiter(&self) -> crate::Result<&Waiter> {
        self.core.waiter()
    }

    /// Where the message is, or the error that it was not durable within `timeout`.
    fn result_after(
        &self,
        py: Python<'_>,
        durable: bool,
        timeout: Duration,
    ) -> PyResult<SendResult> {
        let Some(sent) = self.core.sent() else {
            let error = exception(
                py,
                &Error::Lingers {
                    timeout_ms: millis(timeout),
                },
            );
            error.value(py).setattr("result", py.None())?;
            return Err(error);
        };
        let result = SendResult::new(&self.origin, Sent { durable, ..sent }, self.delay);
        in_time(py, durable, timeout, result)
    }
}

#[pymethods]
impl Ticket {
    /// Return whether `result` would return or raise without waiting.
    fn done(&self) -> bool {
        self.core.is_done()
    }

    /// Wait until the message is durable, and return where it is.
    ///
    /// Parameters
    /// ----------
    /// timeout
    ///     Seconds or a timedelta; None waits without a limit.
    ///
    /// Returns
    /// -------
    /// SendResult
    ///     The result that `Producer.send` would return, with ``durable`` true.
    ///
    /// Raises
    /// ------
    /// FlushTimeoutError
    ///     If the message is not durable in time. It is in the log, and the attribute ``result``
    ///     says where; do not send it again. With the option ``linger`` it may still wait for
    ///     others of its queue; then ``result`` is None.
    /// BusyError, DiskFullError, DiskError
    ///     With the option ``linger``, if the message was not appended.
    /// StoreFailedError
    ///     If the flush failed. The message is in the log, but its durability is unknown.
    /// ForkedError
    ///     In a child process of the one that sent the message.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<SendResult> {
        let (durable, timeout) = wait_for(py, self.waiter(), timeout)?;
        self.result_after(py, durable, timeout)
    }

    /// The result, after an event loop has waited for `timeout`. Does not wait.
    #[pyo3(name = "_after")]
    fn after(&self, py: Python<'_>, timeout: Duration) -> PyResult<SendResult> {
        let durable = is_durable(py, self.waiter())?;
        self.result_after(py, durable, timeout)
    }

    fn __repr__(&self) -> String {
        let state = state(self.core.is_done());
        let topic = &self.origin.topic;
        match self.core.sent() {
            Some(Sent { place, .. }) => format!(
                "<Ticket of {topic:?} queue {} offset {}: {state}>",
                place.queue, place.offset
            ),
            None => format!("<Ticket of {topic:?}, not in the log: {state}>"),
        }
    }
}

/// A batch in the log that is not durable yet; returned by `Producer.send_batch_nowait`.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     ticket = store.producer("orders", queue=0).send_batch_nowait([b"a", b"b"])
/// ...     ticket.result(timeout=5).ranges
/// {0: range(0, 2)}
#[pyclass(frozen, module = "forebay")]
pub(crate) struct BatchTicket {
    core: crate::BatchTicket,
}

impl BatchTicket {
    pub(super) fn new(core: crate::BatchTicket) -> BatchTicket {
        BatchTicket { core }
    }

    pub(super) fn waiter(&self) -> crate::Result<&Waiter> {
        self.core.waiter()
    }

    fn result_after(
        &self,
        py: Python<'_>,
        durable: bool,
        timeout: Duration,
    ) -> PyResult<BatchResult> {
        let result = BatchResult::new(py, self.core.sent(), durable)?;
        in_time(py, durable, timeout, result)
    }
}

#[pymethods]
impl BatchTicket {
    /// Return whether `result` would return or raise without waiting.
    fn done(&self) -> bool {
        self.core.is_done()
    }

    /// Wait until the batch is durable, and return where it is.
    ///
    /// Parameters
    /// ----------
    /// timeout
    ///     Seconds or a timedelta; None waits without a limit.
    ///
    /// Returns
    /// -------
    /// BatchResult
    ///     The result that `Producer.send_batch` would return, with ``durable`` true.
    ///
    /// Raises
    /// ------
    /// FlushTimeoutError, StoreFailedError, ForkedError
    ///     As `Ticket.result`.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<BatchResult> {
        let (durable, timeout) = wait_for(py, self.waiter(), timeout)?;
        self.result_after(py, durable, timeout)
    }

    /// The result, after an event loop has waited for `timeout`. Does not wait.
    #[pyo3(name = "_after")]
    fn after(&self, py: Python<'_>, timeout: Duration) -> PyResult<BatchResult> {
        let durable = is_durable(py, self.waiter())?;
        self.result_after(py, durable, timeout)
    }

    fn __repr__(&self) -> String {
        let messages = self.core.sent().rows.len();
        let state = state(self.core.is_done());
        format!("<BatchTicket of {messages} messages: {state}>")
    }
}

/// Waits for at most the Python argument `timeout`. Returns whether the wait ended in time, and the
/// timeout; 0 if there is none.
fn wait_for(
    py: Python<'_>,
    waiter: crate::Result<&Waiter>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<(bool, Duration)> {
    let timeout = timeout
        .map(|timeout| duration("timeout", timeout))
        .transpose()?;
    let waiter = waiter.map_err(|e| exception(py, &e))?;
    Ok((wait(py, waiter, timeout)?, timeout.unwrap_or_default()))
}

/// Whether the wait is over. Does not wait.
fn is_durable(py: Python<'_>, waiter: crate::Result<&Waiter>) -> PyResult<bool> {
    let waiter = waiter.map_err(|e| exception(py, &e))?;
    wait(py, waiter, Some(Duration::ZERO))
}

fn state(is_done: bool) -> &'static str {
    match is_done {
        true => "done",
        false => "waiting",
    }
}

/// Waits for durability, without a limit if there is no timeout. Returns false on timeout. Ctrl-C
/// ends the wait.
pub(super) fn wait(py: Python<'_>, waiter: &Waiter, timeout: Option<Duration>) -> PyResult<bool> {
    let mut wait = Wait::new(timeout);
    loop {
        let slice = wait.slice();
        match py.detach(|| waiter.wait(slice)) {
            Some(Ok(())) => return Ok(true),
            Some(Err(error)) => return Err(exception(py, &error)),
            None if slice.is_zero() => return Ok(false),
            None => wait.pause(py)?,
        }
    }
}

/// Returns `result` if `is_over`; else the error that the message was not durable within `timeout`,
/// with `result` as its attribute.
pub(super) fn in_time<T: for<'py> IntoPyObject<'py>>(
    py: Python<'_>,
    is_over: bool,
    timeout: Duration,
    result: T,
) -> PyResult<T> {
    if is_over {
        return Ok(result);
    }
    let timeout_ms = millis(timeout);
    let error = exception(py, &Error::FlushTimeout { timeout_ms });
    error.value(py).setattr("result", result)?;
    Err(error)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
