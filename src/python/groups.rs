//! Methods of a store in Python for groups of consumers.

use super::consumer::Consumer;
use super::convert::limit;
use super::handle::call_answering;
use super::joining::Wanted;
use super::log;
use super::named;
use super::pickle::plain;
use super::progress::interruptible;
use super::store::Store;
use crate::{Disk, ProgressRow, RealDisk};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

plain!(
    GroupQueue,
    "How far a group has consumed one queue.

Unsettled messages, retries, owner and times are known for groups of this process, and of processes
that share the store; for others they are 0 or None.

Attributes
----------
group, topic, queue
    Which group, and which queue.
committed
    The smallest offset that is not settled.
max_offset
    The next offset to be written to the queue.
lag, lag_bytes
    Messages from ``committed`` to the end of the queue, and the bytes of their records.
lag_seconds
    How long ago the first of them was stored; 0 if there is none.
unsettled
    Messages that are delivered and not settled.
retries
    Messages that were refused, or whose delivery was not settled, since the store was opened.
owner
    Number of the consumer that owns the queue, or None.
owner_pid
    Process id of the owner if the store is shared, or None.
owned_timestamp
    When the owner got the queue, in milliseconds since the epoch, or None.
progress_timestamp
    When ``committed`` last moved, or None.",
    {
        /// The group.
        group: String,
        /// The topic.
        topic: String,
        /// The queue.
        queue: u32,
        /// The smallest offset that is not settled.
        committed: u64,
        /// The next offset to be written to the queue.
        max_offset: u64,
        /// Messages from ``committed`` to the end of the queue.
        lag: u64,
        /// Bytes of the messages from ``committed`` to the end of the queue.
        lag_bytes: u64,
        /// How long ago the first of them was stored; 0 if there is none.
        lag_seconds: f64,
        /// Messages that are delivered and not settled.
        unsettled: u64,
        /// Messages that were refused, or whose delivery was not settled, since the store was
        /// opened.
        retries: u64,
        /// Number of the consumer that owns the queue, or None.
        owner: Option<u64>,
        /// Process id of the owner if the store is shared, or None.
        owner_pid: Option<u32>,
        /// When the owner got the queue, in milliseconds since the epoch, or None.
        owned_timestamp: Option<i64>,
        /// When ``committed`` last moved, or None.
        progress_timestamp: Option<i64>,
    }
);

impl From<crate::GroupQueue> for GroupQueue {
    fn from(core: crate::GroupQueue) -> GroupQueue {
        GroupQueue {
            group: core.group.into(),
            topic: core.topic.into(),
            queue: core.queue,
            committed: core.committed,
            max_offset: core.max_offset,
            lag: core.lag,
            lag_bytes: core.lag_bytes,
            lag_seconds: Duration::from_millis(core.lag_ms).as_secs_f64(),
            unsettled: core.unsettled,
            retries: core.retries,
            owner: core.owner,
            owner_pid: core.owner_pid,
            owned_timestamp: core.owned,
            progress_timestamp: core.moved,
        }
    }
}

/// Set rows of the table of offsets of the store at `path`, for a group that consumes elsewhere.
///
/// ``offsets`` maps (topic, queue) to the next offset. All other rows stay. Durable on return.
#[pyfunction]
pub(crate) fn record_offsets(
    py: Python<'_>,
    path: PathBuf,
    group: &str,
    offsets: BTreeMap<(String, u32), u64>,
) -> PyResult<()> {
    let row = |((topic, queue), offset): ((String, u32), u64)| ProgressRow {
        topic: topic.into(),
        group: group.into(),
        queue,
        offset,
    };
    let rows: Vec<ProgressRow> = offsets.into_iter().map(row).collect();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    // The call may wait for another process that saves progress.
    interruptible(py, |_| crate::record_progress(&disk, &path, &rows))
}

#[pymethods]
impl Store {
    /// Join a group of consumers.
    ///
    /// Parameters
    /// ----------
    /// topics
    ///     A topic or a sequence of topics; those that do not exist are created.
    /// group
    ///     Name of the group. Its consumers share the queues of the topics.
    /// start
    ///     Where a group begins that has no progress in a topic: ``"earliest"`` (default: nothing
    ///     is skipped), ``"latest"``, an aware datetime, a timedelta ago, or
    ///     ``{(topic, queue): offset}``. Stored progress takes precedence.
    /// order
    ///     ``"none"``: a message that fails goes to the group's retry topic, and later messages go
    ///     on. ``"queue"``: it is tried again before anything after it in its queue is delivered.
    /// tags
    ///     Deliver only messages with this tag, or with one of several (``"a || b"``). Others count
    ///     as settled for the group: its consumers that read a topic at the same time must have
    ///     the same tags and order.
    /// ack
    ///     ``"auto"``: iterating acknowledges each message when the next one is taken.
    ///     ``"manual"``: only `Consumer.ack` acknowledges messages.
    /// visibility_timeout
    ///     A message that is not settled within this time is delivered again; seconds or a
    ///     timedelta, at least 1 ms, 15 minutes by default.
    /// max_unsettled
    ///     How many offsets of a queue may be delivered ahead of the smallest one that is not
    ///     settled; 2,000 by default.
    /// retry_in_place
    ///     With ``order="queue"``: attempts at a message before it becomes a dead letter; 16 by
    ///     default.
    /// prefetch
    ///     Messages that an iterator takes at once; 64 by default.
    /// session_timeout
    ///     With ``mode="share"``: how long this process may show no sign of life before other
    ///     processes get its queues; seconds or a timedelta, 10 s by default, at least 1 s. The
    ///     queues of a dead process go to others at once.
    ///
    /// Returns
    /// -------
    /// Consumer
    ///     Use it in a ``with`` statement: closing it gives back messages that are not settled.
    ///
    /// Raises
    /// ------
    /// ReadOnlyError
    ///     If the store is not open for writing.
    /// InvalidOptionError
    ///     If ``config/subscriptionGroup.json`` does not allow the group to consume; if another
    ///     consumer of the group reads a topic with other `tags` or another `order`.
    /// CorruptError
    ///     If ``config/consumerOffset.json`` or ``config/subscriptionGroup.json``, and its backup,
    ///     cannot be read.
    #[pyo3(
        signature = (topics, *, group, start=None, order="none", tags=None, ack="auto",
                     visibility_timeout=None, max_unsettled=None, retry_in_place=None,
                     prefetch=None, session_timeout=None),
        text_signature = "($self, topics, *, group, start='earliest', order='none', tags=None, \
                          ack='auto', visibility_timeout=900, max_unsettled=2000, \
                          retry_in_place=16, prefetch=64, session_timeout=10)"
    )]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn consumer(
        slf: &Bound<'_, Self>,
        topics: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = named::group)] group: &str,
        start: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = named::order)] order: &str,
        tags: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = named::ack)] ack: &str,
        visibility_timeout: Option<&Bound<'_, PyAny>>,
        max_unsettled: Option<&Bound<'_, PyAny>>,
        retry_in_place: Option<&Bound<'_, PyAny>>,
        prefetch: Option<&Bound<'_, PyAny>>,
        session_timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Consumer> {
        let wanted = Wanted {
            topics,
            group,
            start,
            order,
            tags,
            ack,
            visibility_timeout,
            max_unsettled,
            retry_in_place,
            prefetch,
            session_timeout,
        };
        wanted.join(slf)
    }

    /// How far each group has consumed, as a dict from its name to a list of `GroupQueue`.
    ///
    /// Includes the groups of other processes and of a broker, by ``config/consumerOffset.json``;
    /// in a partition log by ``forebay.consumerOffset.json``.
    /// Reads 20 bytes of the queue for each message that is not consumed.
    #[getter]
    fn groups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let groups = PyDict::new(py);
        let found = interruptible(py, |go_on| self.core().groups_while(go_on));
        log::warnings(py, self.core());
        for queue in found? {
            let queue = GroupQueue::from(queue);
            let known = groups.get_item(&queue.group)?;
            let queues = match known {
                Some(known) => known.cast_into::<PyList>()?,
                None => PyList::empty(py),
            };
            groups.set_item(queue.group.clone(), &queues)?;
            queues.append(queue)?;
        }
        Ok(groups)
    }

    /// Set how far a group has consumed a topic; durable on return.
    ///
    /// Consumers of the group continue there. Messages that they hold can no longer be settled.
    ///
    /// Parameters
    /// ----------
    /// group
    ///     Name of the group.
    /// topic
    ///     Name of the topic.
    /// to
    ///     ``"earliest"``, ``"latest"``, an aware datetime, or ``{queue: offset}``, which leaves
    ///     other queues where they are.
    ///
    /// Raises
    /// ------
    /// UnknownTopicError
    ///     If there is no such topic or queue.
    /// OffsetOutOfRangeError
    ///     If a queue does not have the offset.
    fn reset_offsets(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::group)] group: &str,
        #[pyo3(from_py_with = named::topic)] topic: &str,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let to = limit("to", to)?;
        call_answering(py, self.core(), |core| {
            core.reset_offsets(group, topic, &to)
        })
    }
}
