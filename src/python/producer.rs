//! Producers.

mod batches;

use super::convert::Queue;
use super::draft::{DelayLevel, Given, durability, when};
use super::handle::{Handle, call_answering};
use super::log;
use super::named;
use super::producer_queue::ProducerQueue;
use super::sent::{Origin, SendResult};
use super::store::Store;
use super::ticket::{Ticket, in_time, wait};
use super::waiting::answering;
use crate::{Delay, Draft, Durability, Flush, Sent};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use std::time::Duration;

/// Bodies up to this length are appended without detaching from the interpreter: the append takes a
/// few microseconds, which is less than detaching and attaching again.
const ATTACHED_LEN_MAX: usize = 64 * 1024;

/// Sends messages to one topic. Made by `Store.producer`; any thread may use it.
///
/// Use a producer in a loop: it is faster than `Store.send`, which finds the topic for each
/// message.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     orders = store.producer("orders", queue=0)
/// ...     for number in range(3):
/// ...         _ = orders.send(b"order %d" % number, key=str(number))
/// ...     store.get("orders", 0, 2).body
/// b'order 2'
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Producer {
    core: crate::Producer,
    store: Handle,
    origin: Arc<Origin>,
    takes_null: bool,
    waits_by_default: bool,
    /// Whether messages of `send_nowait` linger if the store has the option.
    lingers: bool,
    flush_timeout: Duration,
}

impl Producer {
    pub(super) fn new(store: Handle, core: crate::Producer) -> PyResult<Producer> {
        let engine = store.core().engine()?;
        let (takes_null, host) = (engine.meanings().in_kafka_form, engine.form().host());
        let origin = Arc::new(Origin {
            topic: core.topic().into(),
            host,
        });
        let options = store.core().options();
        let waits_by_default = options.flush() == Flush::Sync;
        let flush_timeout = options.flush_timeout;
        Ok(Producer {
            core,
            store,
            origin,
            takes_null,
            waits_by_default,
            lingers: true,
            flush_timeout,
        })
    }

    fn store(&self) -> &crate::Store {
        self.store.core()
    }

    /// When a message is to be delivered.
    #[inline]
    fn when(
        &self,
        level: &DelayLevel,
        delay: Option<&Bound<'_, PyAny>>,
        deliver_at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Delay> {
        Ok(self.core.delay_in_store(when(level, delay, deliver_at)?)?)
    }

    /// Whether the call waits for the disk.
    #[inline]
    fn waits(&self, durability: Durability) -> bool {
        durability.waits(self.waits_by_default)
    }

    /// Whether the append must run detached, because it may wait for another sender, create a file,
    /// or copy for long.
    #[inline]
    fn has_to_detach(&self, draft: &Draft<'_>) -> bool {
        let len = draft.body.len();
        len > ATTACHED_LEN_MAX || !self.core.is_ready_for(draft.queue, len)
    }

    /// Sends the message, and returns a ticket that tracks its durability.
    fn ticket(&self, py: Python<'_>, draft: &Draft<'_>, delay: Delay) -> PyResult<crate::Ticket> {
        let send = || match self.lingers {
            true => self.core.send_nowait(draft, delay),
            false => self.core.send_at_once(draft, delay),
        };
        match self.has_to_detach(draft) {
            true => answering(py, send),
            false => Ok(send()?),
        }
    }

    /// Sends the message, and waits until it is durable.
    fn send_durably(
        &self,
        py: Python<'_>,
        draft: &Draft<'_>,
        delay: Delay,
    ) -> PyResult<SendResult> {
        let ticket = answering(py, || self.core.send_at_once(draft, delay))?;
        let waiter = ticket
            .waiter()
            .map_err(|e| super::errors::exception(py, &e))?;
        let durable = wait(py, waiter, Some(self.flush_timeout))?;
        log::warnings(py, self.store());
        let Some(sent) = ticket.sent() else {
            unreachable!("a message that was sent at once is in the log")
        };
        let result = SendResult::new(&self.origin, Sent { durable, ..sent }, delay);
        in_time(py, durable, self.flush_timeout, result)
    }

    #[inline]
    pub(super) fn send_given<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyAny>,
        given: &Given<'_, 'py>,
        delay: Delay,
        durability: Durability,
    ) -> PyResult<SendResult> {
        given.with_draft(self.takes_null, body, |draft| {
            if self.waits(durability) {
                return self.send_durably(py, draft, delay);
            }
            let send = || self.core.send_delayed(draft, delay, Durability::Written);
            let sent = match self.has_to_detach(draft) {
                true => answering(py, send),
                false => send().map_err(PyErr::from),
            };
            log::warnings(py, self.store());
            Ok(SendResult::new(&self.origin, sent?, delay))
        })
    }
}

#[pymethods]
impl Store {
    /// Return a producer for a topic, which sends faster than `send` in a loop.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic; it is created if it does not exist.
    /// queue
    ///     Number of the queue for messages that do not name one; or ``"own"`` for a queue that no
    ///     other producer with ``queue="own"`` sends to. It stays the same for the same `name`,
    ///     even after a restart. If several producers use a name, the newest one owns the queue.
    /// name
    ///     The name of a producer that owns its queue.
    ///
    /// Raises
    /// ------
    /// InvalidOptionError
    ///     With ``queue="own"``, if each queue has an owner.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     store.producer("orders", queue=3).send(b"body").queue
    /// 3
    #[pyo3(signature = (topic, queue=None, *, name=None))]
    pub(super) fn producer(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        queue: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = named::name)] name: Option<&str>,
    ) -> PyResult<Producer> {
        let queue = ProducerQueue::of(queue, name)?;
        let (py, store) = (slf.py(), slf.get());
        let core = match queue {
            ProducerQueue::Number(queue) => {
                call_answering(py, store.core(), |it| it.producer(topic, queue))?
            }
            ProducerQueue::Own(name) => {
                call_answering(py, store.core(), |it| it.owning_producer(topic, name))?
            }
        };
        Producer::new(Store::handle(slf), core)
    }

    /// Whether `producer`, with these arguments, need not wait for other processes: the topic
    /// exists, and the producer is to own no queue. Raises what `producer` raises for arguments.
    #[pyo3(name = "_produces_at_once", signature = (topic, queue, name))]
    fn produces_at_once(
        &self,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        queue: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = named::name)] name: Option<&str>,
    ) -> PyResult<bool> {
        let queue = ProducerQueue::of(queue, name)?;
        let exists = self.core().sends_to(topic)?;
        Ok(exists && matches!(queue, ProducerQueue::Number(_)))
    }
}

#[pymethods]
impl Producer {
    /// The topic's name.
    #[getter]
    fn topic(&self) -> &str {
        self.core.topic()
    }

    /// The name of a producer that owns its queue; else None.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.core.owned().map(|(name, _)| name)
    }

    /// Give up the queue that the producer owns, so that another producer may have it.
    ///
    /// Later sends raise `OwnershipLostError`. A producer without a queue of its own needs no
    /// closing, and stays usable.
    fn close(&self) {
        self.core.give_up();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        self.core.give_up();
    }

    /// Send one message.
    ///
    /// Parameters
    /// ----------
    /// body
    ///     Any contiguous buffer: bytes, bytearray, memoryview, a NumPy array, an Arrow buffer. In
    ///     a partition log also None with a key: a tombstone, which has no body.
    /// key, keys
    ///     One or several keys to find the message by: text without spaces or control characters.
    ///     In a partition log, the first may be any bytes.
    /// tags
    ///     A tag, by which readers can filter.
    /// properties
    ///     Names and values that you choose, as a mapping of text.
    /// headers
    ///     In a partition log, a sequence of names and values, which are bytes or None. Order and
    ///     duplicates are kept. Properties become headers too, and precede these.
    /// queue
    ///     Number of the queue. The default is the producer's queue. If that has none, the first
    ///     key selects a queue; without a key, messages go to each queue in turn.
    /// delay_level
    ///     With 1 to 18 the message is delivered after RocketMQ's delay of that level: 1 s, 5 s,
    ///     10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h. Until then it waits in the topic
    ///     SCHEDULE_TOPIC_XXXX, in a partition log in rmq_sys_forebay_delay. 0 means no delay.
    /// delay
    ///     Deliver the message after this time, seconds or a timedelta, at most 366 days. Until
    ///     then it waits in the topic rmq_sys_forebay_delay.
    /// deliver_at
    ///     Deliver the message at this time, an aware datetime at most 366 days ahead; at once if
    ///     it has passed. Excludes ``delay`` and ``delay_level``.
    /// timestamp
    ///     When the message was made, an aware datetime; by default now.
    /// flush
    ///     True waits until the message is durable, False does not. None does what the store was
    ///     opened with: ``flush="sync"`` waits, ``flush="async"`` does not.
    ///
    /// Returns
    /// -------
    /// SendResult
    ///     Topic, queue, offset and position of the message.
    ///
    /// Raises
    /// ------
    /// MessageTooLargeError
    ///     If the body, or all properties together, exceed the limit.
    /// InvalidOptionError
    ///     If a key, tag or property has characters that the format cannot store.
    /// UnsupportedError
    ///     For headers, if the store is not a partition log.
    #[pyo3(
        signature = (body, *, key=None, keys=None, tags=None, properties=None, headers=None,
                     queue=None, delay_level=DelayLevel(0), timestamp=None, flush=None,
                     delay=None, deliver_at=None),
        text_signature = "($self, body, *, key=None, keys=None, tags=None, properties=None, \
                          headers=None, queue=None, delay_level=0, timestamp=None, flush=None, \
                          delay=None, deliver_at=None)"
    )]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the keywords of the Python method"
    )]
    fn send<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        keys: Option<&Bound<'py, PyAny>>,
        tags: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        queue: Option<Queue>,
        delay_level: DelayLevel,
        timestamp: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = named::flush)] flush: Option<bool>,
        delay: Option<&Bound<'py, PyAny>>,
        deliver_at: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<SendResult> {
        let given = Given {
            key,
            keys,
            tags,
            properties,
            headers,
            queue,
            timestamp,
        };
        let delay = self.when(&delay_level, delay, deliver_at)?;
        self.send_given(py, body, &given, delay, durability(flush))
    }

    /// Send one message, and return a ticket without waiting for the disk.
    ///
    /// When the call returns, the message is in the log; the ticket is done when it is durable.
    /// Waiting tickets share one flush. The parameters are those of `send`.
    ///
    /// In a partition log with the option ``linger``, the message waits for others of its queue
    /// instead, at most for this time, and they are appended as one batch. Nobody can read it
    /// until then, and it is lost if the process dies. A flush, a close, and each other send to
    /// the queue append it first. If it cannot be appended, the ticket raises the error, and so
    /// does the next ``flush`` or ``close`` of the store.
    ///
    /// Returns
    /// -------
    /// Ticket
    ///     ``done()`` and ``result(timeout)``.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     ticket = store.producer("orders").send_nowait(b"body")
    /// ...     ticket.result().durable
    /// True
    #[pyo3(
        signature = (body, *, key=None, keys=None, tags=None, properties=None, headers=None,
                     queue=None, delay_level=DelayLevel(0), timestamp=None, delay=None,
                     deliver_at=None),
        text_signature = "($self, body, *, key=None, keys=None, tags=None, properties=None, \
                          headers=None, queue=None, delay_level=0, timestamp=None, delay=None, \
                          deliver_at=None)"
    )]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the keywords of the Python method"
    )]
    fn send_nowait<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
        keys: Option<&Bound<'py, PyAny>>,
        tags: Option<&Bound<'py, PyAny>>,
        properties: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        queue: Option<Queue>,
        delay_level: DelayLevel,
        timestamp: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        deliver_at: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Ticket> {
        let given = Given {
            key,
            keys,
            tags,
            properties,
            headers,
            queue,
            timestamp,
        };
        let delay = self.when(&delay_level, delay, deliver_at)?;
        given.with_draft(self.takes_null, body, |draft| {
            let ticket = self.ticket(py, draft, delay)?;
            log::warnings(py, self.store());
            Ok(Ticket::new(&self.origin, ticket, delay))
        })
    }

    /// A producer whose `send_nowait` returns when the message is in the log, whatever ``linger``
    /// is.
    #[pyo3(name = "_at_once")]
    fn at_once(&self, py: Python<'_>) -> Producer {
        Producer {
            core: self.core.clone(),
            store: Handle::new(self.store().clone(), self.store.object(py)),
            origin: Arc::clone(&self.origin),
            lingers: false,
            ..*self
        }
    }

    /// Whether a send with this `flush` waits for the disk, and how long at most.
    #[pyo3(name = "_waits", signature = (flush))]
    fn waits_for(&self, flush: Option<bool>) -> Option<Duration> {
        self.waits(durability(flush)).then_some(self.flush_timeout)
    }

    /// Whether an append of a body of this length is short enough for an event loop: it may at most
    /// write to the page cache, as it does in a synchronous store.
    #[pyo3(name = "_is_ready")]
    fn is_ready(&self, len: usize) -> bool {
        len <= ATTACHED_LEN_MAX && (self.waits_by_default || self.core.is_ready_for(None, len))
    }

    fn __repr__(&self) -> String {
        format!("Producer(topic={:?})", self.core.topic())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "cannot pickle a producer: open the store in the other process instead",
        ))
    }
}
