//! Messages. A message holds its record in the mapped file, and decodes fields on access.

use super::convert::datetime;
use super::edge;
use super::notebook::notebook;
use crate::{PropertyKind, Row};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};

/// An immutable message of the log.
///
/// It keeps its log file mapped, and decodes its fields on access. ``memoryview(message)`` is the
/// body; if the body is not compressed, this copies nothing.
///
/// Two messages are equal if their records are equal byte for byte: the same place, times and
/// content. The hash is computed from topic, queue, offset and position. A message can be pickled;
/// the pickle contains its record.
///
/// Attributes
/// ----------
/// topic, queue, offset, position
///     Where the message is: the offset counts in its queue, the position in the log.
/// size
///     Length of the whole record in bytes.
/// body, stored_body
///     The body, decompressed, and as it is stored in the log. Each access makes a new copy.
/// is_null
///     Whether the body is null, as opposed to empty: a tombstone of Kafka's.
/// keys, key, key_bytes
///     All keys as a tuple; the first key, or None; and the bytes of the first key, which need not
///     be text in a message of Kafka's.
/// tags
///     The tag, or None.
/// properties, system_properties
///     Dicts of the sender's properties, and of properties with reserved names. Neither contains
///     keys, tags or the checksum.
/// raw_properties
///     The properties as stored.
/// headers
///     The sender's properties as a tuple of (name, bytes), in stored order. In a message of
///     Kafka's the bytes may be None.
/// flag, sys_flag, reconsume_times
///     A number that the sender chose, RocketMQ's flag bits, and how often the message was
///     redelivered.
/// born_timestamp, store_timestamp
///     When the message was made, and when it was stored, in milliseconds since the epoch.
/// born_time, store_time
///     The same as datetimes in UTC.
/// born_host, store_host
///     Addresses, such as ``"10.0.0.1:10911"``.
/// message_id
///     RocketMQ's id of the message, or ``topic-queue@offset`` in a partition log.
///     `Store.message` accepts it.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     _ = store.send("orders", b"body", key="42", properties={"region": "eu"})
/// ...     message, = store.query("orders", key="42")
/// >>> message.body, message.key, message.properties
/// (b'body', '42', {'region': 'eu'})
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Message {
    core: crate::Message,
    /// Of a message that a consumer delivered.
    receipt: Option<crate::Receipt>,
}

impl From<crate::Message> for Message {
    fn from(core: crate::Message) -> Message {
        let receipt = None;
        Message { core, receipt }
    }
}

impl From<crate::Delivery> for Message {
    fn from(delivery: crate::Delivery) -> Message {
        let crate::Delivery { message, receipt } = delivery;
        Message {
            core: message,
            receipt: Some(receipt),
        }
    }
}

impl Message {
    /// Checks that the pages of the message can be loaded, and returns it. They may have left
    /// memory since it was read; if they cannot be loaded again, this is an error and not a SIGBUS.
    fn core(&self) -> PyResult<&crate::Message> {
        self.core.touch()?;
        Ok(&self.core)
    }

    /// The receipt by which a consumer settles the message; `None` if no consumer delivered it.
    pub(super) fn receipt(&self) -> Option<&crate::Receipt> {
        self.receipt.as_ref()
    }

    /// The delivery of the message; `None` if no consumer delivered it.
    pub(super) fn delivery(&self) -> Option<crate::Delivery> {
        Some(crate::Delivery {
            message: self.core.clone(),
            receipt: self.receipt.clone()?,
        })
    }

    /// The topic that a message was sent to, if it was delivered from a retry topic.
    fn original_topic(&self) -> Option<String> {
        self.receipt.as_ref()?;
        self.core.retry_topic()
    }

    /// The topic that a message was sent to.
    fn topic_sent_to(&self) -> PyResult<Cow<'_, str>> {
        let core = self.core()?;
        Ok(self
            .original_topic()
            .map_or_else(|| core.topic(), Cow::Owned))
    }

    fn record(&self) -> PyResult<Row<'_>> {
        Ok(self.core()?.record())
    }

    fn place(&self) -> PyResult<(&[u8], i32, i64, i64)> {
        let record = self.record()?;
        Ok((
            record.topic(),
            record.queue_id(),
            record.queue_offset(),
            record.position(),
        ))
    }
}

#[pymethods]
impl Message {
    /// The topic.
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        Ok(PyString::new(py, &self.topic_sent_to()?))
    }

    /// The queue that the message is in.
    #[getter]
    fn queue(&self) -> PyResult<i32> {
        Ok(self.record()?.queue_id())
    }

    /// Where the message is in its queue.
    #[getter]
    fn offset(&self) -> PyResult<i64> {
        Ok(self.record()?.queue_offset())
    }

    /// Where the record is in the log, in bytes.
    #[getter]
    fn position(&self) -> PyResult<i64> {
        Ok(self.record()?.position())
    }

    /// Length of the whole record in bytes.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.record()?.layout().total_len() as usize)
    }

    /// The body, decompressed. Each access makes a new copy.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.core()?.body()?))
    }

    /// The body as it is stored in the log. Each access makes a new copy.
    #[getter]
    fn stored_body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.record()?.stored_body()))
    }

    /// All keys as a tuple.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core()?.keys())
    }

    /// The first key, or None.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let keys = self.core()?.keys();
        Ok(keys.first().map(|key| PyString::new(py, key)))
    }

    /// The bytes of the first key, which need not be text in a message of Kafka's.
    #[getter]
    fn key_bytes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = self.core()?.key_bytes();
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }

    /// Whether the body is null, as opposed to empty: a tombstone of Kafka's.
    #[getter]
    fn is_null(&self) -> PyResult<bool> {
        Ok(self.core()?.is_null())
    }

    /// The tag, or None.
    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let tags = self.core()?.tags();
        Ok(tags.map(|tags| PyString::new(py, &tags)))
    }

    /// A dict of the sender's properties, without keys, tags and the checksum.
    #[getter]
    fn properties(&self) -> PyResult<BTreeMap<String, String>> {
        Ok(self.core()?.properties(PropertyKind::User))
    }

    /// A dict of the properties with reserved names, without keys, tags and the checksum.
    #[getter]
    fn system_properties(&self) -> PyResult<BTreeMap<String, String>> {
        Ok(self.core()?.properties(PropertyKind::System))
    }

    /// The properties as stored.
    #[getter]
    fn raw_properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.record()?.raw_properties()))
    }

    /// The sender's properties as a tuple of (name, bytes), in stored order. In a message of
    /// Kafka's the bytes may be None.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let headers = self.core()?.headers();
        let headers = headers.into_iter();
        let headers = headers.map(|(name, value)| (name, value.map(|it| PyBytes::new(py, it))));
        PyTuple::new(py, headers.collect::<Vec<_>>())
    }

    /// A number that the sender chose.
    #[getter]
    fn flag(&self) -> PyResult<i32> {
        Ok(self.record()?.flag())
    }

    /// RocketMQ's flag bits.
    #[getter]
    fn sys_flag(&self) -> PyResult<u32> {
        Ok(self.record()?.sys_flag())
    }

    /// When the message was made, in milliseconds since the epoch.
    #[getter]
    fn born_timestamp(&self) -> PyResult<i64> {
        Ok(self.record()?.born_timestamp())
    }

    /// When the message was stored, in milliseconds since the epoch.
    #[getter]
    fn store_timestamp(&self) -> PyResult<i64> {
        Ok(self.record()?.store_timestamp())
    }

    /// When the message was made, as a datetime in UTC.
    #[getter]
    fn born_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.record()?.born_timestamp())
    }

    /// When the message was stored, as a datetime in UTC.
    #[getter]
    fn store_time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.record()?.store_timestamp())
    }

    /// Address of the sender, such as ``"10.0.0.1:10911"``.
    #[getter]
    fn born_host(&self) -> PyResult<String> {
        Ok(self.record()?.born_host().to_string())
    }

    /// Address of the store, such as ``"10.0.0.1:10911"``.
    #[getter]
    fn store_host(&self) -> PyResult<String> {
        Ok(self.record()?.store_host().to_string())
    }

    /// How often the message was redelivered.
    #[getter]
    fn reconsume_times(&self) -> PyResult<i32> {
        Ok(self.record()?.reconsume_times())
    }

    /// RocketMQ's id of the message, or ``topic-queue@offset`` in a partition log.
    /// `Store.message` accepts it.
    #[getter]
    fn message_id(&self) -> PyResult<String> {
        Ok(self.core()?.id())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        /// How many bytes of a body are shown.
        const SHOWN: usize = 40;
        let record = self.record()?;
        let stored = record.stored_body();
        let shown = PyBytes::new(py, stored.get(..SHOWN).unwrap_or(stored)).repr()?;
        let more = if stored.len() > SHOWN { "..." } else { "" };
        let keys = PyTuple::new(py, self.core.keys())?.repr()?;
        Ok(format!(
            "<Message {:?} queue {} offset {} position {}: keys={keys}, {} bytes {shown}{more}>",
            self.topic_sent_to()?,
            record.queue_id(),
            record.queue_offset(),
            record.position(),
            stored.len(),
        ))
    }

    /// Return what a notebook shows.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook(slf, "message")
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let Ok(other) = other.cast::<Message>() else {
            return Ok(None);
        };
        let (own, other) = (self.record()?, other.get().record()?);
        Ok(Some(own.bytes() == other.bytes()))
    }

    fn __hash__(&self) -> PyResult<u64> {
        let mut hasher = DefaultHasher::new();
        self.place()?.hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let again = py
            .import("forebay._forebay")?
            .getattr("message_from_record")?;
        Ok((again, (PyBytes::new(py, &self.record()?.bytes()),)))
    }

    #[allow(
        unsafe_code,
        reason = "the slot is unsafe by its signature; `edge` states the invariants"
    )]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let message = slf.get();
        match message.core()?.body()? {
            std::borrow::Cow::Borrowed(bytes) => {
                let owner = slf.clone().into_any();
                // SAFETY: Python passes a view to fill. The view holds the message, and the message
                // keeps the region of the bytes mapped.
                unsafe { edge::fill(owner, bytes, view, flags) }
            }
            std::borrow::Cow::Owned(bytes) => {
                let bytes = PyBytes::new(slf.py(), &bytes);
                // SAFETY: Python passes a view to fill.
                unsafe { edge::delegate(&bytes, view, flags) }
            }
        }
    }
}

/// Return the message that a record encodes; used for unpickling.
///
/// Raises
/// ------
/// ValueError
///     If the bytes are not a record.
#[pyfunction]
pub(crate) fn message_from_record(record: &[u8]) -> PyResult<Message> {
    let wrong = |reason: String| PyValueError::new_err(format!("not a record: {reason}"));
    let message = crate::Message::from_record(record).map_err(|error| wrong(error.to_string()))?;
    message
        .map(Message::from)
        .map_err(|flaw| wrong(flaw.to_string()))
}
