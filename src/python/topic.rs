//! Topics of a store and their queues.

use super::store::Store;
use crate::engine::topic::{PERMISSION_READ, PERMISSION_WRITE};
use pyo3::prelude::*;
use std::sync::Arc;

/// A topic of an open store. The store's answers are asked for at each access.
///
/// Attributes
/// ----------
/// name
///     The name.
/// queues
///     A list of `Queue`, by number.
/// write_queues, read_queues
///     How many queues messages are sent to, and how many consumers read.
/// readable, writable
///     The topic's permissions.
///
/// Examples
/// --------
/// >>> with forebay.open(":memory:") as store:
/// ...     topic = store.create_topic("orders", queues=2)
/// ...     _ = store.send("orders", b"body", queue=1)
/// ...     [queue.max_offset for queue in topic.queues]
/// [0, 1]
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Topic {
    store: Py<Store>,
    core: Arc<crate::Topic>,
}

impl Topic {
    pub(super) fn new(store: &Bound<'_, Store>, core: Arc<crate::Topic>) -> Topic {
        Topic {
            store: store.clone().unbind(),
            core,
        }
    }
}

#[pymethods]
impl Topic {
    #[getter]
    fn name(&self) -> &str {
        &self.core.name
    }

    #[getter]
    fn queues(&self, py: Python<'_>) -> PyResult<Vec<Queue>> {
        let queues = self.store.get().call(py, |store| {
            let engine = store.engine()?;
            let mut queues = Vec::new();
            for id in engine.queues(&self.core) {
                let bounds = engine.bounds(&self.core, id)?.unwrap_or(0..0);
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

    #[getter]
    fn write_queues(&self) -> u32 {
        self.core.write_queues()
    }

    #[getter]
    fn read_queues(&self) -> u32 {
        self.core.read_queues()
    }

    #[getter]
    fn readable(&self) -> bool {
        self.core.permissions() & PERMISSION_READ != 0
    }

    #[getter]
    fn writable(&self) -> bool {
        self.core.permissions() & PERMISSION_WRITE != 0
    }

    fn __repr__(&self) -> String {
        format!(
            "Topic(name={:?}, write_queues={})",
            self.core.name,
            self.core.write_queues()
        )
    }
}

/// A queue of a topic as it was when it was asked for.
///
/// Attributes
/// ----------
/// id
///     The number.
/// min_offset, max_offset
///     First offset, and the next to be written.
#[pyclass(frozen, get_all, module = "forebay")]
pub(crate) struct Queue {
    id: u32,
    min_offset: u64,
    max_offset: u64,
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
}
