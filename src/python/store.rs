//! The class `Store`.

use super::arrow::Scan;
use super::convert::{
    Offset, Queue, Time, integer, limit, max_bytes, max_messages, queue_count, tags, text,
    unknown_keyword, wrong_type,
};
use super::errors::must;
use super::handle::{Handle, call, call_answering};
use super::log;
use super::meanings::Meanings;
use super::message::{Message, ReadBatch, messages};
use super::named;
use super::notebook::notebook;
use super::once;
use super::pickle::Reduced;
use super::progress::{interruptible, with_progress};
use super::report::{Recovery, Repair, Stats, Verification, damages};
use super::tail::Tail;
use super::topic::Topic;
use crate::{AtEnd, Filter, Mode};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};
use std::path::PathBuf;

/// An open store; made by `forebay.open`. Any thread may use it.
///
/// Close it, or use it in a ``with`` statement: closing makes everything durable and reports
/// errors. When the interpreter exits, it closes all stores that are still open. A store that was
/// opened for reading can be pickled, as its path and options; others cannot.
///
/// Attributes
/// ----------
/// path, engine, mode
///     The path as passed to `forebay.open`; ``"commitlog"``, ``"partitionlog"`` or ``"memory"``;
///     and the mode.
/// recovery
///     What opening the store found and did, as a `Recovery`.
/// damage
///     A list of all `Damage` found so far. Each one is also logged once, as a warning to the
///     logger ``forebay``.
/// topics
///     A dict from name to `Topic`, including system topics.
/// durable_position
///     Position up to which the log is durable.
/// closed
///     Whether the store was closed.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     result = store.send("orders", b"body", key="42")
/// ...     store.get("orders", result.queue, result.offset).body
/// b'body'
#[pyclass(frozen, weakref, module = "forebay")]
pub(crate) struct Store {
    core: crate::Store,
    /// The arguments of `open`, which pickling needs.
    given: Py<PyDict>,
    absolute: PathBuf,
}

impl Store {
    /// Wraps `core`, which was opened at `path` with the arguments `given`.
    pub(super) fn new(core: crate::Store, path: PathBuf, given: Py<PyDict>) -> Store {
        Store {
            core,
            given,
            absolute: std::path::absolute(&path).unwrap_or(path),
        }
    }

    pub(super) fn core(&self) -> &crate::Store {
        &self.core
    }

    /// The reference that objects made from the store hold.
    pub(super) fn handle(slf: &Bound<'_, Self>) -> Handle {
        Handle::new(slf.get().core.clone(), slf.clone().into_any().unbind())
    }

    pub(super) fn call<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&crate::Store) -> crate::Result<T> + Send,
    ) -> crate::Result<T> {
        call(py, &self.core, run)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // This only tidies up; `close` reports errors. It runs detached, because it may flush a
        // file. In a forked child, and while the interpreter exits, the core's own drop does the
        // rest.
        if !self.core.is_forked() && !self.core.is_closed() {
            let _ = Python::try_attach(|py| self.call(py, crate::Store::close));
        }
    }
}

#[pymethods]
impl Store {
    /// The path as passed to `forebay.open`.
    #[getter]
    fn path(&self) -> &std::ffi::OsStr {
        self.core.path().as_os_str()
    }

    /// ``"commitlog"``, ``"partitionlog"`` or ``"memory"``.
    #[getter]
    fn engine(&self) -> PyResult<&'static str> {
        Ok(self.core.engine()?.meanings().kind.word())
    }

    #[getter]
    fn _meanings(&self) -> PyResult<Meanings> {
        Ok(self.core.engine()?.meanings().into())
    }

    /// The mode.
    #[getter]
    fn mode(&self) -> &'static str {
        match self.core.options().mode {
            Mode::Append => "a",
            Mode::Create => "x",
            Mode::Read => "r",
            Mode::Share => "share",
        }
    }

    /// What opening the store found and did, as a `Recovery`.
    #[getter]
    fn recovery(&self) -> Recovery {
        self.core.recovery().into()
    }

    /// A list of all `Damage` found so far. Each one is also logged once, as a warning to the
    /// logger ``forebay``.
    #[getter]
    fn damage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        damages(py, self.core.damage())
    }

    /// A dict from name to `Topic`, including system topics.
    #[getter]
    fn topics<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let all = slf.get().call(py, |store| {
            let engine = store.engine()?;
            engine.refresh(None)?;
            Ok(engine.topics().all())
        })?;
        let topics = PyDict::new(py);
        for topic in all {
            topics.set_item(&*topic.name, Topic::new(Store::handle(slf), topic.clone()))?;
        }
        Ok(topics)
    }

    /// Position up to which the log is durable.
    #[getter]
    fn durable_position(&self) -> PyResult<u64> {
        Ok(self.core.engine()?.durable_position())
    }

    /// Whether the store was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Send one message to a topic; the topic is created if it does not exist.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic.
    /// body
    ///     Any contiguous buffer, such as bytes.
    ///
    /// Returns
    /// -------
    /// SendResult
    ///     Topic, queue, offset and position of the message.
    ///
    /// Raises
    /// ------
    /// InvalidTopicError
    ///     If the name is empty, is too long, or has characters outside ``[%|a-zA-Z0-9_-]``.
    ///
    /// See Also
    /// --------
    /// Producer.send : Documents the other parameters; faster in a loop.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     store.send("orders", b"body", key="42", tags="paid").offset
    /// 0
    #[pyo3(
        signature = (topic, body, **keywords),
        text_signature = "($self, topic, body, *, key=None, keys=None, tags=None, \
                          properties=None, headers=None, queue=None, delay_level=0, \
                          timestamp=None, flush=None, delay=None, deliver_at=None)"
    )]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        body: &Bound<'py, PyAny>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let producer = Bound::new(py, Store::producer(slf, topic, None, None)?)?;
        let sent = producer.call_method(once::send(py)?, (body,), keywords);
        sent.map_err(|error| unknown_keyword(keywords).unwrap_or(error))
    }

    /// Create a topic, or return the existing one; durable on return.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     Name of the topic.
    /// queues
    ///     Number of queues, 1 to 65,536. An existing topic with fewer queues gets more. By default
    ///     an existing topic is not changed, and a new one gets the store's ``default_queues``.
    ///
    /// Returns
    /// -------
    /// Topic
    ///     The topic.
    ///
    /// Raises
    /// ------
    /// InvalidOptionError
    ///     If the topic has more queues than ``queues``: queues are never removed.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     len(store.create_topic("orders", queues=4).queues)
    /// 4
    #[pyo3(signature = (topic, queues=None))]
    fn create_topic(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        queues: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Topic> {
        let queues = queues.map(queue_count).transpose()?;
        let create = |store: &crate::Store| match queues {
            None => store.ensure_topic(topic),
            Some(queues) => store.create_topic(topic, queues),
        };
        let core = call_answering(slf.py(), &slf.get().core, create)?;
        Ok(Topic::new(Store::handle(slf), core))
    }

    /// Make everything that was sent durable.
    ///
    /// Returns
    /// -------
    /// int
    ///     The position up to which the log is durable.
    ///
    /// Raises
    /// ------
    /// StoreFailedError
    ///     If the sync failed. The messages are in the log, but their durability is unknown.
    fn flush(&self, py: Python<'_>) -> PyResult<u64> {
        let position = interruptible(py, |go_on| self.core.flush_while(go_on));
        log::warnings(py, &self.core);
        py.check_signals()?;
        position
    }

    /// Seal the current log file, so that it can be archived, and removed by retention.
    ///
    /// The log is durable on return. The rest of the file stays unused, and the file keeps its
    /// length. The next message goes to a new file. In a partition log, the last segment of each
    /// queue is cut to its contents, and compaction can take it too.
    ///
    /// Returns
    /// -------
    /// int or None
    ///     The position where the next file begins; in a partition log,
    ///     :attr:`durable_position`. None if nothing was sent since the last file was sealed, or if
    ///     the store is in memory and has no files.
    ///
    /// Examples
    /// --------
    /// >>> import tempfile
    /// >>> with tempfile.TemporaryDirectory() as path:
    /// ...     with forebay.open(path, commitlog_file_size=1 << 20) as store:
    /// ...         _ = store.send("orders", b"body")
    /// ...         store.roll(), store.roll()
    /// (1048576, None)
    fn roll(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let position = interruptible(py, |go_on| self.core.roll_while(go_on));
        log::warnings(py, &self.core);
        py.check_signals()?;
        position
    }

    /// Return the message at an offset of a queue.
    ///
    /// Parameters
    /// ----------
    /// topic, queue, offset
    ///     The place of the message.
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
    /// topic, queue, offset
    ///     Where to begin.
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
            self.core.read_while(place, most, &filter, go_on)
        });
        log::warnings(py, &self.core);
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
    /// topic, key
    ///     Topic to search, and key to find.
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
        let key = text("key", key)?;
        let begin = begin
            .map(|begin| Time::or_millis("begin", begin))
            .transpose()?;
        let end = end.map(|end| Time::or_millis("end", end)).transpose()?;
        let begin = begin.map_or(i64::MIN, Time::at_or_after);
        let end = end.map_or(i64::MAX, Time::at_or_before);
        let found = interruptible(py, |go_on| {
            self.core
                .query_while((topic, key), begin..=end, max_messages, go_on)
        });
        log::warnings(py, &self.core);
        messages(py, found?)
    }

    /// Return the offset of a queue's first message stored at or after a time.
    ///
    /// Parameters
    /// ----------
    /// topic, queue
    ///     The queue to search.
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
    /// start, end
    ///     Where to begin and stop, half-open: ``"earliest"``, ``"latest"``, an aware datetime, or
    ///     ``{queue: offset}``. ``"latest"`` is the end of each queue when a stream begins.
    /// tags, key
    ///     Return only messages with one of these tags, and with this key.
    /// batch_rows, batch_bytes
    ///     Maximum rows, and bytes of bodies, of a batch.
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

    /// Check the whole store: records, queue entries and index entries.
    ///
    /// Parameters
    /// ----------
    /// progress
    ///     Called with the bytes checked so far and in total; an exception from it stops the check.
    ///
    /// Returns
    /// -------
    /// Verification
    ///     Counts of what is intact, and the damage. Nothing is repaired.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.send("orders", b"body")
    /// ...     store.verify().ok
    /// True
    #[pyo3(signature = (progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Verification> {
        let verified = with_progress(py, progress, |told| self.core.verify(told));
        log::warnings(py, &self.core);
        Ok(verified?.into())
    }

    /// Copy sealed log files or complete segments, which are never written again, to an archive.
    ///
    /// Files that the archive already has are not copied again. See `forebay.archive`.
    ///
    /// Parameters
    /// ----------
    /// target
    ///     A directory, a URI such as ``"s3://bucket/prefix"``, or a path in `filesystem`.
    /// filesystem
    ///     A pyarrow or fsspec file system.
    /// progress
    ///     Called with the bytes copied so far and in total; an exception from it stops the copy.
    ///
    /// Returns
    /// -------
    /// forebay.archive.Archived
    ///     What was copied, and the position up to which the archive has the log.
    #[pyo3(signature = (target, *, filesystem=None, progress=None))]
    fn archive<'py>(
        slf: Bound<'py, Self>,
        target: Bound<'py, PyAny>,
        filesystem: Option<Bound<'py, PyAny>>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("forebay.archive")?;
        module.call_method1("_archive", (slf, target, filesystem, progress))
    }

    /// Save damaged bytes beside the log, and repair what can be repaired.
    ///
    /// Damaged bytes are saved in the store's directory `damaged`. Holes in the log are filled with
    /// records that belong to no queue, so that RocketMQ, too, can read past them. Queue entries,
    /// index files and the tables that Forebay writes are rebuilt from the log. Damaged tables of
    /// another system are saved and left as they are. Of a partition log only the options that it
    /// keeps are repaired; the old file becomes `forebay.options.damaged`. Other threads may send
    /// and read meanwhile; readers in other processes see the repaired files when they open the
    /// store again. The disk needs space for one more log file.
    ///
    /// Parameters
    /// ----------
    /// progress
    ///     Called with the bytes checked so far and in total. This happens before anything is
    ///     changed; an exception from it stops the repair.
    ///
    /// Returns
    /// -------
    /// Repair
    ///     What was repaired, durably, and what is still damaged.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.send("orders", b"body")
    /// ...     store.repair().steps
    /// []
    #[pyo3(signature = (progress=None))]
    fn repair(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Repair> {
        let repaired = with_progress(py, progress, |told| self.core.repair(told));
        log::warnings(py, &self.core);
        Ok(repaired?.into())
    }

    /// Return counters and times since the store was opened, without waiting for senders or
    /// flushes.
    ///
    /// Returns
    /// -------
    /// Stats
    ///     Rates, latencies, and how far flush and dispatch lag behind.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.producer("orders").send_batch([b"a", b"b"])
    /// ...     stats = store.stats()
    /// >>> stats.messages_sent, stats.put_latency.count, stats.flush_behind
    /// (2, 1, 0)
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        Ok(self.call(py, crate::Store::stats)?.into())
    }

    /// Make everything durable, report errors, and release the files. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call_answering(py, &self.core, crate::Store::close)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().core.engine()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        // A forked child has nothing to close; it may be leaving the statement while it exits.
        match self.core.is_forked() && !self.core.rejoins() {
            true => Ok(()),
            false => self.close(py),
        }
    }

    fn __repr__(&self) -> String {
        let state = if self.core.is_closed() {
            ", closed"
        } else {
            ""
        };
        format!(
            "<Store {:?} mode={:?}{state}>",
            self.core.path(),
            self.mode()
        )
    }

    /// Return what a notebook shows.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook(slf, "store")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py, &std::ffi::OsStr>> {
        if self.core.options().mode != Mode::Read {
            return Err(PyTypeError::new_err(
                "cannot pickle a store that is open for writing; open it with mode=\"r\" to pass \
                 it to another process",
            ));
        }
        let again = py.import("forebay.store")?.getattr("_reopen")?;
        Ok((
            again,
            (self.absolute.as_os_str(), self.given.bind(py).copy()?),
        ))
    }
}
