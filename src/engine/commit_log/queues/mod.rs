//! All queues of a store, by topic and number.
//!
//! A store that was closed properly opens without reading the files of its queues: it knows their
//! offsets from the last full pass. A queue is opened, and checked against the log, when it is
//! first used.

pub mod queue;
pub mod table;

use crate::engine::{Topic, Topics};
use crate::error::Result;
use crate::sync::RwLock;
use queue::{ConsumeQueue, QueueStore};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use table::{QueueTable, Value};

/// If more queue files than this are mapped, idle ones are unmapped.
const MAPPED_IDLE_MAX: u64 = 8_192;
/// If more than this are mapped, all are unmapped at once: a process may have 65,530 maps.
const MAPPED_MAX: u64 = 24_576;

/// Up to this many queues are synced one by one. More are synced by one sync of the file system,
/// which costs less than a sync of each.
const SYNCED_ALONE_MAX: usize = 64;

/// A place of the table.
#[derive(Debug, Default)]
enum Entry {
    /// There is no such queue.
    #[default]
    Absent,
    /// A queue whose files were not read yet, and its offsets when the store was closed.
    Closed(Range<u64>),
    /// A queue.
    Open(Arc<ConsumeQueue>),
}

impl Value for Entry {
    fn is_there(&self) -> bool {
        !matches!(self, Entry::Absent)
    }
}

impl Entry {
    fn open(&self) -> Option<&Arc<ConsumeQueue>> {
        match self {
            Entry::Open(queue) => Some(queue),
            _ => None,
        }
    }
}

/// Opens the queues of a store that was closed properly, when they are first used.
pub trait Opener: Debug + Send + Sync {
    /// Reads the files of a queue, checks them against the log and adds the queue to `queues`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if a file cannot be read. The queue then stays closed.
    fn open(&self, queues: &Queues, topic: &Topic, queue: u32) -> Result<Arc<ConsumeQueue>>;
}

/// The queues. A queue is created when its first message is dispatched.
#[derive(Debug)]
pub struct Queues {
    /// State that all queues share.
    pub store: Arc<QueueStore>,
    table: RwLock<QueueTable<Entry>>,
    /// Opens queues on first use; `None` if all were opened with the store.
    opener: OnceLock<Arc<dyn Opener>>,
}

impl Queues {
    /// A table without queues.
    pub fn new(store: Arc<QueueStore>) -> Queues {
        Queues {
            store,
            table: RwLock::default(),
            opener: OnceLock::new(),
        }
    }

    /// Sets the opener that opens queues on first use.
    pub fn open_with(&self, opener: Arc<dyn Opener>) {
        let _ = self.opener.set(opener);
    }

    /// The queue, if it exists.
    ///
    /// # Errors
    ///
    /// Those of [`Opener::open`], if this is its first use.
    #[inline]
    pub fn get(&self, topic: &Topic, queue: u32) -> Result<Option<Arc<ConsumeQueue>>> {
        match self.table.read().get(topic.id, queue) {
            Some(Entry::Open(queue)) => return Ok(Some(Arc::clone(queue))),
            Some(Entry::Closed(_)) => {}
            _ => return Ok(None),
        }
        self.get_or_add(topic, queue).map(Some)
    }

    /// The queue; created if it does not exist. Errors as [`Queues::get`].
    pub fn get_or_add(&self, topic: &Topic, queue: u32) -> Result<Arc<ConsumeQueue>> {
        if let Some(found) = self.opened(topic, queue) {
            return Ok(found);
        }
        if let Some(opener) = self.opener.get() {
            return opener.open(self, topic, queue);
        }
        let absent = ConsumeQueue::absent(&self.store, &topic.name, queue);
        Ok(self.add(topic, Arc::new(absent)))
    }

    /// Adds a queue, unless one of this number is open. Returns the queue that is then in the
    /// table.
    pub fn add(&self, topic: &Topic, queue: Arc<ConsumeQueue>) -> Arc<ConsumeQueue> {
        let mut table = self.table.write();
        let place = table.place(topic.id, queue.id);
        if let Entry::Open(there) = place {
            return Arc::clone(there);
        }
        *place = Entry::Open(Arc::clone(&queue));
        queue
    }

    /// Adds a queue whose files are read on first use, and that had these offsets when the store
    /// was closed.
    pub fn add_closed(&self, topic: &Topic, queue: u32, offsets: Range<u64>) {
        let mut table = self.table.write();
        *table.place(topic.id, queue) = Entry::Closed(offsets);
    }

    /// Whether the queue exists, open or not.
    pub fn has(&self, topic: &Topic, queue: u32) -> bool {
        let table = self.table.read();
        table.get(topic.id, queue).is_some_and(Value::is_there)
    }

    /// The queue, if it is open.
    pub fn opened(&self, topic: &Topic, queue: u32) -> Option<Arc<ConsumeQueue>> {
        let table = self.table.read();
        table.get(topic.id, queue)?.open().cloned()
    }

    /// The queues that are not open, with the offsets that they had when the store was closed.
    pub fn closed(&self, topics: &Topics) -> Vec<(Arc<Topic>, u32, Range<u64>)> {
        let table = self.table.read();
        let mut found = Vec::new();
        for topic in topics.all() {
            for (queue, entry) in table.of(topic.id) {
                if let Entry::Closed(offsets) = entry {
                    found.push((Arc::clone(&topic), queue, offsets.clone()));
                }
            }
        }
        found
    }

    /// The offsets that a queue had when the store was closed, if it is not open.
    pub fn closed_offsets(&self, topic: &Topic, queue: u32) -> Option<Range<u64>> {
        match self.table.read().get(topic.id, queue)? {
            Entry::Closed(offsets) => Some(offsets.clone()),
            _ => None,
        }
    }

    /// The numbers of the existing queues of a topic, in order.
    pub fn ids(&self, topic: &Topic) -> Vec<u32> {
        let table = self.table.read();
        table.of(topic.id).map(|(queue, _)| queue).collect()
    }

    /// The existing queues of a topic, by number. Errors as [`Queues::get`].
    pub fn of(&self, topic: &Topic) -> Result<Vec<Arc<ConsumeQueue>>> {
        let mut found = Vec::new();
        for queue in self.ids(topic) {
            found.push(self.get_or_add(topic, queue)?);
        }
        Ok(found)
    }

    /// All queues with their topics. Errors as [`Queues::get`].
    pub fn all(&self, topics: &Topics) -> Result<Vec<(Arc<Topic>, Arc<ConsumeQueue>)>> {
        let mut found = Vec::new();
        for topic in topics.all() {
            for queue in self.of(&topic)? {
                found.push((Arc::clone(&topic), queue));
            }
        }
        Ok(found)
    }

    /// The queues that are open, with their topics.
    pub fn all_opened(&self, topics: &Topics) -> Vec<(Arc<Topic>, Arc<ConsumeQueue>)> {
        let table = self.table.read();
        let mut found = Vec::new();
        for topic in topics.all() {
            let open = table.of(topic.id).filter_map(|(_, entry)| entry.open());
            found.extend(open.map(|queue| (Arc::clone(&topic), Arc::clone(queue))));
        }
        found
    }

    /// Topic, number and offsets of all queues. Those of a queue that is not open are the ones that
    /// it had when the store was closed.
    pub fn offsets(&self, topics: &Topics) -> Vec<(Arc<Topic>, u32, Range<u64>)> {
        let table = self.table.read();
        let mut found = Vec::new();
        for topic in topics.all() {
            for (queue, entry) in table.of(topic.id) {
                let offsets = match entry {
                    Entry::Open(queue) => queue.min()..queue.max(),
                    Entry::Closed(offsets) => offsets.clone(),
                    Entry::Absent => continue,
                };
                found.push((Arc::clone(&topic), queue, offsets));
            }
        }
        found
    }

    /// Unmaps all queue files if more than `MAPPED_MAX` are mapped. A queue that is used again maps
    /// its file again.
    #[inline]
    pub fn limit_maps(&self) {
        if self.store.mapped.load(Ordering::Relaxed) > MAPPED_MAX {
            let table = self.table.read();
            let open = table.values().filter_map(Entry::open);
            open.for_each(|queue| queue.unmap());
        }
    }

    /// Unmaps queue files that were not used since the last call, if many are mapped.
    pub fn unmap_idle(&self) {
        if self.store.mapped.load(Ordering::Relaxed) > MAPPED_IDLE_MAX {
            let table = self.table.read();
            let open = table.values().filter_map(Entry::open);
            open.for_each(|queue| queue.unmap_idle());
        }
    }

    /// Makes all queues durable.
    pub fn flush(&self) -> Result<()> {
        let table = self.table.read();
        let open = table.values().filter_map(Entry::open);
        let unflushed: Vec<_> = open.filter(|queue| queue.is_behind()).cloned().collect();
        drop(table);
        if unflushed.len() <= SYNCED_ALONE_MAX {
            return unflushed
                .iter()
                .try_for_each(|queue| queue.flush().map(drop));
        }
        let taken: Vec<_> = unflushed
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
