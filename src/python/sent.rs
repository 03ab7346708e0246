//! The results of sends.

use super::pickle::{Reduced, Values, reduce, value};
use crate::{Appended, Delay, HostBytes, Imported, Place, Sent, message_id};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyRange};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The part that all results of a producer share.
pub(super) struct Origin {
    pub(super) topic: Box<str>,
    /// `None` if the store's message ids contain no host.
    pub(super) host: Option<HostBytes>,
}

/// Where a message was stored.
///
/// Attributes
/// ----------
/// topic, queue, offset
///     The place in the queue. A delayed message is in the topic SCHEDULE_TOPIC_XXXX if it has a
///     delay level and the store is no partition log, else in rmq_sys_forebay_delay.
/// position
///     The position in the log; in a partition log, that of the message's batch in its segment.
/// message_id
///     RocketMQ's id of the message; in a partition log ``topic-queue@offset``.
/// timestamp
///     Store time, in milliseconds since the epoch; in a partition log the message's time.
/// durable
///     Whether the message was durable when the call returned.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     result = store.send("orders", b"body")
/// >>> result.topic, result.offset
/// ('orders', 0)
#[pyclass(frozen, module = "forebay")]
pub(crate) struct SendResult {
    origin: Arc<Origin>,
    sent: Sent,
}

impl SendResult {
    #[inline]
    pub(super) fn new(origin: &Arc<Origin>, sent: Sent, delay: Delay) -> SendResult {
        let origin = match delay.topic() {
            None => Arc::clone(origin),
            Some(topic) => Arc::new(Origin {
                topic: topic.into(),
                host: origin.host,
            }),
        };
        SendResult { origin, sent }
    }
}

impl Values for SendResult {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let place = &self.sent.place;
        let values = PyDict::new(py);
        values.set_item("topic", &*self.origin.topic)?;
        let host = self.origin.host.as_ref().map(HostBytes::as_bytes);
        values.set_item("host", PyBytes::new(py, host.unwrap_or_default()))?;
        values.set_item("queue", place.queue)?;
        values.set_item("offset", place.offset)?;
        values.set_item("position", place.position)?;
        values.set_item("end", self.sent.end)?;
        values.set_item("timestamp", self.sent.store_timestamp)?;
        values.set_item("durable", self.sent.durable)?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<SendResult> {
        let host: Vec<u8> = value(values, "host")?;
        let topic: String = value(values, "topic")?;
        let sent = Sent {
            place: Place {
                position: value(values, "position")?,
                queue: value(values, "queue")?,
                offset: value(values, "offset")?,
            },
            end: value(values, "end")?,
            store_timestamp: value(values, "timestamp")?,
            durable: value(values, "durable")?,
        };
        let host = match HostBytes::from_bytes(&host) {
            None if !host.is_empty() => {
                let reason = "the pickled host must have 0, 8 or 20 bytes";
                return Err(PyValueError::new_err(reason));
            }
            host => host,
        };
        let topic = topic.into();
        Ok(SendResult {
            origin: Arc::new(Origin { topic, host }),
            sent,
        })
    }
}

#[pymethods]
impl SendResult {
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }

    /// The topic. A delayed message is in SCHEDULE_TOPIC_XXXX if it has a delay level and the
    /// store is no partition log, else in rmq_sys_forebay_delay.
    #[getter]
    fn topic(&self) -> &str {
        &self.origin.topic
    }

    /// The queue.
    #[getter]
    fn queue(&self) -> u32 {
        self.sent.place.queue
    }

    /// The offset in the queue.
    #[getter]
    fn offset(&self) -> u64 {
        self.sent.place.offset
    }

    /// The position in the log; in a partition log, that of the message's batch in its segment.
    #[getter]
    fn position(&self) -> u64 {
        self.sent.place.position
    }

    /// RocketMQ's id of the message; in a partition log ``topic-queue@offset``.
    #[getter]
    fn message_id(&self) -> String {
        let place = &self.sent.place;
        match &self.origin.host {
            Some(host) => message_id(host.as_bytes(), place.position),
            None => format!("{}-{}@{}", self.origin.topic, place.queue, place.offset),
        }
    }

    /// Store time, in milliseconds since the epoch; in a partition log the message's time.
    #[getter]
    fn timestamp(&self) -> i64 {
        self.sent.store_timestamp
    }

    /// Whether the message was durable when the call returned.
    #[getter]
    fn durable(&self) -> bool {
        self.sent.durable
    }

    fn __repr__(&self) -> String {
        let place = &self.sent.place;
        format!(
            "SendResult(topic={:?}, queue={}, offset={}, position={}, timestamp={}, durable={})",
            self.origin.topic,
            place.queue,
            place.offset,
            place.position,
            self.sent.store_timestamp,
            if self.sent.durable { "True" } else { "False" },
        )
    }
}

/// Where the messages of a batch were stored.
///
/// Attributes
/// ----------
/// count
///     Number of messages.
/// ranges
///     A dict from queue to the range of offsets from the batch's first message to its last. A
///     batch above 4 MiB is appended in chunks; the range then includes messages that other senders
///     appended to the queue in between.
/// timestamp
///     Store time, in milliseconds since the epoch.
/// durable
///     Whether all messages were durable when the call returned.
#[pyclass(frozen, get_all, module = "forebay")]
pub(crate) struct BatchResult {
    /// Number of messages.
    count: usize,
    /// A dict from queue to the range of offsets from the batch's first message to its last. A
    /// batch above 4 MiB is appended in chunks; the range then includes messages that other
    /// senders appended to the queue in between.
    ranges: Py<PyDict>,
    /// Store time, in milliseconds since the epoch.
    timestamp: i64,
    /// Whether all messages were durable when the call returned.
    durable: bool,
}

impl BatchResult {
    pub(super) fn of_imported(py: Python<'_>, sent: &Imported) -> PyResult<BatchResult> {
        let by_queue = PyDict::new(py);
        for (queue, parts) in &sent.ranges {
            if let [first, ..] = parts.as_slice() {
                let end = parts.last().map_or(first.end, |last| last.end);
                let [start, end] = [first.start, end].map(isize::try_from);
                by_queue.set_item(queue, PyRange::new(py, start?, end?)?)?;
            }
        }
        Ok(BatchResult {
            count: usize::try_from(sent.count)?,
            ranges: by_queue.unbind(),
            timestamp: sent.store_timestamp,
            durable: sent.durable,
        })
    }

    pub(super) fn new(py: Python<'_>, appended: &Appended, durable: bool) -> PyResult<BatchResult> {
        let by_queue = PyDict::new(py);
        for (queue, range) in ranges(&appended.rows) {
            by_queue.set_item(queue, PyRange::new(py, range.start, range.end)?)?;
        }
        Ok(BatchResult {
            count: appended.rows.len(),
            ranges: by_queue.unbind(),
            timestamp: appended.store_timestamp,
            durable,
        })
    }
}

/// The range from the first to the last offset of each queue.
fn ranges(places: &[Place]) -> BTreeMap<u32, Range<isize>> {
    let mut found: BTreeMap<u32, Range<isize>> = BTreeMap::new();
    for run in places.chunk_by(|one, next| one.queue == next.queue) {
        let [Some(first), Some(last)] = [run.first(), run.last()].map(|place| {
            place.map(|place| {
                (
                    place.queue,
                    isize::try_from(place.offset).unwrap_or(isize::MAX),
                )
            })
        }) else {
            continue;
        };
        let range = found.entry(first.0).or_insert(first.1..first.1);
        range.end = last.1.saturating_add(1);
    }
    found
}

impl Values for BatchResult {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("count", self.count)?;
        values.set_item("ranges", self.ranges.bind(py).copy()?)?;
        values.set_item("timestamp", self.timestamp)?;
        values.set_item("durable", self.durable)?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<BatchResult> {
        Ok(BatchResult {
            count: value(values, "count")?,
            ranges: value(values, "ranges")?,
            timestamp: value(values, "timestamp")?,
            durable: value(values, "durable")?,
        })
    }
}

#[pymethods]
impl BatchResult {
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let ranges = self.ranges.bind(py).repr()?;
        let durable = if self.durable { "True" } else { "False" };
        Ok(format!(
            "BatchResult(count={}, ranges={ranges}, timestamp={}, durable={durable})",
            self.count, self.timestamp
        ))
    }
}
