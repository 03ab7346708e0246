//! A store under test, with short helpers.

use crate::world::Place;
use forebay::{Draft, Durability, EngineKind, Filter, Options, ReadBatch, Result, Sent, Store};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An engine under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each line of `each_engine!` names one")]
pub(crate) enum Kind {
    Memory,
    CommitLog,
}

/// A store in its own directory.
pub(crate) struct Bed {
    pub(crate) kind: Kind,
    pub(crate) store: Store,
    options: Options,
    dir: Option<Place>,
}

/// Files so small that a few dozen messages fill them.
pub(crate) fn small_options() -> Options {
    Options {
        commitlog_file_size: Some(64 << 10),
        queue_file_entries: Some(64),
        index_slots: Some(16),
        index_entries: Some(128),
        default_queues: Some(4),
        max_message_size: Some(16 << 10),
        store_host: Some("10.1.2.3:10911".parse().unwrap()),
        // On a busy machine the holder of the append lock may be off its CPU for long.
        busy_timeout: Duration::from_mins(1),
        ..Options::default()
    }
}

impl Bed {
    pub(crate) fn new(kind: Kind) -> Bed {
        Bed::with_options(kind, small_options())
    }

    pub(crate) fn with_options(kind: Kind, options: Options) -> Bed {
        Bed::at(Place::new(), kind, options)
    }

    fn at(place: Place, kind: Kind, mut options: Options) -> Bed {
        let dir = match kind {
            Kind::Memory => None,
            Kind::CommitLog => Some(place),
        };
        options.engine = Some(match kind {
            Kind::Memory => EngineKind::Memory,
            Kind::CommitLog => EngineKind::CommitLog,
        });
        let store = Store::open(path(dir.as_ref()), options.clone()).unwrap();
        Bed {
            kind,
            store,
            options,
            dir,
        }
    }

    /// A second bed of the same engine with other options. Some tests create many.
    pub(crate) fn another(&self, change: impl FnOnce(&mut Options)) -> Bed {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut options = small_options();
        change(&mut options);
        let place = Place::nth(COUNT.fetch_add(1, Ordering::Relaxed));
        Bed::at(place, self.kind, options)
    }

    /// Whether the engine keeps its messages across close.
    pub(crate) fn persists(&self) -> bool {
        self.dir.is_some()
    }

    /// Closes and reopens the store, if the engine keeps its messages.
    pub(crate) fn reopen(&mut self) {
        if self.persists() {
            self.store.close().unwrap();
            self.store = Store::open(path(self.dir.as_ref()), self.options.clone()).unwrap();
        }
    }

    /// Sends to `topic`, creating it if it is missing.
    pub(crate) fn try_send(&self, topic: &str, draft: &Draft<'_>) -> Result<Sent> {
        let producer = self.store.producer(topic, None)?;
        producer.send(draft, 0, Durability::Default)
    }

    pub(crate) fn send(&self, topic: &str, draft: &Draft<'_>) -> Sent {
        self.try_send(topic, draft).unwrap()
    }

    /// Sends bodies `0`, `1`, ... to a queue.
    pub(crate) fn fill(&self, topic: &str, queue: u32, count: usize) {
        for number in 0..count {
            self.send(topic, &to_queue(queue, number.to_string().as_bytes()));
        }
    }

    /// Reads up to 32 messages without a filter.
    pub(crate) fn read(&self, topic: &str, queue: u32, offset: i64) -> ReadBatch {
        let all = Filter::default();
        self.store
            .read(topic, queue, offset, 32, None, &all)
            .unwrap()
    }

    /// All bodies of a queue, read in as many steps as needed.
    pub(crate) fn bodies(&self, topic: &str, queue: u32) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        let mut offset = 0;
        loop {
            let batch = self.read(topic, queue, offset);
            if batch.messages.is_empty() {
                return bodies;
            }
            bodies.extend(bodies_of(&batch));
            offset = batch.next_offset as i64;
        }
    }
}

fn path(dir: Option<&Place>) -> PathBuf {
    dir.map_or_else(|| PathBuf::from(":memory:"), |dir| dir.root())
}

pub(crate) fn bodies_of(batch: &ReadBatch) -> Vec<Vec<u8>> {
    let bodies = batch.messages.iter();
    bodies.map(|m| m.body().unwrap().into_owned()).collect()
}

pub(crate) fn to_queue(queue: u32, body: &[u8]) -> Draft<'_> {
    Draft {
        body,
        queue: Some(queue),
        ..Draft::default()
    }
}

pub(crate) fn body(body: &[u8]) -> Draft<'_> {
    Draft {
        body,
        ..Draft::default()
    }
}

pub(crate) fn with_tags(tags: &[&str]) -> Filter {
    Filter {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        key: None,
    }
}

pub(crate) fn with_key(key: &str) -> Filter {
    Filter {
        tags: Vec::new(),
        key: Some(key.into()),
    }
}
