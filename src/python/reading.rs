//! Reading the messages of a store in Python.

use super::arrow::Scan;
use super::convert::{
    Offset, Queue, Time, integer, key_bytes, limit, max_bytes, max_messages, tags, text, wrong_type,
};
use super::errors::must;
use super::log;
use super::message::Message;
use super::named;
use super::progress::interruptible;
use super::read_batch::{ReadBatch, messages};
use super::store::Store;
use super::tail::Tail;
use crate::{AtEnd, Filter};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};

#[pymethods]
impl Store {
    /// Return the message at an offset of a queue.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic.
    /// queue
    ///     Number of the queue.
    /// offset
    ///     Offset of the message in the queue.
    ///
    /// Raises
    /// ------
    /// OffsetOutOfRangeError
    ///     If the queue does not have the offset; ``min_offset`` and ``max_offset`` are its bounds.
    /// UnknownTopicError
    ///     If the topic does not exist, or has no such queue.
    /// CorruptError
    ///     If the message is lost to damage.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.send("orders", b"body", queue=0)
    /// ...     store.get("orders", queue=0, offset=0).body
    /// b'body'
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        queue: Queue,
        offset: Offset,
    ) -> PyResult<Message> {
        let get = |store: &crate::Store| store.get(topic, queue.0, offset.0);
        Ok(self.call(py, get)?.into())
    }

    /// Read messages of a queue.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic.
    /// queue
    ///     Number of the queue.
    /// offset
    ///     Offset to begin at.
    /// max_messages
    ///     Maximum number of messages to return.
    /// max_bytes
    ///     Maximum total size of the records; the first message is returned whatever its size.
    ///     Of a partition log, whose records are copied, at most about 64 MiB are returned.
    /// tags
    ///     Return only messages with this tag, or with one of several: ``"a"``, ``"a || b"`` or
    ///     ``["a", "b"]``.
    ///
    /// Returns
    /// -------
    /// ReadBatch
    ///     ``status`` says what was found, ``next_offset`` where to continue.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b", b"c"])
    /// ...     batch = store.read("orders", queue=0, offset=1)
    /// >>> [message.body for message in batch]
    /// [b'b', b'c']
    #[pyo3(
        signature = (topic, queue, offset, max_messages=32, max_bytes=None, tags=None),
        text_signature = "($self, topic, queue, offset, max_messages=32, max_bytes=None, tags=None)"
    )]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the arguments of the Python method"
    )]
    fn read(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        queue: Queue,
        offset: Offset,
        #[pyo3(from_py_with = max_messages)] max_messages: usize,
        #[pyo3(from_py_with = max_bytes)] max_bytes: Option<usize>,
        tags: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ReadBatch> {
        let filter = Filter {
            tags: self::tags(tags)?,
            key: None,
        };
        let max_bytes = max_bytes.map(|bytes| bytes as u64);
        let (place, most) = ((topic, queue.0, offset.0), (max_messages, max_bytes));
        let batch = interruptible(py, |go_on| {
            self.core().read_while(place, most, &filter, go_on)
        });
        log::warnings(py, self.core());
        ReadBatch::new(py, batch?)
    }

    /// Return the message at a position in the log, or the one with a message id.
    ///
    /// Parameters
    /// ----------
    /// position
    ///     A position, or an id from `Message.message_id`.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     result = store.send("orders", b"body")
    /// ...     store.message(result.message_id) == store.message(result.position)
    /// True
    #[pyo3(signature = (position, /))]
    fn message(&self, py: Python<'_>, position: &Bound<'_, PyAny>) -> PyResult<Message> {
        if position.is_instance_of::<PyString>() {
            let id = text("message id", position)?;
            return Ok(self.call(py, |store| store.message_by_id(id))?.into());
        }
        if !position.is_instance_of::<PyInt>() && !position.hasattr("__index__")? {
            let wanted = "an int, or a message id (str)";
            return Err(wrong_type("position", position, wanted));
        }
        let position = integer("position", position)?
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| must("position", position, "be from 0 to 2^63 - 1"))?;
        Ok(self.call(py, |store| store.message_at(position))?.into())
    }

    /// Return the messages of a topic that have exactly this key, newest first.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Topic to search.
    /// key
    ///     Key to find.
    /// begin, end
    ///     Return only messages stored from ``begin`` to ``end``, both inclusive: aware datetimes
    ///     or integer milliseconds since the epoch.
    /// max_messages
    ///     Maximum number of messages to return.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.send("orders", b"a", key="42"), store.send("orders", b"b", key="42")
    /// ...     [message.body for message in store.query("orders", key="42")]
    /// [b'b', b'a']
    #[pyo3(
        signature = (topic, key, begin=None, end=None, max_messages=32),
        text_signature = "($self, topic, key, begin=None, end=None, max_messages=32)"
    )]
    fn query(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        key: &Bound<'_, PyAny>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = max_messages)] max_messages: usize,
    ) -> PyResult<Py<PyList>> {
        let key = key_bytes("key", key)?;
        let begin = begin
            .map(|begin| Time::or_millis("begin", begin))
            .transpose()?;
        let end = end.map(|end| Time::or_millis("end", end)).transpose()?;
        let begin = begin.map_or(i64::MIN, Time::at_or_after);
        let end = end.map_or(i64::MAX, Time::at_or_before);
        let found = interruptible(py, |go_on| {
            self.core()
                .query_while((topic, key), begin..=end, max_messages, go_on)
        });
        log::warnings(py, self.core());
        messages(py, found?)
    }

    /// Return the offset of a queue's first message stored at or after a time.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic.
    /// queue
    ///     Number of the queue.
    /// time
    ///     An aware datetime, or integer milliseconds since the epoch. A time before the first
    ///     message gives the first offset. A time after the last gives the next offset to be
    ///     written.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     result = store.send("orders", b"body", queue=0)
    /// ...     store.offset_at("orders", queue=0, time=result.timestamp + 1)
    /// 1
    fn offset_at(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        queue: Queue,
        time: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let time = Time::or_millis("time", time)?.at_or_after();
        Ok(self.call(py, |store| store.offset_at(topic, queue.0, time))?)
    }

    /// Iterate over the messages of all queues of a topic, in the order they were stored.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic.
    /// start
    ///     Where to begin: ``"earliest"``, ``"latest"``, an aware datetime, or ``{queue: offset}``;
    ///     queues that are not named begin at their first message.
    /// follow
    ///     Whether to wait for new messages. Otherwise the iterator ends at the end that the log
    ///     has when the iterator is created.
    /// timeout
    ///     Seconds or a timedelta: the iteration ends if no message comes for this long. None waits
    ///     for ever.
    ///
    /// Returns
    /// -------
    /// Tail
    ///     An iterator. While it blocks, Ctrl-C interrupts it. It ends when it is closed, which the
    ///     end of its ``with`` statement does, and when the store is closed.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.producer("orders").send_batch([b"a", b"b"])
    /// ...     for message in store.tail("orders", start="earliest", follow=False):
    /// ...         print(message.body)
    /// b'a'
    /// b'b'
    #[pyo3(
        signature = (topic, start=None, follow=true, *, timeout=None),
        text_signature = "($self, topic, start='latest', follow=True, *, timeout=None)"
    )]
    fn tail(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        start: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = named::follow)] follow: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tail> {
        let start = match start {
            None => crate::Bound::Latest,
            Some(given) => limit("start", given)?,
        };
        let at_end = if follow { AtEnd::Follow } else { AtEnd::Stop };
        let tail = |store: &crate::Store| crate::Tail::new(store, topic, &start, at_end);
        let core = slf.get().call(slf.py(), tail)?;
        Tail::new(Store::handle(slf), topic, core, timeout)
    }

    /// Describe a scan of messages as Arrow record batches.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     A topic, a sequence of topics, or None for all. Rows are ordered by topic, queue and
    ///     offset; with None they come in log order.
    /// columns
    ///     Names of the columns, in order. A column that is not named costs nothing.
    /// queues
    ///     Numbers of the queues; by default all.
    /// start
    ///     Where to begin: ``"earliest"``, ``"latest"``, an aware datetime, or
    ///     ``{queue: offset}``. ``"latest"`` is the end of each queue when a stream begins.
    /// end
    ///     Where to stop, exclusive, in the forms of ``start``.
    /// tags
    ///     Return only messages with one of these tags.
    /// key
    ///     Return only messages with this key.
    /// batch_rows
    ///     Maximum number of rows of a batch.
    /// batch_bytes
    ///     Maximum total size of the bodies of a batch.
    /// body_type
    ///     ``"binary"`` gathers the bodies of a batch into one buffer. ``"binary_view"`` points
    ///     into the mapped log files, which stay mapped while a batch is alive.
    /// verify
    ///     Whether to check the checksums of each record.
    ///
    /// Returns
    /// -------
    /// Scan
    ///     Exports ``__arrow_c_stream__``: pyarrow, Polars, DuckDB and others read it.
    ///
    /// Examples
    /// --------
    /// >>> import pyarrow
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.producer("trades").send_batch([b"AAPL 187.2", b"MSFT 402.1"])
    /// ...     pyarrow.table(store.scan("trades", columns=["offset", "body"])).num_rows
    /// 2
    #[pyo3(
        signature = (topic=None, *, columns=None, queues=None, start=None, end=None, tags=None,
                     key=None, batch_rows=None, batch_bytes=None, body_type=None, verify=None),
        text_signature = "($self, topic=None, *, columns=None, queues=None, start='earliest', \
                          end='latest', tags=None, key=None, batch_rows=65536, \
                          batch_bytes=16777216, body_type='binary', verify=True)"
    )]
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the keywords of the Python method"
    )]
    fn scan<'py>(
        slf: &Bound<'py, Self>,
        topic: Option<&Bound<'py, PyAny>>,
        columns: Option<&Bound<'py, PyAny>>,
        queues: Option<&Bound<'py, PyAny>>,
        start: Option<&Bound<'py, PyAny>>,
        end: Option<&Bound<'py, PyAny>>,
        tags: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        batch_rows: Option<&Bound<'py, PyAny>>,
        batch_bytes: Option<&Bound<'py, PyAny>>,
        body_type: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = named::verify)] verify: Option<bool>,
    ) -> PyResult<Scan> {
        let given = [
            ("topic", topic),
            ("columns", columns),
            ("queues", queues),
            ("start", start),
            ("end", end),
            ("tags", tags),
            ("key", key),
            ("batch_rows", batch_rows),
            ("batch_bytes", batch_bytes),
            ("body_type", body_type),
        ];
        let arguments = PyDict::new(slf.py());
        for (name, value) in given {
            value
                .map(|value| arguments.set_item(name, value))
                .transpose()?;
        }
        verify
            .map(|verify| arguments.set_item("verify", verify))
            .transpose()?;
        Scan::new(Store::handle(slf), arguments)
    }
}
