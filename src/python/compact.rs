//! Compaction of a store in Python.

use super::log;
use super::progress::with_progress;
use super::report::Compaction;
use super::store::Store;
use pyo3::prelude::*;

#[pymethods]
impl Store {
    /// Drop messages that have a later one with the same key.
    ///
    /// Compacts the complete segments of a partition log, of all topics with
    /// ``cleanup_policy="compact"`` or of one of them, however little is dirty. Offsets never
    /// change. A message without a value, a tombstone, and what it deletes are dropped as
    /// ``delete_retention_ms`` says. Everything that the call did is durable on return.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     A topic that is compacted; by default all of them.
    /// progress
    ///     Called with the bytes read so far and in total; an exception from it stops the
    ///     compaction, and what it has replaced stays so.
    ///
    /// Returns
    /// -------
    /// Compaction
    ///     Counts of what was read and kept.
    ///
    /// Raises
    /// ------
    /// InvalidOptionError
    ///     If the topic is not compacted.
    /// UnsupportedError
    ///     Unless the store is a partition log.
    /// CorruptError
    ///     If a segment is damaged, which is left as it is. All other queues were compacted.
    ///
    /// Examples
    /// --------
    /// >>> options = {"engine": "partitionlog", "cleanup_policy": "compact"}
    /// >>> with forebay.open("state", segment_bytes=4096, **options) as store:
    /// ...     for number in range(1000):
    /// ...         _ = store.send("state", str(number).encode(), key="counter")
    /// ...     done = store.compact("state")
    /// >>> done.messages_read > done.messages_written
    /// True
    #[pyo3(signature = (topic=None, progress=None))]
    fn compact(
        &self,
        py: Python<'_>,
        topic: Option<&str>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Compaction> {
        let done = with_progress(py, progress, |told| self.core().compact(topic, told));
        log::warnings(py, self.core());
        Ok(done?.into())
    }
}
