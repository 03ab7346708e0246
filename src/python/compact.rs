//! Compaction of a store in Python, and deletion of messages before an offset.

use super::convert::limit;
use super::log;
use super::named;
use super::progress::{interruptible, with_progress};
use super::report::Compaction;
use super::store::Store;
use crate::Keyless;
use pyo3::prelude::*;
use std::collections::BTreeMap;

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
    ///     compaction; segments already replaced stay replaced.
    /// drop_keyless
    ///     Whether messages without a key are dropped, which stand for no state. A topic that was
    ///     not always compacted may have some. If False, a queue that has one is left as it is.
    ///
    /// Returns
    /// -------
    /// Compaction
    ///     Counts of what was read and kept.
    ///
    /// Raises
    /// ------
    /// InvalidOptionError
    ///     If the topic, or every topic, is not compacted. With ``drop_keyless=False``, if a
    ///     message without a key would be dropped; all other queues were compacted.
    /// UnsupportedError
    ///     Unless the store is a partition log.
    /// CorruptError
    ///     If a segment is damaged, also one that an earlier compaction has found. It is left as it
    ///     is, and all other queues were compacted.
    /// StoreFailedError
    ///     If an earlier compaction of a queue failed while it replaced segments: it continues when
    ///     the store is opened again. All other queues were compacted.
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
    #[pyo3(signature = (topic=None, progress=None, *, drop_keyless=true))]
    fn compact(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::topic_or_none)] topic: Option<&str>,
        progress: Option<Py<PyAny>>,
        #[pyo3(from_py_with = named::drop_keyless)] drop_keyless: bool,
    ) -> PyResult<Compaction> {
        let keyless = match drop_keyless {
            true => Keyless::Drop,
            false => Keyless::Refuse,
        };
        let done = with_progress(py, progress, |told| {
            self.core().compact_with(keyless, topic, told)
        });
        log::warnings(py, self.core());
        Ok(done?.into())
    }

    /// Delete the messages of a topic before an offset or a time.
    ///
    /// The queues of a partition log begin there afterwards, as after ``DeleteRecords`` in Kafka.
    /// Segments that hold no other messages are removed. Durable on return. After Ctrl-C the
    /// messages may already be deleted; remaining segments are removed by the next removal, or when
    /// the store is opened again.
    ///
    /// Parameters
    /// ----------
    /// topic
    ///     The topic.
    /// to
    ///     ``"latest"``: all messages; an aware datetime: those before the first one stored at or
    ///     after it; ``{queue: offset}``: those with lower offsets in these queues.
    ///
    /// Returns
    /// -------
    /// dict
    ///     The first offset of each queue that `to` covers. An offset that was already deleted
    ///     changes nothing.
    ///
    /// Raises
    /// ------
    /// UnknownTopicError
    ///     If there is no such topic or queue.
    /// OffsetOutOfRangeError
    ///     If an offset is greater than the next one to be written.
    /// UnsupportedError
    ///     Unless the store is a partition log.
    ///
    /// Examples
    /// --------
    /// >>> with forebay.open("log", engine="partitionlog", default_queues=1) as store:
    /// ...     for number in range(3):
    /// ...         _ = store.send("orders", str(number).encode())
    /// ...     store.delete_before("orders", {0: 2})
    /// ...     store.read("orders", queue=0, offset=2).messages[0].body
    /// {0: 2}
    /// b'2'
    fn delete_before(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<BTreeMap<u32, u64>> {
        let to = limit("to", to)?;
        let starts = interruptible(py, |go_on| {
            self.core().delete_before_while(topic, &to, go_on)
        });
        log::warnings(py, self.core());
        Ok(starts?.into_iter().collect())
    }
}
