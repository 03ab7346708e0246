//! Rebuilding queues and index in parts, for processes that share the work; used by
//! `forebay.spark`.

use super::fields::fields;
use super::pickle::plain;
use crate::Mutex;
use crate::offline::{self, Quarry};
use crate::{Disk, Error, RealDisk};
use pyo3::prelude::*;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Start and end positions of ranges of the log.
type Pairs = Vec<(u64, u64)>;

plain!(
    LaidRun,
    "Adjacent queue entries that were built from a range of the log.

Attributes
----------
topic, queue
    The queue.
first, next
    First offset, and the offset after the last.
position
    Position in the log of the first record.",
    {
        topic: String,
        queue: u32,
        first: u64,
        next: u64,
        position: u64,
    }
);

plain!(
    LaidRange,
    "A range of the log whose queue entries and keys were written.

Attributes
----------
start, end
    Positions in the log.
records, keys
    Number of records and keys.
runs
    A list of `LaidRun`.
holes, bridges
    Start and end of damaged ranges, and of records that fill repaired holes.",
    {
        start: u64,
        end: u64,
        records: u64,
        keys: u64,
        runs: Vec<LaidRun>,
        holes: Pairs,
        bridges: Pairs,
    }
);

plain!(
    IndexKeys,
    "An index file to build.

Attributes
----------
name
    Its name, a number.
first, count
    Index of its first key among all keys of the log, and its number of keys.",
    {
        name: u64,
        first: u64,
        count: u64,
    }
);

plain!(
    Merged,
    "The completed queues of a store, and the index files still to build.

Attributes
----------
end
    End position of the log.
records, queues, queue_entries
    Number of each.
fillers
    Queue entries for offsets that have no message.
holes
    Start and end of damaged ranges of the log.
index
    A list of `IndexKeys`.",
    {
        end: u64,
        records: u64,
        queues: u64,
        queue_entries: u64,
        fillers: u64,
        holes: Pairs,
        index: Vec<IndexKeys>,
    }
);

impl From<offline::Laid> for LaidRange {
    fn from(laid: offline::Laid) -> LaidRange {
        let run = |run: offline::LaidRun| LaidRun {
            topic: run.topic,
            queue: run.queue,
            first: run.offsets.start,
            next: run.offsets.end,
            position: run.position,
        };
        LaidRange {
            start: laid.start,
            end: laid.end,
            records: laid.records,
            keys: laid.keys,
            runs: laid.runs.into_iter().map(run).collect(),
            holes: pairs(laid.holes),
            bridges: pairs(laid.bridges),
        }
    }
}

impl From<LaidRange> for offline::Laid {
    fn from(laid: LaidRange) -> offline::Laid {
        let run = |run: LaidRun| offline::LaidRun {
            topic: run.topic,
            queue: run.queue,
            offsets: run.first..run.next,
            position: run.position,
        };
        offline::Laid {
            start: laid.start,
            end: laid.end,
            records: laid.records,
            keys: laid.keys,
            runs: laid.runs.into_iter().map(run).collect(),
            holes: ranges(laid.holes),
            bridges: ranges(laid.bridges),
        }
    }
}

impl From<IndexKeys> for offline::IndexKeys {
    fn from(IndexKeys { name, first, count }: IndexKeys) -> offline::IndexKeys {
        offline::IndexKeys { name, first, count }
    }
}

impl From<offline::Merged> for Merged {
    fn from(merged: offline::Merged) -> Merged {
        let plan = |plan: offline::IndexKeys| IndexKeys {
            name: plan.name,
            first: plan.first,
            count: plan.count,
        };
        Merged {
            end: merged.end,
            records: merged.records,
            queues: merged.queues,
            queue_entries: merged.queue_entries,
            fillers: merged.fillers,
            holes: pairs(merged.holes),
            index: merged.index.into_iter().map(plan).collect(),
        }
    }
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

fn pairs(ranges: Vec<Range<u64>>) -> Pairs {
    let ranges = ranges.into_iter();
    ranges.map(|range| (range.start, range.end)).collect()
}

fn ranges(pairs: Pairs) -> Vec<Range<u64>> {
    pairs.into_iter().map(|(start, end)| start..end).collect()
}

/// Return the ranges of the log of a store that no process writes. `locked` says that the caller
/// holds its lock.
#[pyfunction]
pub(crate) fn rebuild_ranges(py: Python<'_>, path: PathBuf, locked: bool) -> PyResult<Pairs> {
    let found = py.detach(|| {
        if !locked {
            Quarry::check_unwritten(&*disk(), &path)?;
        }
        Ok::<_, Error>(Quarry::open(&disk(), &path)?.ranges())
    });
    Ok(pairs(found?))
}

/// Write the queue entries of ranges of the log, and with `index` their keys; durable on return.
#[pyfunction]
pub(crate) fn rebuild_lay(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    ranges: Pairs,
    index: bool,
    token: &str,
) -> PyResult<Vec<LaidRange>> {
    let laid = py.detach(|| {
        let quarry = Quarry::open(&disk(), &path)?;
        let lay = |(start, end)| quarry.lay(&target, start..end, index, token);
        let laid: Vec<_> = ranges.into_iter().map(lay).collect::<crate::Result<_>>()?;
        quarry.sync(&target)?;
        Ok::<_, Error>(laid)
    })?;
    Ok(laid.into_iter().map(LaidRange::from).collect())
}

/// Check and complete the queues of all ranges, given in log order, and plan the index files.
#[pyfunction]
pub(crate) fn rebuild_merge(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    laid: Vec<LaidRange>,
) -> PyResult<Merged> {
    let laid: Vec<_> = laid.into_iter().map(Into::into).collect();
    let merged = py.detach(|| Quarry::open(&disk(), &path)?.merge(&target, &laid))?;
    Ok(merged.into())
}

fields! {
    /// The keys of a range of the log: where the range starts, and their number.
    StagedKeys {
        start: u64,
        keys: u64,
    }
}

/// Build index files. `staged` holds the keys of each range, in log order.
#[pyfunction]
pub(crate) fn rebuild_index(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    staged: Vec<StagedKeys>,
    plans: Vec<IndexKeys>,
    token: &str,
) -> PyResult<()> {
    let staged: Vec<_> = staged.iter().map(|it| (it.start, it.keys)).collect();
    Ok(py.detach(|| {
        let quarry = Quarry::open(&disk(), &path)?;
        let build = |plan: IndexKeys| quarry.index(&target, &staged, &plan.into(), token);
        plans.into_iter().try_for_each(build)
    })?)
}

/// The lock of a store that no process writes; held until `release`.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct StoreLock {
    core: Mutex<Option<offline::StoreLock>>,
}

#[pymethods]
impl StoreLock {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, adopt: bool) -> PyResult<StoreLock> {
        let lock = py.detach(|| offline::StoreLock::take(&disk(), &path, adopt))?;
        let core = Mutex::new(Some(lock));
        Ok(StoreLock { core })
    }

    /// Replace the store's queues and index by those in `built`, and move the old ones to `away`.
    fn install(
        &self,
        py: Python<'_>,
        built: PathBuf,
        away: PathBuf,
        index: Vec<IndexKeys>,
    ) -> PyResult<()> {
        let index: Vec<_> = index.into_iter().map(Into::into).collect();
        Ok(py.detach(|| match &*self.core.lock() {
            Some(lock) => lock.install(&built, &away, &index),
            None => Err(Error::Closed { path: None }),
        })?)
    }

    /// Release the lock, so that other processes can open the store for writing.
    fn release(&self) {
        drop(self.core.lock().take());
    }
}
