//! Reports about a store: recovery, damage, counters, verification and repair.

use super::pickle::{Reduced, Values, plain, reduce, value};
use crate::DamageKind;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use std::convert::Infallible;

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

plain!(
    Damage,
    "A damaged region of the store, and the messages lost with it.

Attributes
----------
path
    The file.
position
    First damaged byte: a position in the log if this is a log file, else a byte of the file.
length
    Number of unreadable bytes.
reason
    What is wrong.
lost
    Messages known to be lost, as (topic, queue, offset).
kind
    What is damaged: log, queue, index, topics, checkpoint, options, table or foreign table. If no
    file is damaged: retention or clock.",
    {
        /// The file.
        path: String,
        /// First damaged byte: a position in the log if this is a log file, else a byte of the
        /// file.
        position: u64,
        /// Number of unreadable bytes.
        length: u64,
        /// What is wrong.
        reason: String,
        /// Messages known to be lost, as (topic, queue, offset).
        lost: Vec<(String, u32, u64)>,
    },
    unlisted {
        /// What is damaged: log, queue, index, topics, checkpoint, options, table or foreign table.
        /// If no file is damaged: retention or clock.
        kind: DamageKind
    }
);

impl From<crate::Damage> for Damage {
    fn from(damage: crate::Damage) -> Damage {
        Damage {
            kind: damage.kind,
            path: damage.path.display().to_string(),
            position: damage.position,
            length: damage.length,
            reason: damage.reason,
            lost: damage.lost,
        }
    }
}

impl From<Damage> for crate::Damage {
    fn from(damage: Damage) -> crate::Damage {
        crate::Damage {
            kind: damage.kind,
            path: damage.path.into(),
            position: damage.position,
            length: damage.length,
            reason: damage.reason,
            lost: damage.lost,
        }
    }
}

impl<'py> IntoPyObject<'py> for DamageKind {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyString::new(py, self.name()))
    }
}

impl<'py> FromPyObject<'_, 'py> for DamageKind {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<DamageKind> {
        let name: String = object.extract()?;
        let kind = DamageKind::of_name(&name);
        kind.ok_or_else(|| PyValueError::new_err(format!("unknown kind of damage {name:?}")))
    }
}

/// Returns a pickled list of damaged regions.
fn places(values: &Bound<'_, PyDict>, name: &str) -> PyResult<Vec<crate::Damage>> {
    let found: Vec<Damage> = value(values, name)?;
    Ok(found.into_iter().map(Into::into).collect())
}

/// Makes a Python list of damaged regions.
pub(super) fn damages(py: Python<'_>, found: Vec<crate::Damage>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, found.into_iter().map(Damage::from))
}

plain!(
    Latency,
    "A histogram of durations. Four buckets cover each power of two.

Attributes
----------
count
    Number of durations.
mean, p50, p99, p999, max
    In seconds; 0 if nothing was counted. Percentiles are the upper ends of their buckets, so they
    may be too long by up to a quarter.
buckets
    The non-empty buckets, as (exclusive upper end in seconds, number of durations).",
    {
        /// Number of durations.
        count: u64,
        /// mean, p50, p99, p999, max: In seconds; 0 if nothing was counted. Percentiles are the
        /// upper ends of their buckets, so they may be too long by up to a quarter.
        mean: f64,
        /// mean, p50, p99, p999, max: In seconds; 0 if nothing was counted. Percentiles are the
        /// upper ends of their buckets, so they may be too long by up to a quarter.
        p50: f64,
        /// mean, p50, p99, p999, max: In seconds; 0 if nothing was counted. Percentiles are the
        /// upper ends of their buckets, so they may be too long by up to a quarter.
        p99: f64,
        /// mean, p50, p99, p999, max: In seconds; 0 if nothing was counted. Percentiles are the
        /// upper ends of their buckets, so they may be too long by up to a quarter.
        p999: f64,
        /// mean, p50, p99, p999, max: In seconds; 0 if nothing was counted. Percentiles are the
        /// upper ends of their buckets, so they may be too long by up to a quarter.
        max: f64,
        /// The non-empty buckets, as (exclusive upper end in seconds, number of durations).
        buckets: Vec<(f64, u64)>,
    }
);

impl From<crate::Latency> for Latency {
    fn from(found: crate::Latency) -> Latency {
        let quantile = |share| found.quantile(share).as_secs_f64();
        let buckets = found.buckets.iter();
        Latency {
            count: found.count,
            mean: found.total.as_secs_f64() / found.count.max(1) as f64,
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: found.max.as_secs_f64(),
            buckets: buckets
                .map(|(end, count)| (end.as_secs_f64(), *count))
                .collect(),
        }
    }
}

impl From<crate::Summary> for Latency {
    fn from(found: crate::Summary) -> Latency {
        let seconds = |time: std::time::Duration| time.as_secs_f64();
        Latency {
            count: found.count,
            mean: seconds(found.total) / found.count.max(1) as f64,
            p50: seconds(found.p50),
            p99: seconds(found.p99),
            p999: seconds(found.p999),
            max: seconds(found.max),
            buckets: Vec::new(),
        }
    }
}

plain!(
    WriterStats,
    "What the live writer of a store shows of itself to other processes.

It shows its measurements about once a second, if they have changed. In a store that several
processes write, they are those of the process that runs the services for all of them.

Attributes
----------
pid
    Its process id.
age
    Seconds since it last showed a change.
messages_sent, bytes_sent
    Messages and bytes that it has appended.
recent_messages_per_second, recent_bytes_per_second
    Rates over about the last ten seconds.
put_latency, slow_puts
    Duration of puts as a `Latency` without buckets, and the number of puts above 500 ms.
flushes, flush_time, longest_flush
    Number of syncs of the log, their total time, and the longest, in seconds.
flush_wait
    How long senders and tickets waited for durability, as a `Latency` without buckets.",
    {
        /// Its process id.
        pid: u32,
        /// Seconds since it last showed a change.
        age: f64,
        /// Messages that it has appended.
        messages_sent: u64,
        /// Bytes that it has appended.
        bytes_sent: u64,
        /// Rate of messages over about the last ten seconds.
        recent_messages_per_second: f64,
        /// Rate of bytes over about the last ten seconds.
        recent_bytes_per_second: f64,
        /// Duration of puts, as a `Latency` without buckets.
        put_latency: Latency,
        /// Number of puts above 500 ms.
        slow_puts: u64,
        /// Number of syncs of the log.
        flushes: u64,
        /// Total time of the syncs of the log, in seconds.
        flush_time: f64,
        /// The longest sync of the log, in seconds.
        longest_flush: f64,
        /// How long senders and tickets waited for durability, as a `Latency` without buckets.
        flush_wait: Latency,
    }
);

impl From<crate::WriterStats> for WriterStats {
    fn from(found: crate::WriterStats) -> WriterStats {
        WriterStats {
            pid: found.pid,
            age: found.age.as_secs_f64(),
            messages_sent: found.messages_sent,
            bytes_sent: found.bytes_sent,
            recent_messages_per_second: found.recent_messages,
            recent_bytes_per_second: found.recent_bytes,
            put_latency: found.puts.into(),
            slow_puts: found.slow_puts,
            flushes: found.flushes,
            flush_time: found.flush_time.as_secs_f64(),
            longest_flush: found.longest_flush.as_secs_f64(),
            flush_wait: found.waits.into(),
        }
    }
}

plain!(
    Stats,
    "Counters and times of a store since it was opened.

A put is the append of one message, or of one chunk of a batch. Its time covers encoding, waiting
for the append lock, and appending; `flush_wait` counts the wait for the disk. The first 1,024
single messages are timed, and then one in 64, chosen at random, and every one that takes longer
than a few milliseconds. So counts and sums are estimates, but rare long puts are counted exactly.

Attributes
----------
messages_sent, bytes_sent, sends_failed, busy
    Messages and bytes appended, failed appends, and how many of these failed because the log was
    busy.
messages_read
    Messages that reads, queries and tails returned; those of scans are not counted.
messages_delivered, messages_delivered_again
    Messages that consumers got, and how many of these had been delivered before and not settled.
messages_per_second, bytes_per_second
    Rates since the store was opened.
recent_messages_per_second, recent_bytes_per_second
    Rates over about the last ten seconds.
put_latency, slow_puts
    Duration of puts as a `Latency`, and the number of puts above 500 ms. Each of these is logged as
    a warning to the logger ``forebay``.
encode_time, append_time
    Seconds that senders spent encoding; seconds of waiting for the append lock and appending.
append_held
    Seconds since the current append began; 0 if there is none.
flushes, flush_time, longest_flush
    Number of syncs of the log, their total time, and the longest, in seconds. Each sync above
    500 ms is logged as a warning to the logger ``forebay``.
flush_wait
    How long senders and tickets waited for durability, as a `Latency`.
published, dispatched, durable
    Positions up to which readers see the log, queues and index are built, and the log is durable.
flush_behind, dispatch_behind
    Bytes of the log that are not durable yet, and bytes not yet entered into queues and index.
min_position
    First position in the log.
log_bytes, disk_free
    Total length of the log files (of a partition log, of the batches in them); free bytes of the
    file system, or None if that is unknown.
recovered_records, truncated_bytes
    Records that opening checked, and bytes after the end that it erased.
damaged
    Number of known damaged regions.
stale_checksums
    Copied records with the checksum of their original that were met.
retired_bytes_mapped
    Bytes of log files that retention has deleted but that are still mapped. The disk space is freed
    when the last message, scan or buffer that uses the file is dropped.
writer
    What the process that writes the store shows of itself, as `WriterStats`; None if this process
    writes it, no process does, or nothing was shown yet. A partition log shows nothing.",
    {
        /// Messages appended.
        messages_sent: u64,
        /// Bytes appended.
        bytes_sent: u64,
        /// Appends that failed.
        sends_failed: u64,
        /// Failed appends because the log was busy.
        busy: u64,
        /// Messages that reads, queries and tails returned; those of scans are not counted.
        messages_read: u64,
        /// Messages that consumers got.
        messages_delivered: u64,
        /// Messages that consumers got, and that had been delivered before and not settled.
        messages_delivered_again: u64,
        /// Rate of messages since the store was opened.
        messages_per_second: f64,
        /// Rate of bytes since the store was opened.
        bytes_per_second: f64,
        /// Rate of messages over about the last ten seconds.
        recent_messages_per_second: f64,
        /// Rate of bytes over about the last ten seconds.
        recent_bytes_per_second: f64,
        /// Duration of puts, as a `Latency`.
        put_latency: Latency,
        /// Number of puts above 500 ms. Each of these is logged as a warning to the logger
        /// ``forebay``.
        slow_puts: u64,
        /// Seconds that senders spent encoding.
        encode_time: f64,
        /// Seconds of waiting for the append lock and appending.
        append_time: f64,
        /// Seconds since the current append began; 0 if there is none.
        append_held: f64,
        /// Number of syncs of the log.
        flushes: u64,
        /// Total time of the syncs of the log, in seconds.
        flush_time: f64,
        /// The longest sync of the log, in seconds. Each above 500 ms is logged as a warning to
        /// the logger ``forebay``.
        longest_flush: f64,
        /// How long senders and tickets waited for durability, as a `Latency`.
        flush_wait: Latency,
        /// Position up to which readers see the log.
        published: u64,
        /// Position up to which queues and index are built.
        dispatched: u64,
        /// Position up to which the log is durable.
        durable: u64,
        /// Bytes of the log that are not durable yet.
        flush_behind: u64,
        /// Bytes of the log that are not yet entered into queues and index.
        dispatch_behind: u64,
        /// First position in the log.
        min_position: u64,
        /// Total length of the log files (of a partition log, of the batches in them).
        log_bytes: u64,
        /// Free bytes of the file system, or None if that is unknown.
        disk_free: Option<u64>,
        /// Records that opening checked.
        recovered_records: u64,
        /// Bytes after the end that opening erased.
        truncated_bytes: u64,
        /// Number of known damaged regions.
        damaged: u64,
        /// Copied records with the checksum of their original that were met.
        stale_checksums: u64,
        /// Bytes of log files that retention has deleted but that are still mapped. The disk
        /// space is freed when the last message, scan or buffer that uses the file is dropped.
        retired_bytes_mapped: u64,
        /// What the process that writes the store shows of itself, as `WriterStats`; None if this
        /// process writes it, no process does, or nothing was shown yet. A partition log shows
        /// nothing.
        writer: Option<WriterStats>,
    },
    notebook "stats"
);

impl From<crate::Stats> for Stats {
    fn from(stats: crate::Stats) -> Stats {
        Stats {
            messages_sent: stats.messages_sent,
            bytes_sent: stats.bytes_sent,
            sends_failed: stats.sends_failed,
            busy: stats.busy,
            messages_read: stats.gets.read,
            messages_delivered: stats.gets.delivered,
            messages_delivered_again: stats.gets.delivered_again,
            messages_per_second: stats.rates.messages,
            bytes_per_second: stats.rates.bytes,
            recent_messages_per_second: stats.rates.recent_messages,
            recent_bytes_per_second: stats.rates.recent_bytes,
            put_latency: stats.puts.latency.into(),
            slow_puts: stats.puts.slow,
            encode_time: stats.puts.encoding.as_secs_f64(),
            append_time: stats.puts.appending.as_secs_f64(),
            append_held: stats.append_held.as_secs_f64(),
            flushes: stats.flushes.count,
            flush_time: stats.flushes.total.as_secs_f64(),
            longest_flush: stats.flushes.longest.as_secs_f64(),
            flush_wait: stats.flushes.waits.into(),
            published: stats.published,
            dispatched: stats.dispatched,
            durable: stats.durable,
            // The marks are read one after the other, so the lower one may have passed the other.
            flush_behind: stats.published.saturating_sub(stats.durable),
            dispatch_behind: stats.published.saturating_sub(stats.dispatched),
            min_position: stats.min_position,
            log_bytes: stats.log_bytes,
            disk_free: stats.disk_free,
            recovered_records: stats.recovered_records,
            truncated_bytes: stats.truncated_bytes,
            damaged: stats.damaged,
            stale_checksums: stats.stale_checksums,
            retired_bytes_mapped: stats.retired_bytes_mapped,
            writer: stats.writer.map(Into::into),
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
    "What a compaction did.

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
