//! Topics as all engines know them: name, number, permissions and queue counts.

use crate::error::Error;
use crate::num::short;
use crate::options::TOPIC_QUEUES_MAX;
use crate::options::delay_levels::DELAY_LEVELS_MS;
use crate::record::common::check::OWN_TOPIC_PREFIX;
use crate::record::names;
use crate::sync::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Permission to read, in [`Topic::permissions`].
pub const PERMISSION_READ: u32 = 4;
/// Permission to write.
pub const PERMISSION_WRITE: u32 = 2;

const SCHEDULE_QUEUES: u32 = 18;
const _: () = assert!(SCHEDULE_QUEUES as usize == DELAY_LEVELS_MS.len());

/// Number of queues of a topic that nobody created explicitly: `default`, except that RocketMQ's
/// topic of delayed messages has one per delay level, and the store's own topics have one.
pub fn initial_queues(name: &str, default: u32) -> u32 {
    match name {
        names::SCHEDULE_TOPIC => SCHEDULE_QUEUES,
        _ if name.starts_with(OWN_TOPIC_PREFIX) => 1,
        _ => default,
    }
}

/// A topic. A handle stays valid as long as the store is open.
#[derive(Debug)]
pub struct Topic {
    /// Number of the topic in its store, from 0 in order of discovery. Not kept on disk.
    pub id: u32,
    /// The name.
    pub name: Box<str>,
    write_queues: AtomicU32,
    read_queues: AtomicU32,
    permissions: AtomicU32,
    turn: AtomicU32,
}

impl Topic {
    fn new(id: usize, name: &str, queues: u32) -> Topic {
        let queues = queues.min(TOPIC_QUEUES_MAX);
        Topic {
            id: short(id),
            name: name.into(),
            write_queues: AtomicU32::new(queues),
            read_queues: AtomicU32::new(queues),
            permissions: AtomicU32::new(PERMISSION_READ | PERMISSION_WRITE),
            turn: AtomicU32::new(0),
        }
    }

    /// Messages are sent to the queues below this number.
    #[inline]
    pub fn write_queues(&self) -> u32 {
        self.write_queues.load(Ordering::Relaxed)
    }

    /// The error for a queue that the topic does not have.
    pub fn unknown_queue(&self, queue: u32) -> Error {
        Error::UnknownQueue {
            topic: self.name.to_string(),
            queue,
            queues: self.write_queues(),
        }
    }

    /// Consumers read the queues below this number.
    pub fn read_queues(&self) -> u32 {
        self.read_queues.load(Ordering::Relaxed)
    }

    /// [`PERMISSION_READ`] and [`PERMISSION_WRITE`], or'ed.
    #[inline]
    pub fn permissions(&self) -> u32 {
        self.permissions.load(Ordering::Relaxed)
    }

    /// Changes the settings of the topic. Queue counts are capped at [`TOPIC_QUEUES_MAX`].
    pub fn configure(&self, write_queues: u32, read_queues: u32, permissions: u32) {
        let bounded = |queues: u32| queues.min(TOPIC_QUEUES_MAX);
        self.write_queues
            .store(bounded(write_queues), Ordering::Relaxed);
        self.read_queues
            .store(bounded(read_queues), Ordering::Relaxed);
        self.permissions.store(permissions, Ordering::Relaxed);
    }

    /// The next queue, round robin.
    #[inline]
    pub fn next_queue(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.write_queues().max(1)
    }
}

/// All topics of a store, by name and by number.
#[derive(Debug, Default)]
pub struct Topics {
    tables: RwLock<Tables>,
    /// Held while a topic is added.
    adding: Mutex<()>,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<Box<str>, Arc<Topic>, foldhash::fast::RandomState>,
    by_id: Vec<Arc<Topic>>,
}

impl Topics {
    /// The topic of this name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<Arc<Topic>> {
        self.tables.read().by_name.get(name).cloned()
    }

    /// The topic of this number.
    pub fn by_id(&self, id: u32) -> Option<Arc<Topic>> {
        self.tables.read().by_id.get(id as usize).cloned()
    }

    /// All topics, in order of discovery.
    pub fn all(&self) -> Vec<Arc<Topic>> {
        self.tables.read().by_id.clone()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tables.read().by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The topic of this name, and whether it was added. A missing topic is added with `queues`
    /// queues.
    pub fn get_or_add(&self, name: &str, queues: u32) -> (Arc<Topic>, bool) {
        if let Some(topic) = self.get(name) {
            return (topic, false);
        }
        let _adding = self.adding.lock();
        if let Some(topic) = self.get(name) {
            return (topic, false);
        }
        let topic = Arc::new(Topic::new(self.len(), name, queues));
        self.show(&topic);
        (topic, true)
    }

    /// The topic of this name, with at least `queues` queues. `fill` adds what its engine keeps for
    /// each of them: nobody finds the topic, or the queues that it lacked, before that is done.
    /// `fill` must not add a topic.
    pub fn get_or_fill(
        &self,
        name: &str,
        queues: u32,
        fill: impl FnOnce(&Arc<Topic>),
    ) -> Arc<Topic> {
        let _adding = self.adding.lock();
        let known = self.get(name);
        let topic = known
            .clone()
            .unwrap_or_else(|| Arc::new(Topic::new(self.len(), name, queues)));
        fill(&topic);
        if known.is_none() {
            self.show(&topic);
        } else if topic.write_queues() < queues {
            topic.configure(queues, queues, topic.permissions());
        }
        topic
    }

    fn show(&self, topic: &Arc<Topic>) {
        let mut tables = self.tables.write();
        tables.by_id.push(Arc::clone(topic));
        tables.by_name.insert(topic.name.clone(), Arc::clone(topic));
    }
}
