//! Sending many messages with one call.

use super::super::batch::{BatchGiven, BatchRows};
use super::super::convert::Queue;
use super::super::draft::durability;
use super::super::edge::Batches;
use super::super::log;
use super::super::named;
use super::super::progress::interruptible;
use super::super::sent::BatchResult;
use super::super::ticket::{BatchTicket, in_time, wait};
use super::Producer;
use crate::{Atomicity, Durability};
use pyo3::prelude::*;

fn atomicity(atomic: bool) -> Atomicity {
    match atomic {
        true => Atomicity::Whole,
        false => Atomicity::Rows,
    }
}

impl Producer {
    /// Waits until the log is durable up to `end`, if the caller asked for that; returns false on
    /// timeout.
    fn wait_as_asked(&self, py: Python<'_>, end: u64, durability: Durability) -> PyResult<bool> {
        if !self.waits(durability) {
            return Ok(true);
        }
        let waiter = py.detach(|| self.core.enlist(end));
        let in_time = wait(py, &waiter, Some(self.flush_timeout));
        log::warnings(py, self.store());
        in_time
    }
}

#[pymethods]
impl Producer {
    /// Send many messages with one lock and one flush, in chunks of up to 4 MiB.
    ///
    /// Parameters
    /// ----------
    /// bodies
    ///     A sequence of bodies.
    /// keys
    ///     One entry per message: a key, a sequence of keys, or None.
    /// tags
    ///     One tag for all messages, or a sequence with one entry per message.
    /// properties
    ///     One mapping for all messages, or a sequence with one entry per message.
    /// headers
    ///     One sequence of names and values for all messages, or a sequence with one such sequence
    ///     or None per message.
    /// queue
    ///     Number of the queue. The default is the producer's queue. If that has none, the first
    ///     key of a message selects its queue; all messages without a key go to one queue, the next
    ///     in turn.
    /// atomic
    ///     Store all messages or none, even if the process crashes or the power fails; up to 64
    ///     MiB.
    /// timestamp
    ///     When the messages were made, an aware datetime; by default now.
    /// flush
    ///     As for `send`.
    ///
    /// Returns
    /// -------
    /// BatchResult
    ///     The number of messages, and their offsets by queue. After Ctrl-C, which raises
    ///     `KeyboardInterrupt`, completed chunks stay sent; with ``atomic`` nothing is sent.
    ///
    /// Raises
    /// ------
    /// ForebayError
    ///     If a message is refused; ``row`` is its index. Nothing of its chunk was appended, but
    ///     all chunks before it were.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     orders = store.producer("orders", queue=0)
    /// ...     orders.send_batch([b"a", b"b"], keys=["1", "2"]).ranges
    /// {0: range(0, 2)}
    #[pyo3(signature = (bodies, *, keys=None, tags=None, properties=None, headers=None, queue=None,
                        atomic=false, timestamp=None, flush=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the keywords of the Python method"
    )]
    fn send_batch<'py>(
        &self,
        py: Python<'py>,
        bodies: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        tags: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        queue: Option<Queue>,
        #[pyo3(from_py_with = named::atomic)] atomic: bool,
        timestamp: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = named::flush)] flush: Option<bool>,
    ) -> PyResult<BatchResult> {
        let given = BatchGiven::new(bodies, keys, tags, properties, headers)?;
        let rows = BatchRows::new(py, self.takes_null, &given, queue, timestamp)?;
        let durability = durability(flush);
        let written = (atomicity(atomic), Durability::Written);
        let appended = interruptible(py, |go_on| {
            let drafts = rows.drafts().map(Ok);
            self.core.send_batch_while(drafts, written, go_on)
        });
        log::warnings(py, self.store());
        let appended = appended?;
        let is_over = self.wait_as_asked(py, appended.end, durability)?;
        let durable = appended.durable || (is_over && self.waits(durability));
        let result = BatchResult::new(py, &appended, durable)?;
        in_time(py, is_over, self.flush_timeout, result)
    }

    /// Send many messages, and return a ticket without waiting for the disk.
    ///
    /// When the call returns, the messages are in the log; the ticket is done when all are durable.
    /// The parameters are those of `send_batch`.
    ///
    /// Returns
    /// -------
    /// BatchTicket
    ///     ``done()`` and ``result(timeout)``.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     ticket = store.producer("orders").send_batch_nowait([b"a", b"b"])
    /// ...     ticket.result().count
    /// 2
    #[pyo3(signature = (bodies, *, keys=None, tags=None, properties=None, headers=None, queue=None,
                        atomic=false, timestamp=None))]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the keywords of the Python method"
    )]
    fn send_batch_nowait<'py>(
        &self,
        py: Python<'py>,
        bodies: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        tags: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        queue: Option<Queue>,
        #[pyo3(from_py_with = named::atomic)] atomic: bool,
        timestamp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<BatchTicket> {
        let given = BatchGiven::new(bodies, keys, tags, properties, headers)?;
        let rows = BatchRows::new(py, self.takes_null, &given, queue, timestamp)?;
        let atomicity = atomicity(atomic);
        let ticket = interruptible(py, |go_on| {
            let drafts = rows.drafts().map(Ok);
            self.core.send_batch_nowait_while(drafts, atomicity, go_on)
        });
        log::warnings(py, self.store());
        Ok(BatchTicket::new(ticket?))
    }

    /// Send the rows of a table, a record batch, or a stream of them.
    ///
    /// Parameters
    /// ----------
    /// data
    ///     Any object with ``__arrow_c_stream__`` or ``__arrow_c_array__``. The column ``body`` (or
    ///     ``value``) is required; ``key`` (or ``keys``), ``tags``, ``properties``, ``headers``,
    ///     ``queue`` and ``timestamp`` are optional. ``timestamp`` is a timestamp with a time zone,
    ///     or int64 milliseconds since the epoch; ``headers`` a list of structs of name and bytes.
    /// atomic, flush
    ///     As for `send_batch`.
    ///
    /// Returns
    /// -------
    /// BatchResult
    ///     The number of messages, and their offsets by queue. After Ctrl-C, which raises
    ///     `KeyboardInterrupt`, completed chunks stay sent; with ``atomic`` nothing is sent.
    ///
    /// Raises
    /// ------
    /// InvalidOptionError
    ///     If a column is unknown, missing, or of the wrong type; nothing is sent then.
    /// ForebayError
    ///     If a row is refused; ``row`` is its index, counted over all batches.
    ///
    /// Examples
    /// --------
    /// >>> import pyarrow
    /// >>> table = pyarrow.table({"body": [b"a", b"b"], "key": ["1", "2"]})
    /// >>> with forebay.open(":memory:") as store:
    /// ...     store.producer("orders").send_arrow(table).count
    /// 2
    #[pyo3(signature = (data, *, atomic=false, flush=None))]
    fn send_arrow(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = named::atomic)] atomic: bool,
        #[pyo3(from_py_with = named::flush)] flush: Option<bool>,
    ) -> PyResult<BatchResult> {
        let reader = Batches::of(data)?.reader();
        let atomicity = atomicity(atomic);
        let durability = durability(flush);
        let written = Durability::Written;
        let sent = interruptible(py, |go_on| {
            crate::send_arrow(&self.core, reader, atomicity, written, go_on)
        });
        log::warnings(py, self.store());
        let mut sent = sent?;
        let is_over = self.wait_as_asked(py, sent.end, durability)?;
        sent.durable |= is_over && self.waits(durability);
        let result = BatchResult::of_imported(py, &sent)?;
        in_time(py, is_over, self.flush_timeout, result)
    }
}
