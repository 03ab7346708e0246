//! All queues of a store, by topic and number.

pub mod queue;
pub mod row;

use crate::engine::{Topic, Topics};
use crate::error::Result;
use crate::sync::RwLock;
use queue::{ConsumeQueue, QueueStore};
use row::QueueRow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// If more queue files than this are mapped, idle ones are unmapped.
const MAPPED_IDLE_MAX: u64 = 8_192;
/// If more than this are mapped, all are unmapped at once: a process may have 65,530 maps.
const MAPPED_MAX: u64 = 24_576;

/// Up to this many queues are synced one by one. More are synced by one sync of the file system,
/// which costs less than a sync of each.
const SYNCED_ALONE_MAX: usize = 64;

/// The queues. A queue is created when its first message is dispatched.
#[derive(Debug)]
pub struct Queues {
    /// State that all queues share.
    pub store: Arc<QueueStore>,
    /// By topic.
    table: RwLock<Vec<QueueRow<Arc<ConsumeQueue>>>>,
}

impl Queues {
    /// No queues yet.
    pub fn new(store: Arc<QueueStore>) -> Queues {
        Queues {
            store,
            table: RwLock::default(),
        }
    }

    /// The queue, if it exists.
    #[inline]
    pub fn get(&self, topic: &Topic, queue: u32) -> Option<Arc<ConsumeQueue>> {
        let table = self.table.read();
        table.get(topic.id as usize)?.get(queue).cloned()
    }

    /// The queue; created if it does not exist.
    pub fn get_or_add(&self, topic: &Topic, queue: u32) -> Arc<ConsumeQueue> {
        if let Some(found) = self.get(topic, queue) {
            return found;
        }
        self.add(
            topic,
            Arc::new(ConsumeQueue::absent(&self.store, &topic.name, queue)),
        )
    }

    /// Adds a queue, unless one of this number exists. Returns the queue in the table.
    pub fn add(&self, topic: &Topic, queue: Arc<ConsumeQueue>) -> Arc<ConsumeQueue> {
        let mut table = self.table.write();
        let row = topic.id as usize;
        if table.len() <= row {
            table.resize_with(row + 1, QueueRow::default);
        }
        let Some(queues) = table.get_mut(row) else {
            unreachable!("just resized")
        };
        Arc::clone(queues.get_or_insert_with(queue.id, || queue))
    }

    /// The existing queues of a topic, by number.
    pub fn of(&self, topic: &Topic) -> Vec<Arc<ConsumeQueue>> {
        let table = self.table.read();
        let row = table.get(topic.id as usize);
        row.into_iter().flat_map(values).cloned().collect()
    }

    /// All queues with their topics.
    pub fn all(&self, topics: &Topics) -> Vec<(Arc<Topic>, Arc<ConsumeQueue>)> {
        let mut found = Vec::new();
        for topic in topics.all() {
            found.extend(
                self.of(&topic)
                    .into_iter()
                    .map(|queue| (Arc::clone(&topic), queue)),
            );
        }
        found
    }

    /// Unmaps all queue files if more are mapped than a process may have. A queue that is used
    /// again maps its file again.
    #[inline]
    pub fn limit_maps(&self) {
        if self.store.mapped.load(Ordering::Relaxed) > MAPPED_MAX {
            for queues in self.table.read().iter() {
                values(queues).for_each(|queue| queue.unmap());
            }
        }
    }

    /// Unmaps queue files that were not used since the last call, if many are mapped.
    pub fn unmap_idle(&self) {
        if self.store.mapped.load(Ordering::Relaxed) > MAPPED_IDLE_MAX {
            for queues in self.table.read().iter() {
                values(queues).for_each(|queue| queue.unmap_idle());
            }
        }
    }

    /// Makes all queues durable.
    pub fn flush(&self) -> Result<()> {
        let queues: Vec<_> = self.table.read().iter().flat_map(values).cloned().collect();
        let behind: Vec<_> = queues
            .into_iter()
            .filter(|queue| queue.is_behind())
            .collect();
        if behind.len() <= SYNCED_ALONE_MAX {
            return behind.iter().try_for_each(|queue| queue.flush().map(drop));
        }
        let taken: Vec<_> = behind
            .iter()
            .filter_map(|queue| Some((queue, queue.take_unflushed()?)))
            .collect();
        let directory = &self.store.directory;
        let synced = self.store.disk.sync_file_system(directory);
        synced.inspect_err(|_| taken.iter().for_each(|(queue, it)| queue.give_back(*it)))?;
        for (queue, unflushed) in taken {
            queue.set_flushed(unflushed.max);
        }
        Ok(())
    }
}

fn values(row: &QueueRow<Arc<ConsumeQueue>>) -> impl Iterator<Item = &Arc<ConsumeQueue>> {
    row.iter().map(|(_, queue)| queue)
}
