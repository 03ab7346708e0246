//! Places in queues for readers in Python: bounds as offsets, and epochs for readers that save a
//! position across openings of the store (`forebay.spark`).

use super::convert::{Queue, limit};
use super::fields::fields;
use super::store::Store;
use super::waiting::Wait;
use crate::{Bounded, Epoch, Error};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// Bounds of a queue: its first offset, and the offset after its last message that ends at or below
/// the position.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct QueueBounds {
    topic: String,
    queue: u32,
    start: u64,
    end: u64,
}

/// Bounds of queues below a position of the log.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Bounds {
    #[pyo3(get)]
    position: u64,
    queues: Vec<Py<QueueBounds>>,
}

#[pymethods]
impl Bounds {
    #[getter]
    fn queues(&self, py: Python<'_>) -> Vec<Py<QueueBounds>> {
        let queues = self.queues.iter();
        queues.map(|queue| queue.clone_ref(py)).collect()
    }
}

/// Return the bounds of the topics' queues below a position of the log, by default the durable
/// position. Topics that the store does not have are omitted.
#[pyfunction]
#[pyo3(signature = (store, topics, position=None))]
pub(crate) fn bounds_below(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    topics: Vec<String>,
    position: Option<u64>,
) -> PyResult<Bounds> {
    let store = store.get().core();
    let (position, found) = py.detach(|| -> crate::Result<_> {
        let engine = store.engine()?;
        // Take the position first: messages sent meanwhile lie after it.
        let position = position.unwrap_or_else(|| engine.durable_position());
        engine.refresh(None)?;
        let mut found = Vec::new();
        for name in topics {
            let Some(topic) = engine.topics().get(&name) else {
                continue;
            };
            for queue in engine.queues(&topic) {
                if let Some(range) = engine.bounds_below(&topic, queue, position)? {
                    found.push(QueueBounds {
                        topic: name.clone(),
                        queue,
                        start: range.start,
                        end: range.end,
                    });
                }
            }
        }
        Ok((position, found))
    })?;
    let queues = found.into_iter().map(|queue| Py::new(py, queue));
    let queues = queues.collect::<PyResult<_>>()?;
    Ok(Bounds { position, queues })
}

/// Wait until there is a message after a position of the log, at most for a time. Return whether
/// there is one. It need not be durable.
#[pyfunction]
pub(crate) fn wait_beyond(
    store: &Bound<'_, Store>,
    position: u64,
    timeout: Duration,
) -> PyResult<bool> {
    let (py, core) = (store.py(), store.get().core());
    let mut wait = Wait::new(Some(timeout));
    loop {
        let slice = wait.slice();
        let wait_slice = || Ok(core.engine()?.wait_readable(position, slice));
        let readable: crate::Result<u64> = py.detach(wait_slice);
        if readable? > position {
            return Ok(true);
        }
        if slice.is_zero() {
            return Ok(false);
        }
        wait.pause(py)?;
    }
}

/// Messages of a queue that fit into a number of bytes: the offset after the last of them, and
/// their total size in bytes.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Fitted {
    end: u64,
    bytes: u64,
}

/// Return the messages of a queue, from `start` on, that fit into `max_bytes` together.
#[pyfunction]
pub(crate) fn fit(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    topic: &str,
    queue: Queue,
    start: u64,
    end: u64,
    max_bytes: u64,
) -> PyResult<Fitted> {
    let store = store.get().core();
    let (end, bytes) = py.detach(|| match store.topic(topic) {
        Ok(topic) => store.engine()?.fit(&topic, queue.0, start..end, max_bytes),
        Err(Error::UnknownTopic { .. }) => Ok((start, 0)),
        Err(error) => Err(error),
    })?;
    Ok(Fitted { end, bytes })
}

fields! {
    /// An epoch: its number, when it began in ns since 1970, and the end of the log at that time.
    KnownEpoch {
        number: u64,
        began: u64,
        start: u64,
    }
}

/// The epochs of a store: each opening for writing begins one.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Epochs(crate::Epochs);

#[pymethods]
impl Epochs {
    /// The epochs with this newest number; `known` are the latest ones.
    #[new]
    #[pyo3(signature = (number=0, known=Vec::new()))]
    fn new(number: u64, known: Vec<KnownEpoch>) -> Epochs {
        let known = known.into_iter().map(|epoch| Epoch {
            number: epoch.number,
            began_ns: epoch.began,
            start: epoch.start,
        });
        Epochs(crate::Epochs {
            number,
            known: known.collect(),
        })
    }

    /// The number of the newest epoch; 0 if there is none.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    /// When the newest epoch began, in ns since 1970; 0 if unknown.
    #[getter]
    fn began(&self) -> u64 {
        let newest = self.0.newest();
        let newest = newest.filter(|epoch| epoch.number == self.0.number);
        newest.map_or(0, |epoch| epoch.began_ns)
    }

    /// Return the position up to which a log, durable up to `durable`, is the one that was durable
    /// up to `position` in the epoch of this number and beginning.
    ///
    /// `None` means that nothing was lost, and 0 that another log has replaced it. The lowest
    /// beginning of a later epoch is where the log was cut, however much was appended later. Only
    /// the last 128 epochs are known: a log that was cut in an earlier one, and has grown again, is
    /// not detected.
    fn intact_until(&self, epoch: u64, began: u64, position: u64, durable: u64) -> Option<u64> {
        self.0.intact_until((epoch, began, position), durable)
    }
}

/// Return the epochs of the store at a path; `None` if Forebay has never written to it.
#[pyfunction]
pub(crate) fn epochs(py: Python<'_>, path: PathBuf) -> PyResult<Option<Epochs>> {
    let found = py.detach(|| crate::Epochs::of(&path))?;
    Ok(found.map(Epochs))
}

fields! {
    /// A queue of a store or an archive.
    KnownQueue {
        id: u32,
        min_offset: u64,
        max_offset: u64,
    }
}

/// Offsets of a queue: ``start`` to ``end`` (exclusive).
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct QueueOffsets {
    queue: u32,
    start: u64,
    end: u64,
}

/// The offsets between two bounds, of queues of a topic. `source` is a store or an archive: its
/// `offset_at` is asked for the offset of a time.
#[pyfunction]
pub(crate) fn offsets_between(
    source: &Bound<'_, PyAny>,
    topic: &str,
    queues: Vec<KnownQueue>,
    start: &Bound<'_, PyAny>,
    end: &Bound<'_, PyAny>,
) -> PyResult<Vec<QueueOffsets>> {
    let (start, end) = (limit("start", start)?, limit("end", end)?);
    let between = |known: KnownQueue| -> PyResult<QueueOffsets> {
        let (queue, offsets) = (known.id, known.min_offset..known.max_offset);
        let there = Bounded {
            topic,
            queue,
            offsets,
        };
        let found = there.range(&start, &end, |time| -> PyResult<u64> {
            let offset = source.call_method1("offset_at", (topic, queue, time))?;
            offset.extract()
        })?;
        Ok(QueueOffsets {
            queue,
            start: found.start,
            end: found.end,
        })
    };
    queues.into_iter().map(between).collect()
}
