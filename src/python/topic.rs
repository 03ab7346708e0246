//! Topics of a store and their queues.

use super::handle::Handle;
use super::notebook::notebook;
use super::pickle::{Reduced, Values, reduce, value};
use crate::{PERMISSION_READ, PERMISSION_WRITE};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// A topic of an open store. Each access to an attribute reads the current state of the store.
///
/// A topic can be pickled and copied. The copy holds the values of that moment, and does not refer
/// to the store.
///
/// Attributes
/// ----------
/// name
///     Name of the topic.
/// queues
///     A list of `Queue`, sorted by number.
/// write_queues, read_queues
///     Number of queues for senders, and for consumers.
/// readable, writable
///     Whether the topic's permissions allow consumers to read it, and senders to write it.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     topic = store.create_topic("orders", queues=2)
/// ...     _ = store.send("orders", b"body", queue=1)
/// ...     [queue.max_offset for queue in topic.queues]
/// [0, 1]
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Topic(Kind);

enum Kind {
    /// A topic of an open store.
    Live(Handle, Arc<crate::Topic>),
    /// The values of a topic that was pickled.
    Kept(Kept),
}

struct Kept {
    name: String,
    queues: Vec<Queue>,
    write_queues: u32,
    read_queues: u32,
    permissions: u32,
}

impl Topic {
    pub(super) fn new(store: Handle, core: Arc<crate::Topic>) -> Topic {
        Topic(Kind::Live(store, core))
    }

    fn permissions(&self) -> u32 {
        match &self.0 {
            Kind::Live(_, core) => core.permissions(),
            Kind::Kept(kept) => kept.permissions,
        }
    }
}

impl Values for Topic {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("name", self.name())?;
        values.set_item("queues", self.queues(py)?)?;
        values.set_item("write_queues", self.write_queues())?;
        values.set_item("read_queues", self.read_queues())?;
        values.set_item("permissions", self.permissions())?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Topic> {
        Ok(Topic(Kind::Kept(Kept {
            name: value(values, "name")?,
            queues: value(values, "queues")?,
            write_queues: value(values, "write_queues")?,
            read_queues: value(values, "read_queues")?,
            permissions: value(values, "permissions")?,
        })))
    }
}

#[pymethods]
impl Topic {
    /// Name of the topic.
    #[getter]
    fn name(&self) -> &str {
        match &self.0 {
            Kind::Live(_, core) => &core.name,
            Kind::Kept(kept) => &kept.name,
        }
    }

    /// A list of `Queue`, sorted by number.
    #[getter]
    fn queues(&self, py: Python<'_>) -> PyResult<Vec<Queue>> {
        let (store, topic) = match &self.0 {
            Kind::Live(store, topic) => (store, topic),
            Kind::Kept(kept) => return Ok(kept.queues.clone()),
        };
        let queues = store.call(py, |store| {
            let engine = store.engine()?;
            // A forked child has another engine.
            let again = store.is_forked().then(|| store.topic(&topic.name));
            let again = again.transpose()?;
            let topic = again.as_ref().unwrap_or(topic);
            let mut queues = Vec::new();
            for id in engine.queues(topic) {
                let bounds = engine.bounds(topic, id)?.unwrap_or(0..0);
                queues.push(Queue {
                    id,
                    min_offset: bounds.start,
                    max_offset: bounds.end,
                });
            }
            Ok(queues)
        })?;
        Ok(queues)
    }

    /// Number of queues for senders.
    #[getter]
    fn write_queues(&self) -> u32 {
        match &self.0 {
            Kind::Live(_, core) => core.write_queues(),
            Kind::Kept(kept) => kept.write_queues,
        }
    }

    /// Number of queues for consumers.
    #[getter]
    fn read_queues(&self) -> u32 {
        match &self.0 {
            Kind::Live(_, core) => core.read_queues(),
            Kind::Kept(kept) => kept.read_queues,
        }
    }

    /// Whether the topic's permissions allow consumers to read it.
    #[getter]
    fn readable(&self) -> bool {
        self.permissions() & PERMISSION_READ != 0
    }

    /// Whether the topic's permissions allow senders to write it.
    #[getter]
    fn writable(&self) -> bool {
        self.permissions() & PERMISSION_WRITE != 0
    }

    fn __repr__(&self) -> String {
        format!(
            "Topic(name={:?}, write_queues={})",
            self.name(),
            self.write_queues()
        )
    }

    /// Return what a notebook shows.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook(slf, "topic")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }
}

/// The state of a queue at the moment it was read.
///
/// Attributes
/// ----------
/// id
///     Number of the queue.
/// min_offset, max_offset
///     First offset, and the next offset to be written.
#[pyclass(frozen, get_all, from_py_object, module = "forebay")]
#[derive(Clone)]
pub(crate) struct Queue {
    /// Number of the queue.
    id: u32,
    /// First offset of the queue.
    min_offset: u64,
    /// The next offset to be written.
    max_offset: u64,
}

impl Values for Queue {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("id", self.id)?;
        values.set_item("min_offset", self.min_offset)?;
        values.set_item("max_offset", self.max_offset)?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Queue> {
        Ok(Queue {
            id: value(values, "id")?,
            min_offset: value(values, "min_offset")?,
            max_offset: value(values, "max_offset")?,
        })
    }
}

#[pymethods]
impl Queue {
    fn __repr__(&self) -> String {
        let Queue {
            id,
            min_offset,
            max_offset,
        } = self;
        format!("Queue(id={id}, min_offset={min_offset}, max_offset={max_offset})")
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }
}
