//! Verification, archiving, repair and counters of a store in Python.

use super::log;
use super::progress::with_progress;
use super::report::{Repair, Verification};
use super::stats::Stats;
use super::store::Store;
use pyo3::prelude::*;

#[pymethods]
impl Store {
    /// Check the whole store: records, queue entries and index entries.
    ///
    /// Parameters
    /// ----------
    /// progress
    ///     Called with the bytes checked so far and in total; an exception from it stops the check.
    ///
    /// Returns
    /// -------
    /// Verification
    ///     Counts of what is intact, and the damage. Nothing is repaired.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.send("orders", b"body")
    /// ...     store.verify().ok
    /// True
    #[pyo3(signature = (progress=None))]
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Verification> {
        let verified = with_progress(py, progress, |told| self.core().verify(told));
        log::warnings(py, self.core());
        Ok(verified?.into())
    }

    /// Copy sealed log files or complete segments, which are never written again, to an archive.
    ///
    /// Files that the archive already has are not copied again. See `forebay.archive`.
    ///
    /// Parameters
    /// ----------
    /// target
    ///     A directory, a URI such as ``"s3://bucket/prefix"``, or a path in `filesystem`.
    /// filesystem
    ///     A pyarrow or fsspec file system.
    /// progress
    ///     Called with the bytes copied so far and in total; an exception from it stops the copy.
    ///
    /// Returns
    /// -------
    /// forebay.archive.Archived
    ///     What was copied, and the position up to which the archive has the log.
    #[pyo3(signature = (target, *, filesystem=None, progress=None))]
    fn archive<'py>(
        slf: Bound<'py, Self>,
        target: Bound<'py, PyAny>,
        filesystem: Option<Bound<'py, PyAny>>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import("forebay.archive")?;
        module.call_method1("_archive", (slf, target, filesystem, progress))
    }

    /// Save damaged bytes beside the log, and repair what can be repaired.
    ///
    /// Damaged bytes are saved in the store's directory `damaged`. Holes in the log are filled with
    /// records that belong to no queue, so that RocketMQ, too, can read past them. Queue entries,
    /// index files and the tables that Forebay writes are rebuilt from the log. Damaged tables of
    /// another system are saved and left as they are. Of a partition log damaged batches are
    /// removed, which leaves a gap between offsets, and indexes and tables are written again;
    /// damaged bytes are saved beside their file, under a name that ends with `.damaged`. Other
    /// threads may send and read meanwhile; readers in other processes see the repaired files when
    /// they open the store again. The disk needs space for one more log file.
    ///
    /// Parameters
    /// ----------
    /// progress
    ///     Called with the bytes checked so far and in total. This happens before anything is
    ///     changed; an exception from it stops the repair.
    ///
    /// Returns
    /// -------
    /// Repair
    ///     What was repaired, durably, and what is still damaged.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.send("orders", b"body")
    /// ...     store.repair().steps
    /// []
    #[pyo3(signature = (progress=None))]
    fn repair(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Repair> {
        let repaired = with_progress(py, progress, |told| self.core().repair(told));
        log::warnings(py, self.core());
        Ok(repaired?.into())
    }

    /// Return counters and times since the store was opened, without waiting for senders or
    /// flushes.
    ///
    /// Returns
    /// -------
    /// Stats
    ///     Rates, latencies, and the backlogs of flush and dispatch.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open(":memory:") as store:
    /// ...     _ = store.producer("orders").send_batch([b"a", b"b"])
    /// ...     stats = store.stats()
    /// >>> stats.messages_sent, stats.put_latency.count, stats.flush_behind
    /// (2, 1, 0)
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        Ok(self.call(py, crate::Store::stats)?.into())
    }
}
