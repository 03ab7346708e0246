//! The request API, the same for every engine.

mod archived;
mod delete;
mod engine_options;
mod opened;
mod path;
mod read;

#[cfg(test)]
pub(crate) use opened::Filed;
pub(crate) use opened::Opened;
pub use read::{ReadBatch, ReadStatus};

use crate::bound::Bound;
use crate::claims::Claims;
use crate::clock::Clock;
use crate::consumer::{Anchor, Consumer, ConsumerOptions, GroupQueue, Waiting};
use crate::engine::commit_log::CommitLog;
use crate::engine::directory::names;
use crate::engine::memory::Memory;
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::hold::Hold;
use crate::engine::{
    Compacted, Damage, Durability, Engine, Files, Point, QueueLogs, Recovery, Repair, Stats, Topic,
    Verification,
};
use crate::error::{At, Error, Op, Result};
use crate::handle::{Again, Handle, Reopen};
use crate::machine::Machine;
use crate::meter::Meters;
use crate::options::{EngineKind, Mode, Options, TOPIC_QUEUES_MAX};
use crate::producer::Producer;
use crate::record::{Contents, Message};
use crate::stages::intake::Intake;
use crate::stages::marker;
use crate::table::TablePlace;
use crate::warning::Warning;
use path::{check_path, is_partition_log};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
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
    /// Messages, delays, time-outs of deliveries and retention go by it; the intervals of flushes
    /// and the time-outs of calls do not.
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

    /// A producer for `topic` that owns a queue: no other producer made by this function sends to
    /// it. `name` gets the same queue again, also after a restart, and an earlier producer of this
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

    /// A consumer of `topics` in `group`; see [`Consumer`]. Missing topics are created.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::InvalidTopic`]; [`Error::ReadOnly`] if the store is not
    /// open for writing; [`Error::Corrupt`] if the table of offsets cannot be read; errors of
    /// reading.
    pub fn consumer(
        &self,
        topics: &[&str],
        group: &str,
        options: ConsumerOptions,
    ) -> Result<Consumer> {
        self.consumers()?.consumer(topics, group, options)
    }

    /// The consumers of this process. A child of the process that opened a shared store has its
    /// own.
    fn consumers(&self) -> Result<&Arc<Anchor>> {
        match self.is_forked() {
            false => Ok(&self.consumers),
            true => Ok(&self.above()?.consumers),
        }
    }

    /// Delivers what fell due when the clock of [`Store::open_with_clock`] was moved.
    ///
    /// # Errors
    ///
    /// Those of sending and of storing progress; [`Error::Closed`], [`Error::Forked`].
    pub fn clock_moved(&self) -> Result<()> {
        self.engine()?;
        self.consumers()?.clock_moved()
    }

    /// A number that grows when consumers have reason to look for messages that are not new: one
    /// was refused, or came back, or a queue has another owner. Threads in
    /// [`Engine::wait_until`] are woken then.
    pub fn changes(&self) -> u64 {
        self.consumers().map_or(0, |consumers| consumers.changes())
    }

    /// The time of the store's clock, in ms since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// The position from which retention must keep the log for groups of consumers.
    #[cfg(test)]
    pub(crate) fn keep_from(&self) -> Result<u64> {
        self.consumers.keep_from()
    }

    /// What retention does before it deletes the log below `until`.
    #[cfg(test)]
    pub(crate) fn let_go(&self, until: u64) -> Result<bool> {
        self.consumers.let_go(until)
    }

    /// The progress of each group in each queue.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the table of offsets cannot be read; errors of reading.
    pub fn groups(&self) -> Result<Vec<GroupQueue>> {
        self.groups_while(&mut || true)
    }

    /// As [`Store::groups`]. Calls `go_on` after every few thousand messages that are not consumed;
    /// once it returns false, the rest is left out.
    ///
    /// # Errors
    ///
    /// As [`Store::groups`].
    pub fn groups_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<GroupQueue>> {
        self.consumers()?.groups(go_on)
    }

    /// Sets the progress of `group` in `topic`. Durable on return. Consumers of this process
    /// continue there, and their current deliveries become invalid.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`];
    /// [`Error::ReadOnly`]; [`Error::Corrupt`] if the table of offsets cannot be read.
    pub fn reset_offsets(&self, group: &str, topic: &str, to: &Bound) -> Result<()> {
        self.consumers()?.reset_offsets(group, topic, to)
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

    /// Takes up what other processes have staged and committed; see [`crate::commit`]. Durable on
    /// return. Of the processes that share a store, the one that leads does it, and the others wait
    /// for it.
    ///
    /// # Errors
    ///
    /// Those of sending; [`Error::Busy`] if another process leads, and does not do it within 30 s.
    pub fn take_commits(&self) -> Result<()> {
        self.writer()?;
        let Some(intake) = self.intake()? else {
            return Ok(());
        };
        let joint = self.shared.current()?.joint();
        match joint.filter(|joint| !joint.leads()) {
            Some(joint) => intake.step_elsewhere(&|| joint.leads()),
            None => intake.step(),
        }
    }

    /// The intake of this process.
    fn intake(&self) -> Result<Option<&Arc<Intake>>> {
        if !self.is_forked() {
            return Ok(self.intake.as_ref());
        }
        Ok(self.above()?.intake.as_ref())
    }

    /// What a child of the process that opened the store has opened for itself.
    fn above(&self) -> Result<&Above> {
        self.shared.current()?;
        let again = self.shared.opened_again();
        let above = again.and_then(|it| it.above.downcast_ref::<Above>());
        above.ok_or(Error::Forked)
    }

    /// Whether the durable log holds all of a batch of a query with these contents. Only then is a
    /// commit done: a missing manifest may also mean that it was withdrawn, or lost with the power.
    /// `skips`: the batch with other rows, or a higher batch, counts too.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn holds_commit(
        &self,
        batch: (&str, u64),
        contents: Contents,
        skips: bool,
    ) -> Result<bool> {
        marker::holds(self.engine()?, batch, contents, skips)
    }

    /// The body of a query's last marker, which says what batch the log holds last and how much of
    /// it.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn last_marker(&self, query: &str) -> Result<Option<String>> {
        let engine = self.engine()?;
        engine.refresh(Some(marker::TOPIC))?;
        let found = marker::last(engine, query, true)?;
        Ok(found.map(|(marker, _)| marker.body()))
    }

    /// The message at a queue offset.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`] with the
    /// bounds, [`Error::Corrupt`] if the message is lost.
    pub fn get(&self, topic: &str, queue: u32, offset: i64) -> Result<Message> {
        let engine = self.engine()?;
        let topic = self.topic(topic)?;
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            return Err(topic.unknown_queue(queue));
        };
        let message = engine.get_within(&topic, queue, offset, bounds)?;
        self.count_read(1);
        Ok(message)
    }

    /// The message whose record begins at `position`.
    pub fn message_at(&self, position: u64) -> Result<Message> {
        let message = self.engine()?.message_at(position)?;
        self.count_read(1);
        Ok(message)
    }

    /// The message with this id: 32 or 56 hex digits; in a partition log `topic-queue@offset`.
    pub fn message_by_id(&self, id: &str) -> Result<Message> {
        let message = self.engine()?.message_with_id(id)?;
        self.count_read(1);
        Ok(message)
    }

    /// Messages of a topic with exactly this key, stored in `begin..=end` (ms), newest first. Of a
    /// partition log, whose records are copied, those of the newest 64 MiB, but at least one.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        begin: i64,
        end: i64,
        max_messages: usize,
    ) -> Result<Vec<Message>> {
        self.query_while((topic, key), begin..=end, max_messages, &mut || true)
    }

    /// Counts messages that were read.
    pub(crate) fn count_read(&self, messages: usize) {
        self.shared.meters.gets.read(messages);
    }

    /// Offset of the first message of a queue stored at or after `time_ms`.
    ///
    /// Before the first message, the first offset; after the last message, the next offset to be
    /// written.
    pub fn offset_at(&self, topic: &str, queue: u32, time_ms: i64) -> Result<u64> {
        let topic = self.topic(topic)?;
        let engine = self.engine()?;
        match engine.bounds(&topic, queue)? {
            Some(_) => engine.offset_at(&topic, queue, Point::Time(time_ms)),
            None => Err(topic.unknown_queue(queue)),
        }
    }

    /// Checks the whole store; see [`Engine::verify`].
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        self.engine()?.verify(progress)
    }

    /// Drops messages that have a later one with the same key; see [`QueueLogs::compact`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the engine keeps a log for each queue;
    /// [`Error::UnknownTopic`], [`Error::ReadOnly`], [`Error::Closed`], [`Error::Forked`]; errors
    /// of the disk.
    pub fn compact(
        &self,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        self.queue_logs("compaction")?.compact(topic, progress)
    }

    /// Saves damaged bytes in the directory `damaged`, and repairs what it can; see [`Repair`].
    ///
    /// Fills holes of the log, so that RocketMQ can also read past them. Rebuilds queues, index and
    /// Forebay's tables from the log; another system's tables are left unchanged. Of a partition
    /// log only the saved options are repaired. Messages can be sent and read meanwhile. The
    /// repairs are durable on return; the next repair completes an interrupted one.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], [`Error::Failed`], [`Error::Full`] and [`Error::Io`]. A damaged log
    /// file is rewritten, so the disk needs room for one more.
    pub fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair> {
        let engine = self.writer()?;
        match (engine.files(), engine.queue_logs()) {
            (Some(files), _) => files.repair(progress),
            (None, Some(logs)) => logs.repair(progress),
            // Without files nothing can be repaired: all damage remains.
            (None, None) => Ok(Repair {
                steps: Vec::new(),
                left: engine.verify(progress)?.damage,
            }),
        }
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
    /// Errors of flushing; the store is closed nevertheless. [`Error::Forked`] in a child process,
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

    /// Closes what a child of the process that opened the store has opened for itself.
    fn close_in_child(&self) -> Result<()> {
        if !self.rejoins() {
            return Err(Error::Forked);
        }
        // In the child's memory: the parent's store stays open.
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

/// The claims of a store with its tables at this place.
fn claims_at(place: Option<&TablePlace>) -> Claims {
    let own = |place: &TablePlace| (Arc::clone(&place.disk), place.own(names::PRODUCERS));
    Claims::new(place.map(own))
}

/// Opens an engine, and what runs above it except for consumers. Retention asks `hold`.
fn open_handle(
    machine: &Machine,
    path: &Path,
    mut options: Options,
    hold: Arc<dyn Hold>,
) -> Result<(Handle, Option<Arc<Intake>>, Option<TablePlace>)> {
    let mut place = None;
    let mut services = Vec::new();
    let mut joint = None;
    let (engine, intake): (Arc<dyn Engine>, _) = if check_path(path, options.engine)? {
        let refused = match options.mode {
            Mode::Read => Some(("\"r\"", "a memory store has nothing to read")),
            Mode::Share => Some(("\"share\"", "a memory store belongs to one process")),
            Mode::Append | Mode::Create => None,
        };
        if let Some((mode, reason)) = refused {
            return Err(Error::option("mode", mode, reason));
        }
        let engine = Memory::open(Arc::clone(&machine.clock), &options)?;
        (Arc::from(engine), None)
    } else {
        // Absolute, so that it does not depend on the current directory of the process.
        let root = std::path::absolute(path).at(Op::Find, path)?;
        if options.guard_maps {
            crate::region::guard::install();
        }
        if is_partition_log(machine, &root, &options)? {
            let opened = Opened::<PartitionLog>::open_with(machine, &root, &options, Some(hold))?;
            options = opened.engine.options().clone();
            // Keys are found by scanning.
            options.index = Some(false);
            services = opened.services();
            place = Some(TablePlace::flat(Arc::clone(&machine.disk), root));
            (opened.engine, opened.intake)
        } else {
            let opened = Opened::<CommitLog>::open_with(machine, &root, &options, Some(hold))?;
            options = opened.engine.options().clone();
            services = opened.services();
            joint = opened.engine.joint();
            place = Some(TablePlace::nested(Arc::clone(&machine.disk), root));
            (opened.engine, opened.intake)
        }
    };
    engine_options::check(&*engine, &options)?;
    let meters = Meters::new(&engine.report().warnings, Arc::clone(&machine.clock));
    let meters = Arc::new(meters);
    if let Some(files) = engine.files() {
        files.show_meters(&meters);
    }
    let handle = Handle {
        meters,
        engine,
        joint,
        services,
        clock: Arc::clone(&machine.clock),
        path: path.to_path_buf(),
        options,
        closed: AtomicBool::new(false),
        generation: crate::disk::fork_generation(),
        delayed: OnceLock::new(),
        reopen: None,
        again: Default::default(),
    };
    Ok((handle, intake, place))
}

/// What runs above the handle of a child of the process that opened a shared store.
struct Above {
    consumers: Arc<Anchor>,
    intake: Option<Arc<Intake>>,
    claims: Claims,
}

/// How children of this process open a shared store again.
fn reopen(machine: &Machine, path: &Path, options: Options) -> Result<Option<Reopen>> {
    if options.mode != Mode::Share {
        return Ok(None);
    }
    let root = std::path::absolute(path).at(Op::Find, path)?;
    let machine = machine.clone();
    let open = move || {
        let waiting = Arc::new(Waiting::default());
        let hold = Arc::<Waiting>::clone(&waiting);
        let (handle, intake, place) = open_handle(&machine, &root, options.clone(), hold)?;
        let handle = Arc::new(handle);
        let claims = claims_at(place.as_ref());
        let consumers = Anchor::new(Arc::clone(&handle), place, machine.drive)?;
        waiting.set(&consumers);
        let above = Box::new(Above {
            consumers,
            intake,
            claims,
        });
        Ok(Again { above, handle })
    };
    Ok(Some(Box::new(open)))
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
