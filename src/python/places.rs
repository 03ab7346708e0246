//! What readers need who keep their place in a store across its lives: `forebay.spark` alone.

use super::convert::Queue;
use super::store::Store;
use crate::Error;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A position of the log, and of each queue: topic, number, first offset, and the offset behind the
/// last message that lies wholly below that position.
type Bounds = (u64, Vec<(String, u32, u64, u64)>);

/// The bounds of the queues of topics, as far as they lie below a position of the log; without
/// one, as far as they are durable. Topics that are not there are passed over.
#[pyfunction]
#[pyo3(signature = (store, topics, position=None))]
pub(crate) fn bounds_below(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    topics: Vec<String>,
    position: Option<u64>,
) -> PyResult<Bounds> {
    let store = store.get().core();
    let found = py.detach(|| -> crate::Result<Bounds> {
        let engine = store.engine()?;
        // First the position: what is sent meanwhile lies behind it.
        let position = position.unwrap_or_else(|| engine.durable_position());
        engine.refresh()?;
        let mut found = Vec::new();
        for name in topics {
            let Some(topic) = engine.topics().get(&name) else {
                continue;
            };
            for queue in engine.queues(&topic) {
                if let Some(range) = engine.bounds_below(&topic, queue, position)? {
                    found.push((name.clone(), queue, range.start, range.end));
                }
            }
        }
        Ok((position, found))
    })?;
    Ok(found)
}

/// For each topic, queue, start, end, and number of bytes: the offset behind the last message from
/// the start on that fits into the bytes with those before it, and the bytes of all that do.
#[pyfunction]
pub(crate) fn fit(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    parts: Vec<(String, Queue, u64, u64, u64)>,
) -> PyResult<Vec<(u64, u64)>> {
    let store = store.get().core();
    let found = py.detach(|| -> crate::Result<Vec<(u64, u64)>> {
        let engine = store.engine()?;
        let parts = parts.iter();
        let fitting = parts.map(|(name, queue, start, end, bytes)| match store.topic(name) {
            Ok(topic) => engine.fit(&topic, queue.0, *start..*end, *bytes),
            Err(Error::UnknownTopic { .. }) => Ok((*start, 0)),
            Err(error) => Err(error),
        });
        fitting.collect()
    })?;
    Ok(found)
}

/// The number of the newest epoch, and the last ones: number, when it began in ns since 1970, and
/// the end of the log then.
type Epochs = (u64, Vec<(u64, u64, u64)>);

/// The epochs of the store at a path; `None` where Forebay has not written to it.
#[pyfunction]
pub(crate) fn epochs(py: Python<'_>, path: PathBuf) -> PyResult<Option<Epochs>> {
    let found = py.detach(|| crate::Epochs::of(&path))?;
    Ok(found.map(|epochs| {
        let known = epochs.known.into_iter();
        let known = known.map(|epoch| (epoch.number, epoch.began_ns, epoch.start));
        (epochs.number, known.collect())
    }))
}
