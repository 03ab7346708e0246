//! A rebuild of queues and index in parts, for processes that share the work: what `forebay.spark`
//! calls.

use super::pickle::plain;
use crate::offline::{self, Quarry};
use crate::{Disk, Error, RealDisk};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Start and end of ranges of the log.
type Pairs = Vec<(u64, u64)>;

plain!(
    LaidRun,
    "Adjacent queue entries that a range of the log gave.

Attributes
----------
topic, queue
    The queue.
first, next
    Its offsets: the first, and the one after the last.
position
    Where the first record begins in the log.",
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
    Positions of the log.
records, keys
    How many.
runs
    A list of each `LaidRun`.
holes, bridges
    Start and end of damaged ranges, and of records that fill holes.",
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
    Number of its first key among all keys of the log, and how many it has.",
    {
        name: u64,
        first: u64,
        count: u64,
    }
);

plain!(
    Settled,
    "The queues of a store, complete, and the index files to build.

Attributes
----------
end
    Where the log ends.
records, queues, queue_entries
    How many.
fillers
    Queue entries for offsets that have no message.
holes
    Start and end of damaged ranges of the log.
index
    A list of each `IndexKeys`.",
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

impl From<offline::Settled> for Settled {
    fn from(settled: offline::Settled) -> Settled {
        let plan = |plan: offline::IndexKeys| IndexKeys {
            name: plan.name,
            first: plan.first,
            count: plan.count,
        };
        Settled {
            end: settled.end,
            records: settled.records,
            queues: settled.queues,
            queue_entries: settled.queue_entries,
            fillers: settled.fillers,
            holes: pairs(settled.holes),
            index: settled.index.into_iter().map(plan).collect(),
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

/// List the ranges of the log of a store that nobody writes; `locked`: the caller has its lock.
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

/// Write the queue entries, and with `index` the keys, of ranges of the log; durably.
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

/// Check and complete the queues of all ranges, in the order of the log, and plan the index files.
#[pyfunction]
pub(crate) fn rebuild_settle(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    laid: Vec<LaidRange>,
) -> PyResult<Settled> {
    let laid: Vec<_> = laid.into_iter().map(Into::into).collect();
    let settled = py.detach(|| Quarry::open(&disk(), &path)?.settle(&target, &laid))?;
    Ok(settled.into())
}

/// Build index files. `staged`: start and number of keys of each range, in order.
#[pyfunction]
pub(crate) fn rebuild_index(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    staged: Pairs,
    plans: Vec<IndexKeys>,
    token: &str,
) -> PyResult<()> {
    Ok(py.detach(|| {
        let quarry = Quarry::open(&disk(), &path)?;
        let build = |plan: IndexKeys| quarry.index(&target, &staged, &plan.into(), token);
        plans.into_iter().try_for_each(build)
    })?)
}

/// The lock of a store that nobody writes, held until it is released.
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

    /// Put queues and index from `built` in place of the store's, which go to `away`.
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
            None => Err(Error::Closed),
        })?)
    }

    /// Let others open the store.
    fn release(&self) {
        drop(self.core.lock().take());
    }
}
