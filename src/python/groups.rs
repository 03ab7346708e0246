//! What a store in Python has for groups of consumers.

use super::consumer::{Consumer, Wanted};
use super::convert::limit;
use super::store::Store;
use crate::{ProgressRow, RealDisk};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How far a group has consumed one queue.
///
/// Attributes
/// ----------
/// group, topic, queue
///     Which group, and which queue.
/// committed
///     The smallest offset that is not settled.
/// lag
///     Messages from there to the end of the queue.
/// unsettled
///     Messages that are delivered and not settled; 0 for groups of other processes.
/// owner
///     Number of the consumer of this process that owns the queue, or None.
#[pyclass(frozen, eq, get_all, module = "forebay")]
#[derive(Clone, PartialEq)]
pub(crate) struct GroupQueue {
    group: String,
    topic: String,
    queue: u32,
    committed: u64,
    lag: u64,
    unsettled: u64,
    owner: Option<u64>,
}

impl From<crate::GroupQueue> for GroupQueue {
    fn from(core: crate::GroupQueue) -> GroupQueue {
        GroupQueue {
            group: core.group.into(),
            topic: core.topic.into(),
            queue: core.queue,
            committed: core.committed,
            lag: core.lag,
            unsettled: core.unsettled,
            owner: core.owner,
        }
    }
}

#[pymethods]
impl GroupQueue {
    fn __repr__(&self) -> String {
        format!(
            "<GroupQueue {:?} of {:?} queue {}: committed {}, lag {}>",
            self.group, self.topic, self.queue, self.committed, self.lag
        )
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
    Ok(py.detach(|| crate::record_progress(&RealDisk, &path.join("config"), &rows))?)
}

#[pymethods]
impl Store {
    /// Join a group of consumers.
    ///
    /// Parameters
    /// ----------
    /// topics
    ///     A topic or a sequence of topics. One that does not exist is created with its first
    ///     message.
    /// group
    ///     Name of the group. Its consumers share the queues of the topics.
    /// start
    ///     Where a group begins that has no progress in a topic: ``"earliest"`` (default: nothing
    ///     is skipped), ``"latest"``, an aware datetime, a timedelta ago, or
    ///     ``{(topic, queue): offset}``. Progress that is stored wins.
    /// order
    ///     ``"none"``: a message that fails goes to the group's retry topic, and later messages go
    ///     on. ``"queue"``: it is tried again before anything after it in its queue is delivered.
    /// tags
    ///     Deliver only messages with this tag, or with one of several (``"a || b"``). Others count
    ///     as settled.
    /// ack
    ///     ``"auto"``: iterating acknowledges each message when the next one is taken.
    ///     ``"manual"``: nothing is acknowledged but by `Consumer.ack`.
    /// visibility_timeout
    ///     A message that is not settled within this time is delivered again; seconds or a
    ///     timedelta, 15 minutes by default.
    /// max_unsettled
    ///     How many offsets of a queue may be delivered ahead of the smallest one that is not
    ///     settled; 2,000 by default.
    /// retry_in_place
    ///     With ``order="queue"``: attempts at a message before it becomes a dead letter; 16 by
    ///     default.
    /// prefetch
    ///     Messages that an iterator takes at once; 64 by default.
    ///
    /// Returns
    /// -------
    /// Consumer
    ///     Use it in a ``with`` statement: closing it gives back what is not settled.
    ///
    /// Raises
    /// ------
    /// ReadOnlyError
    ///     If the store is not open for writing.
    /// CorruptError
    ///     If ``config/consumerOffset.json`` and its backup cannot be read.
    #[pyo3(
        signature = (topics, *, group, start=None, order="none", tags=None, ack="auto",
                     visibility_timeout=None, max_unsettled=None, retry_in_place=None,
                     prefetch=None),
        text_signature = "($self, topics, *, group, start='earliest', order='none', tags=None, \
                          ack='auto', visibility_timeout=900, max_unsettled=2000, \
                          retry_in_place=16, prefetch=64)"
    )]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn consumer(
        slf: &Bound<'_, Self>,
        topics: &Bound<'_, PyAny>,
        group: &str,
        start: Option<&Bound<'_, PyAny>>,
        order: &str,
        tags: Option<&Bound<'_, PyAny>>,
        ack: &str,
        visibility_timeout: Option<&Bound<'_, PyAny>>,
        max_unsettled: Option<&Bound<'_, PyAny>>,
        retry_in_place: Option<&Bound<'_, PyAny>>,
        prefetch: Option<&Bound<'_, PyAny>>,
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
        };
        wanted.join(slf)
    }

    /// How far each group has consumed, as a dict from its name to a list of `GroupQueue`.
    #[getter]
    fn groups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let groups = PyDict::new(py);
        for queue in self.call(py, crate::Store::groups)? {
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
    /// Consumers of the group go on there, and what they hold counts no more.
    ///
    /// Parameters
    /// ----------
    /// group, topic
    ///     Which group, and which topic.
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
        group: &str,
        topic: &str,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let to = limit("to", to)?;
        Ok(self.call(py, |core| core.reset_offsets(group, topic, &to))?)
    }
}
