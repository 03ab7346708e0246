//! The result of a read.

use super::message::Message;
use super::pickle::{Reduced, Values, reduce, value};
use crate::ReadStatus;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The messages of one read, and where to continue.
///
/// Attributes
/// ----------
/// status
///     A `ReadStatus`.
/// messages
///     The messages in offset order. The batch itself also has a length and can be iterated.
/// next_offset
///     The offset at which the next read begins.
/// min_offset, max_offset
///     First offset of the queue, and the next offset to be written.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     _ = store.send("orders", b"a", queue=0), store.send("orders", b"b", queue=0)
/// ...     batch = store.read("orders", queue=0, offset=0)
/// >>> batch.status, [message.body for message in batch], batch.next_offset
/// (<ReadStatus.FOUND: 'found'>, [b'a', b'b'], 2)
#[pyclass(frozen, module = "forebay")]
pub(crate) struct ReadBatch {
    /// A `ReadStatus`.
    status: ReadStatus,
    /// The messages in offset order. The batch itself also has a length and can be iterated.
    messages: Py<PyList>,
    /// The offset at which the next read begins.
    #[pyo3(get)]
    next_offset: u64,
    /// First offset of the queue.
    #[pyo3(get)]
    min_offset: u64,
    /// The next offset to be written to the queue.
    #[pyo3(get)]
    max_offset: u64,
}

impl ReadBatch {
    pub(super) fn new(py: Python<'_>, batch: crate::ReadBatch) -> PyResult<ReadBatch> {
        Ok(ReadBatch {
            status: batch.status,
            messages: messages(py, batch.messages)?,
            next_offset: batch.next_offset,
            min_offset: batch.min_offset,
            max_offset: batch.max_offset,
        })
    }
}

/// Makes a Python list of messages.
pub(super) fn messages(py: Python<'_>, messages: Vec<crate::Message>) -> PyResult<Py<PyList>> {
    let list = PyList::new(py, messages.into_iter().map(Message::from))?;
    Ok(list.unbind())
}

/// The statuses and their names in Python.
const STATUSES: [(ReadStatus, &str); 9] = [
    (ReadStatus::Found, "FOUND"),
    (ReadStatus::NoMatchedMessage, "NO_MATCHED_MESSAGE"),
    (ReadStatus::NoMatchedLogicQueue, "NO_MATCHED_LOGIC_QUEUE"),
    (ReadStatus::NoMessageInQueue, "NO_MESSAGE_IN_QUEUE"),
    (ReadStatus::OffsetTooSmall, "OFFSET_TOO_SMALL"),
    (ReadStatus::OffsetOverflowOne, "OFFSET_OVERFLOW_ONE"),
    (ReadStatus::OffsetOverflowBadly, "OFFSET_OVERFLOW_BADLY"),
    (ReadStatus::OffsetFoundNull, "OFFSET_FOUND_NULL"),
    (ReadStatus::MessageWasRemoving, "MESSAGE_WAS_REMOVING"),
];

fn name_of(status: ReadStatus) -> &'static str {
    let found = STATUSES.iter().find(|(one, _)| *one == status);
    found.map_or("FOUND", |(_, name)| name)
}

impl Values for ReadBatch {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("status", name_of(self.status))?;
        values.set_item("messages", &self.messages)?;
        values.set_item("next_offset", self.next_offset)?;
        values.set_item("min_offset", self.min_offset)?;
        values.set_item("max_offset", self.max_offset)?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<ReadBatch> {
        let name: String = value(values, "status")?;
        let status = STATUSES.iter().find(|(_, one)| *one == name);
        let unknown = || PyValueError::new_err(format!("unknown read status {name:?}"));
        Ok(ReadBatch {
            status: status.ok_or_else(unknown)?.0,
            messages: value(values, "messages")?,
            next_offset: value(values, "next_offset")?,
            min_offset: value(values, "min_offset")?,
            max_offset: value(values, "max_offset")?,
        })
    }
}

#[pymethods]
impl ReadBatch {
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }

    /// A `ReadStatus`.
    #[getter]
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let name = name_of(self.status);
        py.import("forebay.store")?
            .getattr("ReadStatus")?
            .getattr(name)
    }

    /// The messages in offset order. The batch itself also has a length and can be iterated.
    #[getter]
    fn messages(&self, py: Python<'_>) -> Py<PyList> {
        self.messages.clone_ref(py)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.messages.bind(py).len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.messages.bind(py).try_iter().map(Bound::into_any)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let status = self.status(py)?.getattr("name")?;
        Ok(format!(
            "<ReadBatch {status}: {} messages, next_offset={}, min_offset={}, max_offset={}>",
            self.__len__(py),
            self.next_offset,
            self.min_offset,
            self.max_offset
        ))
    }
}
