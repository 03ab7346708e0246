//! Consumers in Python.

use super::convert::{count, duration, integer, wrong_type};
use super::errors::must;
use super::handle::{Handle, call_answering};
use super::log;
use super::message::Message;
use super::named;
use super::pause::{Pause, Polled};
use super::progress::interruptible;
use super::start::start_of;
use super::waiting::Wait;
use crate::Mutex;
use crate::{COPIED_MAX, Delivery, Error, Receipt};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::collections::VecDeque;
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
    core: Arc<crate::Consumer>,
    store: Handle,
    acknowledges: bool,
    prefetch: usize,
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

    /// A call that waits for nobody.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&crate::Consumer) -> crate::Result<T> + Send,
    ) -> crate::Result<T> {
        let core = &self.core;
        self.store.call(py, |_| run(core))
    }

    /// A call whose waits for other processes a signal ends: then the outer result is its
    /// exception.
    pub(super) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&crate::Consumer) -> crate::Result<T> + Send,
    ) -> PyResult<crate::Result<T>> {
        call_answering(py, self.store.core(), |_| Ok(run(&self.core)))
    }

    /// Messages, once there are any; none after `timeout`. Answers signals.
    fn take(
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
            // A slice that is not full has all that there is, or as much as a poll may copy.
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
                // All that was taken has another owner.
                Err(lost @ Error::OwnershipLost { .. }) => return Err(lost.into()),
                // The next poll meets the error again.
                Err(_) => return Ok(()),
            };
        }
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

/// The receipt of a message that a consumer delivered.
fn receipt<'a>(message: &'a Bound<'_, Message>) -> PyResult<&'a Receipt> {
    message.get().receipt().ok_or_else(|| undelivered(message))
}

fn delivery(message: &Bound<'_, Message>) -> PyResult<Delivery> {
    message.get().delivery().ok_or_else(|| undelivered(message))
}

fn undelivered(message: &Bound<'_, Message>) -> PyErr {
    must("message", message, "be one that a consumer delivered")
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
            // The caller gets none of them.
            let taken: Vec<_> = list
                .iter()
                .filter_map(|it| it.cast_into::<Message>().ok())
                .collect();
            let receipts = taken.iter().filter_map(|it| it.get().receipt());
            self.core.give_back(receipts);
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
    fn give_back(&self, messages: Vec<Bound<'_, Message>>) {
        let receipts = messages.iter().filter_map(|it| it.get().receipt());
        self.core.give_back(receipts);
    }

    /// Settle one message or several: they are handled.
    ///
    /// Progress moves to the smallest offset that is not settled. It is stored every 5 s, by
    /// `commit` and by `close`, after the messages before it are durable.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError
    ///     If a message was settled before. All others are settled.
    /// OwnershipLostError
    ///     If a message was delivered again since or was taken back by `nack`, its queue has
    ///     another owner, or a consumer of another group or store delivered it. All others are
    ///     settled.
    fn ack(&self, py: Python<'_>, messages: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(message) = messages.cast::<Message>() {
            let receipt = receipt(message)?;
            return Ok(self.ask(py, |core| core.ack([receipt]))??);
        }
        let wanted = "a Message or a sequence of them";
        let messages = super::convert::each("messages", messages, wanted, |_, item| {
            let message = item.cast_into::<Message>();
            message.map_err(|error| wrong_type("messages", &error.into_inner(), wanted))
        })?;
        let receipts: Vec<&Receipt> = messages.iter().map(receipt).collect::<PyResult<_>>()?;
        Ok(self.ask(py, |core| core.ack(receipts))??)
    }

    /// Have a message delivered again later.
    ///
    /// With ``order="none"`` the message goes through the topic ``%RETRY%<group>``, after a delay:
    /// by default 10 s for the first retry, then 30 s, 1 min and so on up to 2 h. With
    /// ``order="queue"`` it is delivered again in place, before anything after it in its queue;
    /// later messages of the queue that are not settled are taken back, and delivered again after
    /// it; to refuse one of these has no effect. After 16 retries, or ``retry_in_place`` attempts,
    /// it becomes a dead letter in ``%DLQ%<group>``, and at once if its properties, of which a
    /// record of a commit log holds 32,767 bytes, leave no room for those of a retry. In a
    /// partition log the topics are ``retry.<group>`` and ``dlq.<group>``.
    ///
    /// Parameters
    /// ----------
    /// message
    ///     A message that this consumer delivered.
    /// delay_level
    ///     RocketMQ's level of the delay, 1 to 18: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min,
    ///     30 min, 1 h, 2 h. None: by the number of attempts. With ``order="queue"`` it has no
    ///     effect: the pauses grow from 1 s to 30 s, since nothing after the message is delivered
    ///     meanwhile.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError, OwnershipLostError
    ///     As `ack`.
    /// CorruptError
    ///     If the message was damaged on disk since it was delivered. It is not copied and stays
    ///     unsettled; its next delivery finds the damage and settles it.
    #[pyo3(signature = (message, delay_level=None))]
    fn nack(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        delay_level: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let level = match delay_level {
            None => None,
            Some(given) => {
                let level = integer("delay_level", given)?.and_then(|it| u8::try_from(it).ok());
                let levels = self.store.core().options().delay_levels().all_ms().len();
                let rule = format!("be from 1 to {levels}, or None");
                Some(level.ok_or_else(|| must("delay_level", given, &rule))?)
            }
        };
        let delivery = delivery(message)?;
        Ok(self.ask(py, |core| core.nack(&delivery, level))??)
    }

    /// Make a message a dead letter: it goes to ``%DLQ%<group>`` and is not delivered again.
    ///
    /// In a partition log the topic is ``dlq.<group>``.
    ///
    /// Parameters
    /// ----------
    /// message
    ///     A message that this consumer delivered.
    /// reason
    ///     A text that the dead letter keeps in its property ``FOREBAY_REASON``: up to 1,000
    ///     characters, fewer if its other properties leave no room.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError, OwnershipLostError
    ///     As `ack`.
    /// CorruptError
    ///     As `nack`.
    #[pyo3(signature = (message, reason=None))]
    fn reject(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        #[pyo3(from_py_with = named::reason)] reason: Option<&str>,
    ) -> PyResult<()> {
        let delivery = delivery(message)?;
        Ok(self.ask(py, |core| core.reject(&delivery, reason))??)
    }

    /// Keep a message for longer before it is delivered again.
    ///
    /// Parameters
    /// ----------
    /// message
    ///     A message that this consumer delivered.
    /// seconds
    ///     From now on; a number or a timedelta.
    ///
    /// Raises
    /// ------
    /// AlreadySettledError, OwnershipLostError
    ///     As `ack`.
    fn extend(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::message)] message: &Bound<'_, Message>,
        seconds: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let longer = duration("seconds", seconds)?;
        let receipt = receipt(message)?;
        Ok(self.ask(py, |core| core.extend(receipt, longer))??)
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
    /// once the calls that run have returned. If messages cannot be settled for a reason that
    /// passes, such as `BusyError` or `DiskFullError`, it logs that and tries again until it
    /// works, or gives them back when it ends. Other errors end it and are raised.
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

    fn __iter__(slf: Bound<'_, Self>) -> ConsumerIterator {
        ConsumerIterator {
            consumer: slf.unbind(),
            state: Mutex::default(),
        }
    }

    fn __repr__(&self) -> String {
        let topics: Vec<&str> = self.core.topics().collect();
        format!("<Consumer of {topics:?} in group {:?}>", self.core.group())
    }
}

/// The messages of a consumer, one by one; made by iterating over a `Consumer`.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct ConsumerIterator {
    consumer: Py<Consumer>,
    state: Mutex<Ahead>,
}

/// What an iterator has taken.
#[derive(Default)]
struct Ahead {
    messages: VecDeque<Delivery>,
    last: Option<Receipt>,
}

impl ConsumerIterator {
    /// Acknowledges the message that was handed out last, unless somebody has settled it.
    fn acknowledge(&self, consumer: &Consumer, py: Python<'_>) -> PyResult<()> {
        let last = self.state.lock().last.take();
        let Some(last) = last.filter(|_| consumer.acknowledges) else {
            return Ok(());
        };
        match consumer.ask(py, |core| core.ack([&last]))? {
            Err(Error::AlreadySettled { .. }) => Ok(()),
            settled => Ok(settled?),
        }
    }
}

#[pymethods]
impl ConsumerIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            if let Some(message) = self.ready(py)? {
                return Ok(Some(message));
            }
            let consumer = self.consumer.get();
            let got = consumer.take(py, consumer.prefetch, None)?;
            self.state.lock().messages.extend(got);
        }
    }

    /// Acknowledges the last message; returns the next one that was taken ahead.
    #[pyo3(name = "_ready")]
    fn ready(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let consumer = self.consumer.get();
        self.acknowledge(consumer, py)?;
        loop {
            let Some(delivery) = self.state.lock().messages.pop_front() else {
                return Ok(None);
            };
            // It may have waited here for so long that it was delivered again, or an earlier
            // message of an ordered queue may have been refused meanwhile.
            let receipt = &delivery.receipt;
            if consumer.core.renew(receipt).is_ok() {
                self.state.lock().last = Some(receipt.clone());
                return Ok(Some(delivery.into()));
            }
            consumer.core.give_back([receipt]);
        }
    }

    /// Take messages ahead, without waiting. If there are none, return what to wait for.
    #[pyo3(name = "_try_poll")]
    fn try_poll(&self, py: Python<'_>) -> PyResult<Option<Pause>> {
        let consumer = self.consumer.get();
        let polled = consumer.call(py, |core| core.try_poll(consumer.prefetch))?;
        let pause = polled.taken.is_empty().then(|| Pause::of(&polled));
        self.state.lock().messages.extend(polled.taken);
        Ok(pause)
    }
}

impl Drop for ConsumerIterator {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let unseen = state.messages.iter().map(|it| &it.receipt);
        self.consumer.get().core.give_back(unseen);
    }
}
