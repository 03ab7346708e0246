//! The class `Store`.

use super::convert::{queue_count, unknown_keyword};
use super::damage::damages;
use super::handle::{Handle, call, call_answering};
use super::log;
use super::meanings::Meanings;
use super::named;
use super::notebook::notebook;
use super::once;
use super::pickle::Reduced;
use super::progress::interruptible;
use super::report::Recovery;
use super::topic::Topic;
use crate::Mode;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
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
///     and the mode as passed to `open`.
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

    /// The mode as passed to `open`.
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
    ///     `durable_position`. None if nothing was sent since the last file was sealed, or if
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

    /// Make everything durable, report errors, and release the files. Closing again does nothing.
    ///
    /// Raises
    /// ------
    /// BusyError
    ///     If another process had the table of consumers' progress locked for 5 s. The store is
    ///     closed; messages that were settled since the progress was last stored are delivered
    ///     again, unless other processes share the store.
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
