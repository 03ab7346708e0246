//! What a store tells about itself: recovery, damage, counters, verification.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Makes a class of plain values: its attributes, equality, `_asdict` and representation.
macro_rules! report {
    ($name:ident, $text:literal, { $($field:ident : $kind:ty),+ $(,)? }) => {
        #[doc = $text]
        #[pyclass(frozen, get_all, eq, module = "forebay")]
        #[derive(Clone, PartialEq)]
        pub(crate) struct $name {
            $($field: $kind,)+
        }

        #[pymethods]
        impl $name {
            /// Return the attributes as a dict.
            fn _asdict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let attributes = PyDict::new(py);
                $(attributes.set_item(stringify!($field), self.$field.clone())?;)+
                Ok(attributes)
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let mut parts = Vec::new();
                for (name, value) in self._asdict(py)? {
                    parts.push(format!("{name}={}", value.repr()?));
                }
                Ok(format!(concat!(stringify!($name), "({})"), parts.join(", ")))
            }
        }
    };
}

report!(
    Recovery,
    "What opening found and did.

Attributes
----------
clean
    Whether the store had been closed in order.
walked_from, end
    Positions: from where the log was walked, and where it ends.
truncated_bytes
    Bytes behind the end that were erased or, read-only, passed over.
records_checked, queue_entries_rebuilt, index_entries_rebuilt
    How many of each.
stale_checksums
    Records whose whole-record checksum belongs to another record, as brokers leave them in copies.
elapsed
    Seconds that it took.",
    {
        clean: bool,
        walked_from: u64,
        end: u64,
        truncated_bytes: u64,
        records_checked: u64,
        queue_entries_rebuilt: u64,
        index_entries_rebuilt: u64,
        stale_checksums: u64,
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

report!(
    Damage,
    "A place in the store that is damaged, and what it costs.

Attributes
----------
path
    The file.
position
    First damaged byte: a position of the log in a log file, a byte of the file elsewhere.
length
    Bytes that are not readable.
reason
    What is wrong.
lost
    Messages known to be lost, as (topic, queue, offset).",
    {
        path: String,
        position: u64,
        length: u64,
        reason: String,
        lost: Vec<(String, u32, u64)>,
    }
);

impl From<crate::Damage> for Damage {
    fn from(damage: crate::Damage) -> Damage {
        Damage {
            path: damage.path.display().to_string(),
            position: damage.position,
            length: damage.length,
            reason: damage.reason,
            lost: damage.lost,
        }
    }
}

/// A list of damaged places.
pub(super) fn damages(py: Python<'_>, found: Vec<crate::Damage>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, found.into_iter().map(Damage::from))
}

report!(
    Stats,
    "Counters of a store since it was opened.

Attributes
----------
messages_sent, bytes_sent, sends_failed
    Messages and bytes appended, and appends that failed.
published, dispatched, durable
    Positions up to which readers see the log, queues and index are built, the log is on the disk.
min_position
    First position of the log.
damaged
    Damaged places that are known.
stale_checksums
    Records met whose whole-record checksum belongs to another record.",
    {
        messages_sent: u64,
        bytes_sent: u64,
        sends_failed: u64,
        published: u64,
        dispatched: u64,
        durable: u64,
        min_position: u64,
        damaged: u64,
        stale_checksums: u64,
    }
);

impl From<crate::Stats> for Stats {
    fn from(stats: crate::Stats) -> Stats {
        Stats {
            messages_sent: stats.messages_sent,
            bytes_sent: stats.bytes_sent,
            sends_failed: stats.sends_failed,
            published: stats.published,
            dispatched: stats.dispatched,
            durable: stats.durable,
            min_position: stats.min_position,
            damaged: stats.damaged,
            stale_checksums: stats.stale_checksums,
        }
    }
}

/// What a verification found.
///
/// Attributes
/// ----------
/// ok
///     Whether nothing is damaged.
/// records, queue_entries, index_entries
///     How many are whole.
/// stale_checksums
///     Records whose whole-record checksum belongs to another record, as brokers leave them in
///     copies.
/// damage
///     A list of all `Damage`.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Verification {
    core: crate::Verification,
}

impl From<crate::Verification> for Verification {
    fn from(core: crate::Verification) -> Verification {
        Verification { core }
    }
}

#[pymethods]
impl Verification {
    #[getter]
    fn ok(&self) -> bool {
        self.core.damage.is_empty()
    }

    #[getter]
    fn records(&self) -> u64 {
        self.core.records
    }

    #[getter]
    fn queue_entries(&self) -> u64 {
        self.core.queue_entries
    }

    #[getter]
    fn index_entries(&self) -> u64 {
        self.core.index_entries
    }

    #[getter]
    fn stale_checksums(&self) -> u64 {
        self.core.stale_checksums
    }

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
