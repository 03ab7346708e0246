//! Creating topics and partitions of a log that is written.

use super::PartitionLog;
use super::partition::Partition;
use super::write::ends::Ends;
use crate::engine::Topic;
use crate::error::Result;
use std::sync::Arc;

impl PartitionLog {
    /// A topic with at least this many queues.
    pub(super) fn topic_with(&self, name: &str, queues: Option<u32>) -> Result<Arc<Topic>> {
        let add = |topic: &Arc<Topic>, queue, ends| self.add(topic, queue, ends);
        self.writer()?.create(&self.topics, name, queues, add)
    }

    pub(super) fn add(&self, topic: &Topic, queue: u32, ends: Arc<Ends>) {
        let partition = Arc::new(Partition::written(&topic.name, queue, ends));
        self.partitions.write().insert((topic.id, queue), partition);
    }
}
