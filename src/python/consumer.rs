//! Consumers in Python.

use super::convert::{count, duration};
use super::handle::{Handle, call_answering};
use super::log;
use super::message::Message;
use super::named;
use super::pause::{Pause, Polled};
use super::progress::interruptible;
use super::start::start_of;
use super::waiting::Wait;
use crate::{COPIED_MAX, Delivery, Error};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::Arc;
use std::time::Duration;

/// A member of a group of consumers; made by `Store.consumer`.
///
/// The queues of its topics are shared out among the consumers of a group: each queue has one
/// owner at a time. A message is delivered until it is settled: with `ack`, `nack` or `reject`.
///
/// Iterating blocks for each message. With ``ack="auto"`` taking the next message acknowledges the
/// previous one of the same iterator; leaving the loop leaves the last one unsettled. Any thread
/// may use a consumer; each message goes to one of them.
///
/// Attributes
/// ----------
/// group
///     The name of the group.
/// topics
///     The topics, as a tuple.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     _ = store.producer("orders").send_batch([b"apples", b"pears"])
/// ...     with store.consumer("orders", group="billing") as consumer:
/// ...         for message in consumer.poll(max_messages=10, timeout=1.0):
/// ...             print(message.body)
/// ...             consumer.ack(message)
/// b'apples'
/// b'pears'
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Consumer {
    pub(super) core: Arc<crate::Consumer>,
    pub(super) store: Handle,
    pub(super) acknowledges: bool,
    pub(super) prefetch: usize,
}

/// Messages that are taken and converted between two checks for signals. A poll that asks for more
/// is made of several.
const SLICE_ROWS: usize = 8192;

fn poll_max(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    count("max_messages", object)
}

impl Consumer {
    /// `acknowledges`: an iterator acknowledges what it has handed out. It takes up to `prefetch`
    /// messages at once.
    pub(super) fn new(
        core: crate::Consumer,
        store: Handle,
        acknowledges: bool,
        prefetch: usize,
    ) -> Consumer {
        Consumer {
            core: Arc::new(core),
            store,
            acknowledges,
            prefetch,
        }
    }

    pub(super) fn core(&self) -> &crate::Consumer {
        &self.core
    }

    /// Runs a call that does not wait for other processes.
    pub(super) fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&crate::Consumer) -> crate::Result<T> + Send,
    ) -> crate::Result<T> {
        let core = &self.core;
        self.store.call(py, |_| run(core))
    }

    /// Runs a call that may wait for other processes. A signal ends such a wait; the outer result
    /// is then its exception.
    pub(super) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&crate::Consumer) -> crate::Result<T> + Send,
    ) -> PyResult<crate::Result<T>> {
        call_answering(py, self.store.core(), |_| Ok(run(&self.core)))
    }

    /// Messages, once there are any; none after `timeout`. Answers signals.
    pub(super) fn take(
        &self,
        py: Python<'_>,
        max: usize,
        timeout: Option<Duration>,
    ) -> PyResult<Vec<Delivery>> {
        let mut wait = Wait::new(timeout);
        loop {
            let slice = wait.slice();
            let got = self.ask(py, |core| core.poll(max, slice))??;
            if !got.is_empty() || slice.is_zero() {
                return Ok(got);
            }
            wait.pause(py)?;
        }
    }

    /// Gives back messages that nobody has seen.
    fn return_unseen(&self, py: Python<'_>, messages: &[Bound<'_, Message>]) {
        let receipts = messages.iter().filter_map(|it| it.get().receipt());
        let (core, receipts) = (&self.core, receipts.collect::<Vec<_>>());
        py.detach(|| core.give_back(receipts));
    }

    /// Fills a list with up to `max` messages, as [`Consumer::take`], in slices between which
    /// signals are handled. After an error the list has what was taken before.
    fn fill(
        &self,
        list: &Bound<'_, PyList>,
        max: usize,
        timeout: Option<Duration>,
    ) -> PyResult<()> {
        let py = list.py();
        let mut got = self.take(py, max.min(SLICE_ROWS), timeout)?;
        let mut bytes = 0;
        loop {
            // A slice that is not full ends because no more messages are there, or because a poll
            // may not copy more.
            let is_full = got.len() == SLICE_ROWS;
            bytes += extend(list, got)?;
            let room = max - list.len();
            if !is_full || room == 0 || bytes >= COPIED_MAX {
                return Ok(());
            }
            py.check_signals()?;
            let more = self.ask(py, |core| core.poll(room.min(SLICE_ROWS), Duration::ZERO));
            got = match more? {
                Ok(more) => more,
                // All messages taken so far have another owner.
                Err(lost @ Error::OwnershipLost { .. }) => return Err(lost.into()),
                // The next poll reports the error.
                Err(_) => return Ok(()),
            };
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // This only tidies up; `close` reports errors. It runs detached, because it may wait for
        // another process and for the disk. While the interpreter exits, the core's own drop does
        // it.
        let core = &self.core;
        let _ = Python::try_attach(|py| py.detach(|| core.close()));
    }
}

/// Adds messages to a list, and returns their bytes.
fn extend(list: &Bound<'_, PyList>, got: Vec<Delivery>) -> PyResult<u64> {
    let mut bytes = 0;
    for delivery in got {
        bytes += u64::from(delivery.message.record().layout().total_len());
        list.append(Message::from(delivery))?;
    }
    Ok(bytes)
}

#[pymethods]
impl Consumer {
    /// The name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.core.group()
    }

    /// The topics, as a tuple.
    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.topics().collect::<Vec<_>>())
    }

    /// Take messages, without settling them.
    ///
    /// Parameters
    /// ----------
    /// max_messages
    ///     The most messages to return, at least 1. Queues are read in turn. A list of more than
    ///     8,192 messages has at most about 64 MiB.
    /// timeout
    ///     How long to wait for the first message, in seconds or as a timedelta; None waits for
    ///     ever. Ctrl-C interrupts the wait, and the reading of many messages, which are given
    ///     back.
    ///
    /// Returns
    /// -------
    /// list of Message
    ///     Messages of one queue are in the order of their offsets. They are delivered again if
    ///     they are not settled within ``visibility_timeout``. Empty after the timeout.
    ///
    /// Raises
    /// ------
    /// LogShrunkError
    ///     If a queue ends before the offset that the group has reached.
    /// OwnershipLostError
    ///     With ``mode="share"``: once, if this process has shown no sign of life for
    ///     ``session_timeout``, so that others have got its queues. The consumer has joined its
    ///     group again.
    /// StoreClosedError
    ///     If the store or the consumer is closed.
    #[pyo3(
        signature = (max_messages=None, timeout=None),
        text_signature = "($self, max_messages=64, timeout=None)"
    )]
    fn poll<'py>(
        &self,
        py: Python<'py>,
        max_messages: Option<&Bound<'py, PyAny>>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let max = max_messages.map_or(Ok(64), poll_max)?;
        let timeout = timeout.map(|it| duration("timeout", it)).transpose()?;
        let list = PyList::empty(py);
        let filled = self.fill(&list, max, timeout);
        if filled.is_err() {
            // The caller gets none of the messages.
            let taken: Vec<_> = list
                .iter()
                .filter_map(|it| it.cast_into::<Message>().ok())
                .collect();
            self.return_unseen(py, &taken);
        }
        filled.map(|()| list)
    }

    /// Take messages, without waiting.
    #[pyo3(name = "_try_poll")]
    fn try_poll(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = poll_max)] max_messages: usize,
    ) -> PyResult<Polled> {
        let polled = self.call(py, |core| core.try_poll(max_messages))?;
        let pause = Py::new(py, Pause::of(&polled))?;
        let taken = polled.taken.into_iter().map(Message::from);
        let messages = PyList::new(py, taken.collect::<Vec<_>>())?.unbind();
        Ok(Polled { messages, pause })
    }

    /// Have messages delivered again at once: nobody has seen them.
    #[pyo3(name = "_give_back")]
    fn give_back(&self, py: Python<'_>, messages: Vec<Bound<'_, Message>>) {
        self.return_unseen(py, &messages);
    }

    /// Handle messages with a function until the consumer or its store closes, or a signal comes.
    ///
    /// A call that returns acknowledges its messages; one that raises has them delivered again, as
    /// `nack` does, and the exception is logged to the logger ``forebay``.
    ///
    /// Parameters
    /// ----------
    /// handler
    ///     Called with a message; with ``batch`` above 1, with a list of up to that many. It must
    ///     have handled them when it returns: a coroutine function or a generator function is
    ///     refused, and a call that returns an awaitable or a generator has failed.
    /// threads
    ///     How many threads call it, 1 to 1,024.
    /// batch
    ///     The most messages of a call.
    ///
    /// Notes
    /// -----
    /// Blocks. Called in the main thread it ends at SIGTERM, and at Ctrl-C with KeyboardInterrupt,
    /// once the calls that run have returned. If messages cannot be settled for a temporary reason,
    /// such as `BusyError` or `DiskFullError`, it logs that and tries again until it succeeds, or
    /// gives them back when it ends. Other errors end it and are raised.
    #[pyo3(signature = (handler, threads=1, batch=1))]
    fn run(
        slf: &Bound<'_, Self>,
        handler: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = named::threads)] threads: usize,
        #[pyo3(from_py_with = named::batch)] batch: usize,
    ) -> PyResult<()> {
        let run = slf.py().import("forebay.consumer")?.getattr("run")?;
        run.call1((slf, handler, threads, batch)).map(drop)
    }

    /// Continue elsewhere in the queues that this consumer owns.
    ///
    /// Messages of these queues that it holds can no longer be settled.
    ///
    /// Parameters
    /// ----------
    /// to
    ///     ``"earliest"``, ``"latest"``, an aware datetime, a timedelta ago, or
    ///     ``{(topic, queue): offset}``, which leaves other queues where they are.
    ///
    /// Raises
    /// ------
    /// OwnershipLostError
    ///     If another consumer owns a queue that is named.
    /// OffsetOutOfRangeError
    ///     If a queue does not have the offset.
    fn seek(&self, py: Python<'_>, to: &Bound<'_, PyAny>) -> PyResult<()> {
        let to = start_of("to", to, self.store.core().now_ms())?;
        Ok(self.ask(py, |core| core.seek(&to))??)
    }

    /// Count the messages that are not settled yet, delivered or not, in each queue.
    ///
    /// Returns
    /// -------
    /// dict
    ///     ``{(topic, queue): messages}`` for the queues that this consumer owns.
    fn lag<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let lags = PyDict::new(py);
        for it in self.ask(py, crate::Consumer::assignment)?? {
            lags.set_item((&*it.topic, it.queue), it.lag)?;
        }
        Ok(lags)
    }

    /// The queues that this consumer owns, as a sorted list of ``(topic, queue)``.
    #[getter]
    fn assignment(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        let queues = self.ask(py, crate::Consumer::assignment)??.into_iter();
        Ok(queues.map(|it| (it.topic.into(), it.queue)).collect())
    }

    /// Store the progress of the group. What was settled is durable on return.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let committed = interruptible(py, |go_on| self.core.commit_while(go_on));
        log::warnings(py, self.store.core());
        committed
    }

    /// Leave the group. Messages that are not settled are delivered to others at once.
    ///
    /// Stores the progress. A second call does nothing.
    ///
    /// Raises
    /// ------
    /// BusyError
    ///     If another process had the table of progress locked for 5 s. The consumer is closed, and
    ///     the store stores the progress later.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.ask(py, crate::Consumer::close)??)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let topics: Vec<&str> = self.core.topics().collect();
        format!("<Consumer of {topics:?} in group {:?}>", self.core.group())
    }
}
