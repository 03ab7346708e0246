//! The request API, the same for every engine.

mod archived;
mod commits;
mod delete;
mod engine_options;
mod groups;
mod opened;
mod opening;
mod path;
mod read;
mod upkeep;

pub use groups::record_progress;
#[cfg(test)]
pub(crate) use opened::{Filed, Opened};
pub use read::{ReadBatch, ReadStatus};

use crate::claims::Claims;
use crate::clock::Clock;
use crate::consumer::{Anchor, Waiting};
use crate::engine::{Damage, Durability, Engine, Files, QueueLogs, Recovery, Stats, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::options::{EngineKind, Mode, Options, TOPIC_QUEUES_MAX};
use crate::producer::Producer;
use crate::stages::intake::Intake;
use crate::warning::Warning;
use opening::{Above, claims_at, open_handle, reopen};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// An open store. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Handle>,
    /// Takes up commits, if the store has files and is writable.
    intake: Option<Arc<Intake>>,
    consumers: Arc<Anchor>,
    /// Which producers own queues.
    claims: Arc<Claims>,
}

impl Store {
    /// Opens the store at `path`; the path `:memory:` opens the memory engine.
    ///
    /// # Errors
    ///
    /// Depending on [`Mode`] and the files: `NotFound`, `Exists`, `NotAStore`, `Foreign`, `Locked`,
    /// `InvalidOption`, `Unsupported`, `Corrupt`, `Full`, `Io`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store> {
        Store::open_on(&Machine::real(), path.as_ref(), options)
    }

    /// [`Store::open`] with another clock, such as a [`ManualClock`](crate::ManualClock) in tests.
    /// It sets the times of messages, delays, time-outs of deliveries and retention, but not the
    /// intervals of flushes and the time-outs of calls.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_with_clock(
        path: impl AsRef<Path>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Store> {
        let machine = Machine {
            clock,
            ..Machine::real()
        };
        Store::open_on(&machine, path.as_ref(), options)
    }

    /// [`Store::open`] on the given machine.
    pub(crate) fn open_on(machine: &Machine, path: &Path, options: Options) -> Result<Store> {
        options.check()?;
        let given = options.clone();
        crate::disk::watch_forks();
        let waiting = Arc::new(Waiting::default());
        let hold = Arc::<Waiting>::clone(&waiting);
        let (mut shared, intake, place) = open_handle(machine, path, options, hold)?;
        shared.reopen = reopen(machine, path, given)?;
        let shared = Arc::new(shared);
        let claims = Arc::new(claims_at(place.as_ref()));
        let consumers = Anchor::new(Arc::clone(&shared), place, machine.drive)?;
        waiting.set(&consumers);
        Ok(Store {
            shared,
            intake,
            consumers,
            claims,
        })
    }

    /// Path as given.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The options in effect. In a writable store, saved options replace those that were not given.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The engine, if the store is usable.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after close, [`Error::Forked`] in a child of the process that opened it.
    #[inline]
    pub fn engine(&self) -> Result<&dyn Engine> {
        self.shared.engine()
    }

    /// Operations on the files of the engine.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the engine keeps no files; those of [`Store::engine`].
    pub fn files(&self) -> Result<&dyn Files> {
        let engine = self.engine()?;
        engine.files().ok_or_else(|| Error::Unsupported {
            what: match engine.meanings().kind {
                EngineKind::Memory => "archiving a store in memory, or verifying it in parts",
                _ => "verifying Kafka's files in parts",
            }
            .to_owned(),
        })
    }

    /// The engine, if it is writable.
    #[inline]
    fn writer(&self) -> Result<&dyn Engine> {
        self.shared.writer()
    }

    /// Operations on single queues, if the engine is writable. `what` is named in the error.
    fn queue_logs(&self, what: &str) -> Result<&dyn QueueLogs> {
        let engine = self.writer()?;
        engine.queue_logs().ok_or_else(|| Error::Unsupported {
            what: format!("{what} in the engine {}", engine.meanings().kind.word()),
        })
    }

    /// The topic with this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`] if it does not exist.
    pub fn topic(&self, name: &str) -> Result<Arc<Topic>> {
        let engine = self.engine()?;
        if let Some(topic) = engine.topics().get(name) {
            return Ok(topic);
        }
        engine.refresh(Some(name))?;
        let found = engine.topics().get(name);
        found.ok_or_else(|| Error::UnknownTopic {
            topic: name.to_owned(),
        })
    }

    /// Creates a topic with `queues` queues, or raises the number of an existing topic's queues.
    /// Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if `queues` is not in 1 to [`TOPIC_QUEUES_MAX`], or less than the
    /// topic has: queues are never removed.
    pub fn create_topic(&self, name: &str, queues: u32) -> Result<Arc<Topic>> {
        self.engine()?.meanings().check_topic(name)?;
        if queues == 0 || queues > TOPIC_QUEUES_MAX {
            let rule = format!("be between 1 and {TOPIC_QUEUES_MAX}");
            return Err(Error::must("queues", queues, rule));
        }
        let topic = self
            .writer()?
            .create_topic(name, queues, Durability::Flushed)?;
        let has = topic.write_queues();
        if has > queues {
            let reason = format!("topic {name:?} has {has} queues, which are never removed");
            return Err(Error::option("queues", queues, reason));
        }
        Ok(topic)
    }

    /// Returns the topic. Creates it with [`Options::default_queues`] if it does not exist. Durable
    /// on return.
    pub fn ensure_topic(&self, name: &str) -> Result<Arc<Topic>> {
        let engine = self.writer()?;
        engine.meanings().check_topic(name)?;
        let found = engine.topics().get(name);
        let queues = found.map_or(self.shared.options.default_queues(), |t| t.write_queues());
        engine.create_topic(name, queues, Durability::Flushed)
    }

    /// A producer for `topic`, which is created if it does not exist.
    pub fn producer(&self, topic: &str, queue: Option<u32>) -> Result<Producer> {
        self.engine()?.meanings().check_topic(topic)?;
        let topic = self.writer()?.topic_for_append(topic)?;
        Ok(Producer::new(Arc::clone(&self.shared), topic, queue))
    }

    /// Whether `topic` exists, so that [`Store::producer`] need not create it.
    pub fn sends_to(&self, topic: &str) -> Result<bool> {
        let engine = self.writer()?;
        engine.meanings().check_topic(topic)?;
        Ok(engine.topics().get(topic).is_some())
    }

    /// A producer for `topic` that owns a queue: no other producer made by this function sends to
    /// it. `name` gets the same queue again, even after a restart, and an earlier producer of this
    /// name loses it. Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if every queue has an owner, or for an invalid name;
    /// [`Error::Corrupt`] if the table of owners cannot be read; those of [`Store::producer`].
    pub fn owning_producer(&self, topic: &str, name: &str) -> Result<Producer> {
        let producer = self.producer(topic, None)?;
        let topic = self.topic(topic)?;
        let arbiter = self.consumers()?.arbiter()?;
        let (claims, now) = (self.claims()?, self.now_ms());
        let claim = claims.claim(&topic, name, now, arbiter.as_deref())?;
        Ok(producer.owning(claim))
    }

    /// The claims of this process.
    fn claims(&self) -> Result<&Claims> {
        match self.is_forked() {
            false => Ok(&self.claims),
            true => Ok(&self.above()?.claims),
        }
    }

    /// The time of the store's clock, in ms since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// Makes everything sent before the call durable, and returns the durable position.
    pub fn flush(&self) -> Result<u64> {
        self.flush_while(&mut || true)
    }

    /// As [`Store::flush`]. In a shared store, calls `go_on` every 50 ms while it waits for the
    /// process that flushes; once it returns false, the wait ends.
    ///
    /// # Errors
    ///
    /// As [`Store::flush`].
    pub fn flush_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        self.engine()?.flush(go_on)
    }

    /// Seals the current log file, in a partition log that of each queue, so that archives,
    /// compaction and retention can take it, and makes it durable. Returns the position where the
    /// next file begins, in a partition log the durable position; `None` if nothing was written
    /// since the last file was sealed, or if the store is in memory.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`]; those of sending and of [`Store::flush`].
    pub fn roll(&self) -> Result<Option<u64>> {
        self.roll_while(&mut || true)
    }

    /// As [`Store::roll`], and waits as [`Store::flush_while`].
    ///
    /// # Errors
    ///
    /// As [`Store::roll`].
    pub fn roll_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<u64>> {
        let engine = self.writer()?;
        match (engine.files(), engine.queue_logs()) {
            (Some(files), _) => files.roll_while(go_on),
            (None, Some(logs)) => Ok(logs.roll()?.then(|| engine.durable_position())),
            (None, None) => Ok(None),
        }
    }

    /// The handle that a child of the process that opened the store has opened for itself.
    fn above(&self) -> Result<&Above> {
        self.shared.current()?;
        let again = self.shared.opened_again();
        let above = again.and_then(|it| it.above.downcast_ref::<Above>());
        above.ok_or(Error::Forked)
    }

    /// What opening found and repaired.
    pub fn recovery(&self) -> Recovery {
        let shared = &self.shared;
        shared.opened().unwrap_or(shared).engine.report().recovery()
    }

    /// Known damage.
    pub fn damage(&self) -> Vec<Damage> {
        let shared = &self.shared;
        shared.opened().unwrap_or(shared).engine.report().damage()
    }

    /// Whether [`Store::take_warnings`] would return any.
    #[inline]
    pub fn has_warnings(&self) -> bool {
        self.shared.warnings().any()
    }

    /// Takes the warnings since the last call: damage that calls or streams of this store have
    /// skipped, slow puts and flushes. Also works after a close.
    pub fn take_warnings(&self) -> Vec<Warning> {
        self.shared.warnings().take()
    }

    /// Counters and times since the store was opened. Does not wait for senders or flushes.
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = self.engine()?.stats();
        let shared = self.shared.current()?;
        let now = Instant::now();
        shared.sample_rates(now);
        let (messages, bytes) = (stats.messages_sent, stats.bytes_sent);
        stats.rates = shared.meters.rates.rates(now, messages, bytes);
        stats.puts = shared.meters.puts.read();
        stats.gets = self.shared.meters.gets.counts();
        Ok(stats)
    }

    /// Makes everything durable and closes the files. A second call does nothing.
    ///
    /// # Errors
    ///
    /// Errors of flushing; the store is closed even then. [`Error::Forked`] in a child process,
    /// which changes nothing.
    pub fn close(&self) -> Result<()> {
        if self.is_forked() {
            return self.close_in_child();
        }
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let stored = match self.shared.options.mode {
            Mode::Read => Ok(()),
            _ => self.consumers.close(),
        };
        let closed = self.shared.close();
        closed.and(stored)
    }

    /// Closes the handle that a child of the process that opened the store has opened for itself.
    fn close_in_child(&self) -> Result<()> {
        if !self.rejoins() {
            return Err(Error::Forked);
        }
        // This changes only the child's memory: the parent's store stays open.
        self.shared.closed.store(true, Ordering::Release);
        match self.shared.opened_again() {
            Some(again) if !again.handle.closed.swap(true, Ordering::AcqRel) => {
                let stored = match again.above.downcast_ref::<Above>() {
                    Some(above) => above.consumers.close(),
                    None => Ok(()),
                };
                again.handle.close().and(stored)
            }
            _ => Ok(()),
        }
    }

    /// Whether this is a child of the process that opened the store.
    pub fn is_forked(&self) -> bool {
        self.shared.is_forked()
    }

    /// Whether a child of the process that opened the store can use it: a shared store is opened
    /// again there.
    pub fn rejoins(&self) -> bool {
        self.shared.reopen.is_some()
    }

    /// Whether [`Store::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::engine::Atomicity;
    use crate::record::Draft;

    /// All times that a store gives to messages come from the clock of its machine.
    #[test]
    fn messages_have_the_time_of_the_machines_clock() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("store"), ":memory:".into()] {
            let clock = ManualClock::at(1_000_000_000_000);
            let machine = Machine {
                clock: Arc::<ManualClock>::clone(&clock),
                ..Machine::real()
            };
            let store = Store::open_on(&machine, &path, Options::default()).unwrap();
            let producer = store.producer("orders", Some(0)).unwrap();
            let draft = Draft::default();
            producer.send(&draft, 0, Durability::Default).unwrap();
            clock.advance(5);
            let drafts = [Ok(draft), Ok(draft)].into_iter();
            producer
                .send_batch(drafts, Atomicity::Rows, Durability::Default)
                .unwrap();
            for (offset, passed) in [(0, 0), (1, 5), (2, 5)] {
                let message = store.get("orders", 0, offset).unwrap();
                let record = message.record();
                let times = (record.born_timestamp(), record.store_timestamp());
                assert_eq!(
                    times,
                    (1_000_000_000_000 + passed, 1_000_000_000_000 + passed)
                );
            }
            store.close().unwrap();
        }
    }
}
