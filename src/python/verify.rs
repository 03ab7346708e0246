//! Verification in parts, for processes that share the work; used by `forebay.spark`.

use super::pickle::{Reduced, Values, plain, reduce, value};
use super::report::Verification;
use super::store::Store;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A part of a store to verify: a range of the log, a range of a queue's entries, or an index file.
///
/// Attributes
/// ----------
/// kind
///     ``"log"``, ``"queue"`` or ``"index"``.
/// size
///     Number of bytes of the log, or of entries of a queue or an index file.
#[pyclass(frozen, from_py_object, module = "forebay._forebay")]
#[derive(Clone)]
pub(crate) struct Stretch {
    core: crate::Stretch,
}

impl Values for Stretch {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("kind", self.kind())?;
        match &self.core {
            crate::Stretch::Log(range) => {
                values.set_item("start", range.start)?;
                values.set_item("end", range.end)?;
            }
            crate::Stretch::Queue {
                topic,
                queue,
                numbers,
            } => {
                values.set_item("topic", topic)?;
                values.set_item("queue", queue)?;
                values.set_item("start", numbers.start)?;
                values.set_item("end", numbers.end)?;
            }
            crate::Stretch::Index { name, entries } => {
                values.set_item("name", name)?;
                values.set_item("entries", entries)?;
            }
        }
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Stretch> {
        let kind: String = value(values, "kind")?;
        let core = match &*kind {
            "log" => crate::Stretch::Log(value(values, "start")?..value(values, "end")?),
            "queue" => crate::Stretch::Queue {
                topic: value(values, "topic")?,
                queue: value(values, "queue")?,
                numbers: value(values, "start")?..value(values, "end")?,
            },
            "index" => crate::Stretch::Index {
                name: value(values, "name")?,
                entries: value(values, "entries")?,
            },
            _ => {
                return Err(PyValueError::new_err(format!(
                    "unknown kind of stretch {kind:?}"
                )));
            }
        };
        Ok(Stretch { core })
    }
}

#[pymethods]
impl Stretch {
    #[getter]
    fn kind(&self) -> &'static str {
        match self.core {
            crate::Stretch::Log(_) => "log",
            crate::Stretch::Queue { .. } => "queue",
            crate::Stretch::Index { .. } => "index",
        }
    }

    #[getter]
    fn size(&self) -> u64 {
        match &self.core {
            crate::Stretch::Log(range) | crate::Stretch::Queue { numbers: range, .. } => {
                range.end.saturating_sub(range.start)
            }
            crate::Stretch::Index { entries, .. } => *entries,
        }
    }

    fn __repr__(&self) -> String {
        format!("<Stretch {:?}>", self.core)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }
}

plain!(
    FoundHole,
    "A range of the log without intact records.

Attributes
----------
start, end
    Positions in the log.
reason
    What is wrong with the first record.
lost
    Messages known to be lost, as (topic, queue, offset).",
    {
        start: u64,
        end: u64,
        reason: String,
        lost: Vec<(String, u32, u64)>,
    }
);

plain!(
    Finding,
    "The result of verifying one part.

Attributes
----------
verification
    Counts of intact records and entries, and damage other than holes.
holes
    For a part of the log, the holes that begin in it; for others, the holes that its entries point
    into.
last_store_ms
    Store time of the last intact record, in milliseconds since the epoch.",
    {
        verification: Verification,
        holes: Vec<FoundHole>,
        last_store_ms: i64,
    }
);

impl From<crate::Finding> for Finding {
    fn from(finding: crate::Finding) -> Finding {
        let hole = |(range, reason, lost): crate::FoundHole| FoundHole {
            start: range.start,
            end: range.end,
            reason,
            lost,
        };
        Finding {
            verification: finding.found.into(),
            holes: finding.holes.into_iter().map(hole).collect(),
            last_store_ms: finding.last_store_ms,
        }
    }
}

impl From<Finding> for crate::Finding {
    fn from(finding: Finding) -> crate::Finding {
        let hole = |hole: FoundHole| (hole.start..hole.end, hole.reason, hole.lost);
        crate::Finding {
            found: finding.verification.into(),
            holes: finding.holes.into_iter().map(hole).collect(),
            last_store_ms: finding.last_store_ms,
        }
    }
}

/// Return the parts of a verification in order.
#[pyfunction]
pub(crate) fn verify_stretches(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Vec<Stretch>> {
    let core = store.get().core();
    let found = py.detach(|| core.files()?.stretches())?;
    Ok(found.into_iter().map(|core| Stretch { core }).collect())
}

/// Verify parts, and return a finding for each. `holes` lists start and end of all holes of the
/// log.
#[pyfunction]
pub(crate) fn verify_parts(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    parts: Vec<Stretch>,
    holes: Vec<(u64, u64)>,
) -> PyResult<Vec<Finding>> {
    let parts: Vec<_> = parts.into_iter().map(|part| part.core).collect();
    let holes: Vec<_> = holes.into_iter().map(|(start, end)| start..end).collect();
    let core = store.get().core();
    let findings = py.detach(|| core.files()?.verify_stretches(&parts, &holes))?;
    Ok(findings.into_iter().map(Finding::from).collect())
}

/// Combine the findings of all parts, given in the order of the parts.
#[pyfunction]
pub(crate) fn verify_join(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    findings: Vec<Finding>,
) -> PyResult<Verification> {
    let findings = findings.into_iter().map(Into::into).collect();
    let core = store.get().core();
    Ok(py.detach(|| core.files()?.join_findings(findings))?.into())
}
