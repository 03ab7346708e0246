//! Reports about a store: recovery, verification, compaction and repair.

use super::damage::{damages, places};
use super::pickle::{Reduced, Values, plain, reduce, value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

plain!(
    Recovery,
    "What opening the store found and did.

Attributes
----------
clean
    Whether the store had been closed properly.
walked_from, end
    Positions in the log: where its check began, and where the log ends.
truncated_bytes
    Bytes after the end. Opening erases them; if the store is read-only, it ignores them.
records_checked, queue_entries_rebuilt, index_entries_rebuilt
    Number of each.
stale_checksums
    Copied records with the checksum of their original, as brokers write them.
elapsed
    Duration of the opening in seconds.",
    {
        /// Whether the store had been closed properly.
        clean: bool,
        /// Position in the log where its check began.
        walked_from: u64,
        /// Position where the log ends.
        end: u64,
        /// Bytes after the end. Opening erases them; if the store is read-only, it ignores them.
        truncated_bytes: u64,
        /// Number of records that were checked.
        records_checked: u64,
        /// Number of queue entries that were rebuilt.
        queue_entries_rebuilt: u64,
        /// Number of index entries that were rebuilt.
        index_entries_rebuilt: u64,
        /// Copied records with the checksum of their original, as brokers write them.
        stale_checksums: u64,
        /// Duration of the opening in seconds.
        elapsed: f64,
    }
);

impl From<crate::Recovery> for Recovery {
    fn from(found: crate::Recovery) -> Recovery {
        Recovery {
            clean: found.clean,
            walked_from: found.walked_from,
            end: found.end,
            truncated_bytes: found.truncated_bytes,
            records_checked: found.records_checked,
            queue_entries_rebuilt: found.queue_entries_rebuilt,
            index_entries_rebuilt: found.index_entries_rebuilt,
            stale_checksums: found.stale_checksums,
            elapsed: found.elapsed.as_secs_f64(),
        }
    }
}

/// The result of a verification.
///
/// Attributes
/// ----------
/// ok
///     Whether nothing is damaged.
/// records, queue_entries, index_entries
///     Number of intact records and entries.
/// stale_checksums
///     Copied records with the checksum of their original, as brokers write them.
/// damage
///     A list of all `Damage`.
#[pyclass(frozen, from_py_object, module = "forebay")]
#[derive(Clone, PartialEq)]
pub(crate) struct Verification {
    core: crate::Verification,
}

impl From<crate::Verification> for Verification {
    fn from(core: crate::Verification) -> Verification {
        Verification { core }
    }
}

impl From<Verification> for crate::Verification {
    fn from(found: Verification) -> crate::Verification {
        found.core
    }
}

impl Values for Verification {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("records", self.records())?;
        values.set_item("queue_entries", self.queue_entries())?;
        values.set_item("index_entries", self.index_entries())?;
        values.set_item("stale_checksums", self.stale_checksums())?;
        values.set_item("damage", self.damage(py)?)?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Verification> {
        Ok(Verification {
            core: crate::Verification {
                records: value(values, "records")?,
                queue_entries: value(values, "queue_entries")?,
                index_entries: value(values, "index_entries")?,
                stale_checksums: value(values, "stale_checksums")?,
                damage: places(values, "damage")?,
            },
        })
    }
}

#[pymethods]
impl Verification {
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }

    /// Whether nothing is damaged.
    #[getter]
    fn ok(&self) -> bool {
        self.core.damage.is_empty()
    }

    /// Number of intact records.
    #[getter]
    fn records(&self) -> u64 {
        self.core.records
    }

    /// Number of intact queue entries.
    #[getter]
    fn queue_entries(&self) -> u64 {
        self.core.queue_entries
    }

    /// Number of intact index entries.
    #[getter]
    fn index_entries(&self) -> u64 {
        self.core.index_entries
    }

    /// Copied records with the checksum of their original, as brokers write them.
    #[getter]
    fn stale_checksums(&self) -> u64 {
        self.core.stale_checksums
    }

    /// A list of all `Damage`.
    #[getter]
    fn damage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        damages(py, self.core.damage.clone())
    }

    fn __repr__(&self) -> String {
        format!(
            "Verification(ok={}, records={}, queue_entries={}, index_entries={}, \
             stale_checksums={}, damage={})",
            if self.ok() { "True" } else { "False" },
            self.core.records,
            self.core.queue_entries,
            self.core.index_entries,
            self.core.stale_checksums,
            self.core.damage.len()
        )
    }
}

plain!(
    Compaction,
    "The result of a compaction.

Attributes
----------
partitions
    Number of queues that were compacted.
bytes_read, bytes_written
    Bytes of the segments that were replaced, and of those that replace them, in all passes.
messages_read, messages_written
    Number of messages in these.
complete
    Whether nothing is left that could be dropped.",
    {
        /// Number of queues that were compacted.
        partitions: u64,
        /// Bytes of the segments that were replaced, in all passes.
        bytes_read: u64,
        /// Bytes of the segments that replace them, in all passes.
        bytes_written: u64,
        /// Messages of the segments that were replaced.
        messages_read: u64,
        /// Messages of the segments that replace them.
        messages_written: u64,
        /// Whether nothing is left that could be dropped.
        complete: bool,
    }
);

impl From<crate::Compacted> for Compaction {
    fn from(done: crate::Compacted) -> Compaction {
        Compaction {
            partitions: done.partitions,
            bytes_read: done.bytes_read,
            bytes_written: done.bytes_written,
            messages_read: done.messages_read,
            messages_written: done.messages_written,
            complete: done.is_complete,
        }
    }
}

plain!(
    RepairStep,
    "What a repair did in one region.

Attributes
----------
path
    The file.
position, length
    First byte, and number of bytes. The first is a position in the log if this is a log file, else
    a byte of the file.
what
    What was done.
saved
    File with the previous bytes; None if they were zeros, or can be rebuilt from the log.
lost
    Messages known to be lost, as (topic, queue, offset).",
    {
        /// The file.
        path: String,
        /// First byte: a position in the log if this is a log file, else a byte of the file.
        position: u64,
        /// Number of bytes.
        length: u64,
        /// What was done.
        what: String,
        /// File with the previous bytes; None if they were zeros, or can be rebuilt from the log.
        saved: Option<String>,
        /// Messages known to be lost, as (topic, queue, offset).
        lost: Vec<(String, u32, u64)>,
    }
);

impl From<crate::RepairStep> for RepairStep {
    fn from(step: crate::RepairStep) -> RepairStep {
        RepairStep {
            path: step.path.display().to_string(),
            position: step.position,
            length: step.length,
            what: step.what,
            saved: step.saved.map(|path| path.display().to_string()),
            lost: step.lost,
        }
    }
}

/// What a repair did, and what it could not repair.
///
/// Attributes
/// ----------
/// ok
///     Whether all damage is repaired.
/// steps
///     A list of `RepairStep` in order; empty if nothing was damaged.
/// left
///     A list of all `Damage` that remains.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Repair {
    core: crate::Repair,
}

impl From<crate::Repair> for Repair {
    fn from(core: crate::Repair) -> Repair {
        Repair { core }
    }
}

impl From<RepairStep> for crate::RepairStep {
    fn from(step: RepairStep) -> crate::RepairStep {
        crate::RepairStep {
            path: step.path.into(),
            position: step.position,
            length: step.length,
            what: step.what,
            saved: step.saved.map(Into::into),
            lost: step.lost,
        }
    }
}

impl Values for Repair {
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(py);
        values.set_item("steps", self.steps(py)?)?;
        values.set_item("left", self.left(py)?)?;
        Ok(values)
    }

    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Repair> {
        let steps: Vec<RepairStep> = value(values, "steps")?;
        Ok(Repair {
            core: crate::Repair {
                steps: steps.into_iter().map(Into::into).collect(),
                left: places(values, "left")?,
            },
        })
    }
}

#[pymethods]
impl Repair {
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(self, py)
    }

    /// Whether all damage is repaired.
    #[getter]
    fn ok(&self) -> bool {
        self.core.left.is_empty()
    }

    /// A list of `RepairStep` in order; empty if nothing was damaged.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.core.steps.iter().cloned().map(RepairStep::from))
    }

    /// A list of all `Damage` that remains.
    #[getter]
    fn left<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        damages(py, self.core.left.clone())
    }

    fn __repr__(&self) -> String {
        format!(
            "Repair(ok={}, steps={}, left={})",
            if self.ok() { "True" } else { "False" },
            self.core.steps.len(),
            self.core.left.len()
        )
    }
}
