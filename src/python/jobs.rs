//! Parts of long work over a store, for processes that share it: what `forebay.spark` calls.
//!
//! What goes from one process to another are tuples of plain values.

use super::report::Verification;
use super::store::Store;
use crate::piecemeal::{self, IndexPlan, Laid, Quarry, Run, Settled};
use crate::{Damage, DamageKind, Disk, Error, Finding, FoundHole as Hole, RealDisk, Stretch};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Topic, queue and offset of messages that are lost.
type Lost = Vec<(String, u32, u64)>;
/// A part to verify: "log", "queue" or "index"; topic and queue; from and to. Of an index file the
/// last two are its name as a number and how many entries it has.
type Part = (String, String, u32, u64, u64);
/// Records, queue entries, index entries, stale checksums, last store time, holes, damage.
type Found = (u64, u64, u64, u64, i64, Vec<FoundHole>, Vec<FoundDamage>);
/// From, to, what is wrong, what is lost.
type FoundHole = (u64, u64, String, Lost);
/// Kind, path, position, length, reason, what is lost.
type FoundDamage = (DamageKind, OsString, u64, u64, String, Lost);
/// Start, end, records, keys; runs, holes, records that fill holes.
type LaidRange = (u64, u64, u64, u64, Vec<LaidRun>, Pairs, Pairs);
/// Topic, queue, first offset, next offset, position.
type LaidRun = (String, u32, u64, u64, u64);
type Pairs = Vec<(u64, u64)>;
/// Name as a number, first key, number of keys.
type PlannedIndex = (u64, u64, u64);
/// End of the log, records, queues, queue entries, fillers, holes, index files.
type SettledAll = (u64, u64, u64, u64, u64, Pairs, Vec<PlannedIndex>);

/// List the parts of which a verification is made up, in its order.
#[pyfunction]
pub(crate) fn verify_stretches(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Vec<Part>> {
    let core = store.get().core();
    let found = py.detach(|| core.engine()?.stretches())?;
    let part = |stretch| match stretch {
        Stretch::Log(range) => ("log".to_owned(), String::new(), 0, range.start, range.end),
        Stretch::Queue {
            topic,
            queue,
            numbers,
        } => ("queue".to_owned(), topic, queue, numbers.start, numbers.end),
        Stretch::Index { name, entries } => ("index".to_owned(), String::new(), 0, name, entries),
    };
    Ok(found.into_iter().map(part).collect())
}

/// Verify parts; a finding for each. `holes`: from and to of every hole of the log.
#[pyfunction]
pub(crate) fn verify_parts(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    parts: Vec<Part>,
    holes: Pairs,
) -> PyResult<Vec<Found>> {
    let stretch = |(kind, topic, queue, from, to): Part| match &*kind {
        "log" => Ok(Stretch::Log(from..to)),
        "queue" => Ok(Stretch::Queue {
            topic,
            queue,
            numbers: from..to,
        }),
        "index" => Ok(Stretch::Index {
            name: from,
            entries: to,
        }),
        _ => Err(PyValueError::new_err(format!("{kind:?} is no part"))),
    };
    let parts: Vec<Stretch> = parts.into_iter().map(stretch).collect::<PyResult<_>>()?;
    let holes: Vec<_> = holes.into_iter().map(|(from, to)| from..to).collect();
    let core = store.get().core();
    let findings = py.detach(|| core.engine()?.verify_stretches(&parts, &holes))?;
    Ok(findings.into_iter().map(found_of).collect())
}

fn found_of(finding: Finding) -> Found {
    let found = finding.found;
    let hole = |(range, reason, lost): Hole| {
        let range: std::ops::Range<u64> = range;
        (range.start, range.end, reason, lost)
    };
    let damage = |damage: Damage| {
        let path = damage.path.into_os_string();
        (
            damage.kind,
            path,
            damage.position,
            damage.length,
            damage.reason,
            damage.lost,
        )
    };
    (
        found.records,
        found.queue_entries,
        found.index_entries,
        found.stale_checksums,
        finding.last_store_ms,
        finding.holes.into_iter().map(hole).collect(),
        found.damage.into_iter().map(damage).collect(),
    )
}

/// Put the findings of all parts together, in the order of the parts.
#[pyfunction]
pub(crate) fn verify_join(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    findings: Vec<Found>,
) -> PyResult<Verification> {
    let findings: Vec<Finding> = findings.into_iter().map(finding_of).collect();
    let core = store.get().core();
    Ok(py.detach(|| core.engine()?.join_findings(findings))?.into())
}

fn finding_of(found: Found) -> Finding {
    let (records, queue_entries, index_entries, stale_checksums, last_store_ms, holes, damage) =
        found;
    let damage = damage
        .into_iter()
        .map(|(kind, path, position, length, reason, lost)| Damage {
            kind,
            path: PathBuf::from(path),
            position,
            length,
            reason,
            lost,
        });
    let holes = holes.into_iter();
    Finding {
        found: crate::Verification {
            records,
            queue_entries,
            index_entries,
            stale_checksums,
            damage: damage.collect(),
        },
        holes: holes
            .map(|(from, to, reason, lost)| (from..to, reason, lost))
            .collect(),
        last_store_ms,
    }
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

fn pairs(ranges: Vec<std::ops::Range<u64>>) -> Pairs {
    ranges
        .into_iter()
        .map(|range| (range.start, range.end))
        .collect()
}

fn ranges(pairs: Pairs) -> Vec<std::ops::Range<u64>> {
    pairs.into_iter().map(|(from, to)| from..to).collect()
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

/// Lay the queue entries, and where `index` says so the keys, of ranges of the log; durably.
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
        let lay = |(from, to)| quarry.lay(&target, from..to, index, token);
        let laid: Vec<Laid> = ranges.into_iter().map(lay).collect::<crate::Result<_>>()?;
        quarry.sync(&target)?;
        Ok::<_, Error>(laid)
    })?;
    Ok(laid.into_iter().map(laid_range).collect())
}

fn laid_range(laid: Laid) -> LaidRange {
    let run = |run: Run| {
        let offsets = run.offsets;
        let (first, next) = (offsets.start, offsets.end);
        (run.topic, run.queue, first, next, run.position)
    };
    (
        laid.start,
        laid.end,
        laid.records,
        laid.keys,
        laid.runs.into_iter().map(run).collect(),
        pairs(laid.holes),
        pairs(laid.bridges),
    )
}

/// Check and complete the queues of all ranges, in the order of the log, and plan the index files.
#[pyfunction]
pub(crate) fn rebuild_settle(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    laid: Vec<LaidRange>,
) -> PyResult<SettledAll> {
    let laid: Vec<Laid> = laid.into_iter().map(laid_of).collect();
    let settled: Settled = py.detach(|| {
        let quarry = Quarry::open(&disk(), &path)?;
        quarry.settle(&target, &laid)
    })?;
    let index = settled.index.into_iter();
    Ok((
        settled.end,
        settled.records,
        settled.queues,
        settled.queue_entries,
        settled.fillers,
        pairs(settled.holes),
        index
            .map(|plan| (plan.name, plan.first, plan.count))
            .collect(),
    ))
}

fn laid_of((start, end, records, keys, runs, holes, bridges): LaidRange) -> Laid {
    let run = |(topic, queue, first, next, position): LaidRun| Run {
        topic,
        queue,
        offsets: first..next,
        position,
    };
    Laid {
        start,
        end,
        records,
        keys,
        runs: runs.into_iter().map(run).collect(),
        holes: ranges(holes),
        bridges: ranges(bridges),
    }
}

fn plan_of((name, first, count): PlannedIndex) -> IndexPlan {
    IndexPlan { name, first, count }
}

/// Build index files. `staged`: start and number of keys of each range, in order.
#[pyfunction]
pub(crate) fn rebuild_index(
    py: Python<'_>,
    path: PathBuf,
    target: PathBuf,
    staged: Pairs,
    plans: Vec<PlannedIndex>,
    token: &str,
) -> PyResult<()> {
    Ok(py.detach(|| {
        let quarry = Quarry::open(&disk(), &path)?;
        let build = |plan| quarry.index(&target, &staged, &plan_of(plan), token);
        plans.into_iter().try_for_each(build)
    })?)
}

/// The lock of a store that nobody writes, held until it is released.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct StoreLock {
    core: Mutex<Option<piecemeal::StoreLock>>,
}

#[pymethods]
impl StoreLock {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, adopt: bool) -> PyResult<StoreLock> {
        let lock = py.detach(|| piecemeal::StoreLock::take(&disk(), &path, adopt))?;
        let core = Mutex::new(Some(lock));
        Ok(StoreLock { core })
    }

    /// Put queues and index from `built` in place of the store's, which go to `away`.
    fn install(
        &self,
        py: Python<'_>,
        built: PathBuf,
        away: PathBuf,
        index: Vec<PlannedIndex>,
    ) -> PyResult<()> {
        let index: Vec<IndexPlan> = index.into_iter().map(plan_of).collect();
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
