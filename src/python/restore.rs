//! The functions that pickles refer to; they restore the pickled objects.

use super::arrow::Scan;
use super::conversion::Conversion;
use super::damage::Damage;
use super::groups::GroupQueue;
use super::pickle::restore;
use super::read_batch::ReadBatch;
use super::rebuild::{IndexKeys, LaidRange, LaidRun, Merged};
use super::report::{Compaction, Recovery, Repair, RepairStep, Verification};
use super::sent::{BatchResult, SendResult};
use super::stages::{Contents, Staged};
use super::stats::{Latency, Stats, WriterStats};
use super::store::Store;
use super::topic::{Queue, Topic};
use super::verify::{Finding, FoundHole, Stretch};
use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Restore a pickled object from the name of its class and its values.
#[pyfunction]
pub(crate) fn values_again(
    py: Python<'_>,
    kind: &str,
    values: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    match kind {
        BatchResult::NAME => restore::<BatchResult>(py, values),
        Compaction::NAME => restore::<Compaction>(py, values),
        Conversion::NAME => restore::<Conversion>(py, values),
        Contents::NAME => restore::<Contents>(py, values),
        Damage::NAME => restore::<Damage>(py, values),
        Finding::NAME => restore::<Finding>(py, values),
        FoundHole::NAME => restore::<FoundHole>(py, values),
        GroupQueue::NAME => restore::<GroupQueue>(py, values),
        IndexKeys::NAME => restore::<IndexKeys>(py, values),
        LaidRange::NAME => restore::<LaidRange>(py, values),
        LaidRun::NAME => restore::<LaidRun>(py, values),
        Latency::NAME => restore::<Latency>(py, values),
        Queue::NAME => restore::<Queue>(py, values),
        ReadBatch::NAME => restore::<ReadBatch>(py, values),
        Recovery::NAME => restore::<Recovery>(py, values),
        Repair::NAME => restore::<Repair>(py, values),
        RepairStep::NAME => restore::<RepairStep>(py, values),
        SendResult::NAME => restore::<SendResult>(py, values),
        Merged::NAME => restore::<Merged>(py, values),
        Staged::NAME => restore::<Staged>(py, values),
        Stats::NAME => restore::<Stats>(py, values),
        Stretch::NAME => restore::<Stretch>(py, values),
        Topic::NAME => restore::<Topic>(py, values),
        Verification::NAME => restore::<Verification>(py, values),
        WriterStats::NAME => restore::<WriterStats>(py, values),
        other => Err(PyValueError::new_err(format!(
            "cannot restore a pickle: unknown class {other:?}"
        ))),
    }
}

/// Return a scan of a store with these arguments. Used for unpickling, and by Spark, which also
/// passes the dialect.
#[pyfunction]
pub(crate) fn scan_again(store: &Bound<'_, Store>, arguments: Bound<'_, PyDict>) -> PyResult<Scan> {
    Scan::new(Store::handle(store), arguments)
}
