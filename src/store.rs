//! The request API: one surface over every engine.

use crate::engine::commit_log::CommitLog;
use crate::engine::memory::Memory;
use crate::engine::{
    Appended, Atomicity, Check, Damage, Durability, Engine, Filter, Place, Recovery, Rows, Stats,
    Topic, Verification, topic,
};
use crate::error::{Error, Result};
use crate::options::{EngineKind, Mode, Options};
use crate::record::encode::check_topic;
use crate::record::{Batch, Draft, Message, message, properties};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A batch goes under one lock and one flush up to this many encoded bytes.
pub const BATCH_LEN_MAX: usize = 4 << 20;
/// Most encoded bytes of an atomic batch.
pub const ATOMIC_BATCH_LEN_MAX: usize = 64 << 20;
/// Entries that one filtered read looks at, unless more messages are asked for.
const READ_EXAMINED_MIN: u64 = 800;

/// A store, open. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Box<dyn Engine>,
    path: PathBuf,
    options: Options,
    closed: AtomicBool,
    generation: u32,
}

/// What a read found; see [`Store::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadStatus {
    /// At least one message.
    Found,
    /// Messages were there, none passed the filter.
    NoMatchedMessage,
    /// The topic or the queue does not exist.
    NoMatchedLogicQueue,
    /// The queue has never held a message.
    NoMessageInQueue,
    /// The offset lies before the first message.
    OffsetTooSmall,
    /// The offset is the next to be written.
    OffsetOverflowOne,
    /// The offset lies further behind the end.
    OffsetOverflowBadly,
    /// The entries at the offset lead to no message: fillers, or damage.
    OffsetFoundNull,
    /// The messages at the offset have just been retired.
    MessageWasRemoving,
}

/// Messages of one read, and where to go on.
#[derive(Clone, Debug)]
pub struct ReadBatch {
    /// What was found.
    pub status: ReadStatus,
    /// The messages in offset order.
    pub messages: Vec<Message>,
    /// Where the next read begins.
    pub next_offset: u64,
    /// First offset of the queue.
    pub min_offset: u64,
    /// Next offset to be written.
    pub max_offset: u64,
}

/// Where a message went, as [`Producer::send`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Position, queue and offset.
    pub place: Place,
    /// Store time in ms.
    pub store_timestamp: i64,
    /// Whether the message is durable already.
    pub durable: bool,
}

thread_local! {
    /// The batch of single sends: kept, so that a send does not allocate.
    static SCRATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

/// A scratch batch larger than this is given back after the send that needed it.
const SCRATCH_LEN_MAX: usize = 1 << 20;

/// Milliseconds since the epoch by the wall clock.
#[inline]
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| {
        d.as_secs().cast_signed() * 1000 + i64::from(d.subsec_millis())
    })
}

impl Store {
    /// Opens the store at `path`, or the memory engine where the path is `:memory:`.
    ///
    /// # Errors
    ///
    /// As [`Mode`] and what is on disk have it: `NotFound`, `Exists`, `NotAStore`, `Foreign`,
    /// `Locked`, `InvalidOption`, `Unsupported`, `Corrupt`, `Full`, `Io`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store> {
        let path = path.as_ref();
        options.check()?;
        crate::disk::watch_forks();
        let memory = options.engine == Some(EngineKind::Memory) || path == Path::new(":memory:");
        let engine: Box<dyn Engine> = if memory {
            if options.mode == Mode::Read {
                return Err(Error::option(
                    "mode",
                    "\"r\"",
                    "a memory store has nothing to read",
                ));
            }
            Memory::open(&options)?
        } else {
            CommitLog::open(path, &options)?
        };
        let path = path.to_path_buf();
        let generation = crate::disk::fork_generation();
        let closed = AtomicBool::new(false);
        Ok(Store {
            shared: Arc::new(Shared {
                engine,
                path,
                options,
                closed,
                generation,
            }),
        })
    }

    /// Path as given.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Options as given.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The engine, if the handle may be used.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after close, [`Error::Forked`] in a child of the process that opened it.
    #[inline]
    pub fn engine(&self) -> Result<&dyn Engine> {
        self.shared.engine()
    }

    /// A writable engine.
    #[inline]
    fn writer(&self) -> Result<&dyn Engine> {
        self.shared.writer()
    }

    /// The topic of this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`] where the store has none.
    pub fn topic(&self, name: &str) -> Result<Arc<Topic>> {
        let engine = self.engine()?;
        if let Some(topic) = engine.topics().get(name) {
            return Ok(topic);
        }
        engine.refresh()?;
        let found = engine.topics().get(name);
        found.ok_or_else(|| Error::UnknownTopic {
            topic: name.to_owned(),
        })
    }

    /// Creates a topic with `queues` queues, or gives one that has fewer that many; durable on
    /// return.
    pub fn create_topic(&self, name: &str, queues: u32) -> Result<Arc<Topic>> {
        check_topic(name)?;
        if queues == 0 || queues > 65_536 {
            return Err(Error::option(
                "queues",
                queues,
                "a topic has 1 to 65536 queues",
            ));
        }
        self.writer()?.create_topic(name, queues)
    }

    /// A producer for `topic`, which is created at its first message where it is not there.
    pub fn producer(&self, topic: &str, queue: Option<u32>) -> Result<Producer> {
        check_topic(topic)?;
        let topic = self.writer()?.topic_for_append(topic)?;
        Ok(Producer {
            shared: Arc::clone(&self.shared),
            topic,
            queue,
        })
    }

    /// Makes all that was sent before durable and returns the durable position.
    pub fn flush(&self) -> Result<u64> {
        self.engine()?.flush()
    }

    /// The message at a queue offset.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::UnknownQueue`], [`Error::OffsetOutOfRange`] with the
    /// bounds, [`Error::Corrupt`] where the message is lost.
    pub fn get(&self, topic: &str, queue: u32, offset: i64) -> Result<Message> {
        let engine = self.engine()?;
        let topic = self.topic(topic)?;
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            return Err(unknown_queue(&topic, queue));
        };
        let found = match u64::try_from(offset) {
            Ok(offset) if bounds.contains(&offset) => engine.get(&topic, queue, offset)?,
            _ => None,
        };
        found.ok_or_else(|| Error::OffsetOutOfRange {
            topic: topic.name.to_string(),
            queue,
            offset,
            min: bounds.start,
            max: bounds.end,
        })
    }

    /// Reads up to `max_messages` messages of a queue from `offset` on; at least one where there is
    /// one, however large, and else no more than `max_bytes` of records.
    ///
    /// With a filter, at most `max(800, max_messages)` entries are looked at; `next_offset` says
    /// where to go on.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] where `max_messages` is 0, for no status could tell that read from
    /// one that met nothing.
    pub fn read(
        &self,
        topic: &str,
        queue: u32,
        offset: i64,
        max_messages: usize,
        max_bytes: Option<u64>,
        filter: &Filter,
    ) -> Result<ReadBatch> {
        let engine = self.engine()?;
        if max_messages == 0 {
            let reason = "a read asks for at least one message";
            return Err(Error::option("max_messages", 0, reason));
        }
        let nothing = |status, next_offset, min_offset, max_offset| {
            Ok(ReadBatch {
                status,
                messages: Vec::new(),
                next_offset,
                min_offset,
                max_offset,
            })
        };
        let topic = match self.topic(topic) {
            Ok(topic) => topic,
            Err(Error::UnknownTopic { .. }) => {
                return nothing(ReadStatus::NoMatchedLogicQueue, 0, 0, 0);
            }
            Err(error) => return Err(error),
        };
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            return nothing(ReadStatus::NoMatchedLogicQueue, 0, 0, 0);
        };
        let (min, max) = (bounds.start, bounds.end);
        let start = match start_of_read(offset, min, max) {
            Ok(start) => start,
            Err((status, next_offset)) => return nothing(status, next_offset, min, max),
        };
        let examined = READ_EXAMINED_MIN.max(max_messages as u64);
        let end = if filter.is_empty() {
            max
        } else {
            max.min(start.saturating_add(examined))
        };
        let mut cursor = engine.cursor(&topic, queue, start..end, filter, Check::Full)?;
        let (messages, next_offset) = collect(&mut *cursor, max_messages, max_bytes)?;
        let status = match (messages.is_empty(), filter.is_empty()) {
            (false, _) => ReadStatus::Found,
            (true, false) => ReadStatus::NoMatchedMessage,
            (true, true) => ReadStatus::OffsetFoundNull,
        };
        Ok(ReadBatch {
            status,
            messages,
            next_offset,
            min_offset: min,
            max_offset: max,
        })
    }

    /// The message whose record begins at `position`.
    pub fn message_at(&self, position: u64) -> Result<Message> {
        self.engine()?.message_at(position)
    }

    /// The message of a message id: 32 or 56 hex digits.
    pub fn message_by_id(&self, id: &str) -> Result<Message> {
        self.message_at(message::position_of_id(id)?)
    }

    /// Messages of a topic with exactly this key, stored in `begin..=end` (ms), newest first.
    pub fn query(
        &self,
        topic: &str,
        key: &str,
        begin: i64,
        end: i64,
        max_messages: usize,
    ) -> Result<Vec<Message>> {
        let topic = self.topic(topic)?;
        self.engine()?.query(&topic, key, begin, end, max_messages)
    }

    /// Offset of the first message of a queue stored at or after `time_ms`.
    ///
    /// A time before the first message gives the first offset, one after the last the next to be
    /// written.
    pub fn offset_at(&self, topic: &str, queue: u32, time_ms: i64) -> Result<u64> {
        let topic = self.topic(topic)?;
        let engine = self.engine()?;
        match engine.bounds(&topic, queue)? {
            Some(_) => engine.offset_at(&topic, queue, time_ms),
            None => Err(unknown_queue(&topic, queue)),
        }
    }

    /// Checks the whole store; see [`Engine::verify`].
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        self.engine()?.verify(progress)
    }

    /// What opening found and did.
    pub fn recovery(&self) -> Recovery {
        self.shared.engine.recovery()
    }

    /// Damage found so far.
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.engine.damage()
    }

    /// Counters.
    pub fn stats(&self) -> Result<Stats> {
        Ok(self.engine()?.stats())
    }

    /// Makes everything durable and lets go of the files. A second call does nothing.
    ///
    /// # Errors
    ///
    /// What went wrong while flushing; the store is closed all the same. [`Error::Forked`] in a
    /// child process, where nothing is touched.
    pub fn close(&self) -> Result<()> {
        if self.shared.generation != crate::disk::fork_generation() {
            return Err(Error::Forked);
        }
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.shared.engine.close()
    }

    /// Whether [`Store::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl Shared {
    #[inline]
    fn engine(&self) -> Result<&dyn Engine> {
        if self.generation != crate::disk::fork_generation() {
            return Err(Error::Forked);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(&*self.engine)
    }

    #[inline]
    fn writer(&self) -> Result<&dyn Engine> {
        if self.options.mode == Mode::Read {
            return Err(Error::ReadOnly {
                what: format!("the store {}", self.path.display()),
            });
        }
        self.engine()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Tidying up alone: whoever wants to know of errors calls `close`.
        if self.generation == crate::disk::fork_generation()
            && !self.closed.swap(true, Ordering::AcqRel)
        {
            let _ = self.engine.close();
        }
    }
}

/// Where a read at `offset` of a queue with these bounds begins, or why there is nothing to read
/// and where to go on.
fn start_of_read(offset: i64, min: u64, max: u64) -> Result<u64, (ReadStatus, u64)> {
    match u64::try_from(offset) {
        _ if max == 0 => Err((ReadStatus::NoMessageInQueue, 0)),
        Ok(start) if start > max => Err((ReadStatus::OffsetOverflowBadly, max)),
        Ok(start) if start == max => Err((ReadStatus::OffsetOverflowOne, max)),
        Ok(start) if start >= min => Ok(start),
        _ => Err((ReadStatus::OffsetTooSmall, min)),
    }
}

/// Takes messages from a cursor up to both bounds; returns where to go on.
fn collect(
    cursor: &mut dyn crate::engine::Cursor,
    max_messages: usize,
    max_bytes: Option<u64>,
) -> Result<(Vec<Message>, u64)> {
    let mut rows = Rows::default();
    let mut messages = Vec::new();
    let mut bytes = 0;
    while messages.len() < max_messages {
        rows.clear();
        cursor.next((max_messages - messages.len()).min(1024), &mut rows)?;
        if rows.rows.is_empty() {
            break;
        }
        for row in &rows.rows {
            bytes += u64::from(row.layout.total_len);
            if !messages.is_empty() && max_bytes.is_some_and(|limit| bytes > limit) {
                let next = rows
                    .record(row)
                    .map_or(0, |record| record.queue_offset() as u64);
                return Ok((messages, next));
            }
            messages.extend(rows.message(row));
        }
    }
    Ok((messages, cursor.offset()))
}

fn unknown_queue(topic: &Topic, queue: u32) -> Error {
    Error::UnknownQueue {
        topic: topic.name.to_string(),
        queue,
        queues: topic.write_queues(),
    }
}

/// Sends to one topic: the fast path of a loop. Clones share the store.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
    topic: Arc<Topic>,
    queue: Option<u32>,
}

impl Producer {
    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic.name
    }

    /// Sends one message. With a delay level (1 to 18) it is stored under the schedule topic, for
    /// the system that delivers it when the delay is over.
    pub fn send(&self, draft: &Draft<'_>, delay_level: u8, durability: Durability) -> Result<Sent> {
        let engine = self.shared.writer()?;
        if delay_level > 0 {
            return self.send_delayed(engine, draft, delay_level, durability);
        }
        let queue = self.queue_for(draft, self.queue)?;
        self.append_one(engine, &self.topic, queue, draft, durability)
    }

    #[inline]
    fn append_one(
        &self,
        engine: &dyn Engine,
        topic: &Topic,
        queue: u32,
        draft: &Draft<'_>,
        durability: Durability,
    ) -> Result<Sent> {
        SCRATCH.with_borrow_mut(|batch| {
            batch.clear();
            self.push(engine, batch, topic, queue, draft, now_ms())?;
            let appended = engine.append(topic, batch, Atomicity::Rows, durability)?;
            if batch.capacity() > SCRATCH_LEN_MAX {
                *batch = Batch::new();
            }
            let Some(place) = appended.rows.first().copied() else {
                unreachable!("an append of one row gives one place")
            };
            let store_timestamp = appended.store_timestamp;
            Ok(Sent {
                place,
                store_timestamp,
                durable: appended.durable,
            })
        })
    }

    /// Encodes a row, with a unique id where the store gives one.
    #[inline]
    fn push(
        &self,
        engine: &dyn Engine,
        batch: &mut Batch,
        topic: &Topic,
        queue: u32,
        draft: &Draft<'_>,
        now: i64,
    ) -> Result<()> {
        if !self.shared.options.unique_ids {
            return batch.push(&topic.name, queue, draft, engine.style(), now);
        }
        let id = crate::record::unique_id::next(&engine.style().host, now);
        let mut system = vec![(properties::UNIQ_KEY, id.as_str())];
        system.extend_from_slice(draft.system_properties);
        let draft = Draft {
            system_properties: &system,
            ..*draft
        };
        batch.push(&topic.name, queue, &draft, engine.style(), now)
    }

    fn send_delayed(
        &self,
        engine: &dyn Engine,
        draft: &Draft<'_>,
        delay_level: u8,
        durability: Durability,
    ) -> Result<Sent> {
        let levels = properties::DELAY_LEVELS_MS.len();
        if usize::from(delay_level) > levels {
            let reason = format!("levels go from 1 to {levels}, 0 is no delay");
            return Err(Error::option("delay_level", delay_level, reason));
        }
        let real_queue = self.queue_for(draft, self.queue)?.to_string();
        let level = delay_level.to_string();
        let system = [
            (properties::DELAY, level.as_str()),
            (properties::REAL_TOPIC, &self.topic.name),
            (properties::REAL_QID, real_queue.as_str()),
        ];
        let schedule = engine.topic_for_append(properties::SCHEDULE_TOPIC)?;
        let draft = Draft {
            system_properties: &system,
            ..*draft
        };
        let queue = u32::from(delay_level) - 1;
        self.append_one(engine, &schedule, queue, &draft, durability)
    }

    /// The queue of a message: the one asked for, else by the first key, else the next in turn.
    #[inline]
    fn queue_for(&self, draft: &Draft<'_>, fallback: Option<u32>) -> Result<u32> {
        let queues = self.topic.write_queues();
        if self.topic.permissions() & topic::PERMISSION_WRITE == 0 {
            return Err(Error::ReadOnly {
                what: format!("topic {:?}", self.topic.name),
            });
        }
        match (draft.queue.or(fallback), draft.keys.first()) {
            (Some(queue), _) if queue < queues => Ok(queue),
            (Some(queue), _) => Err(unknown_queue(&self.topic, queue)),
            (None, Some(key)) => {
                let hash = properties::java_hash(key.as_bytes()) as u32 & 0x7FFF_FFFF;
                Ok(hash % queues.max(1))
            }
            (None, None) => Ok(self.topic.next_queue()),
        }
    }

    /// Sends many messages. Rows without queue and key all go to one queue, the next in turn.
    ///
    /// Up to [`BATCH_LEN_MAX`] encoded bytes go under one lock and one flush; a longer batch goes
    /// in such chunks. With [`Atomicity::Whole`] (up to [`ATOMIC_BATCH_LEN_MAX`]) all or nothing is
    /// stored, also across a crash.
    ///
    /// # Errors
    ///
    /// [`Error::Row`] names the row that was refused: nothing of its chunk was appended, the chunks
    /// before it were.
    pub fn send_batch<'a>(
        &self,
        drafts: impl Iterator<Item = Result<Draft<'a>>>,
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended> {
        let mut all = Appended {
            durable: true,
            ..Appended::default()
        };
        let mut add = |part: Option<Appended>| {
            let Some(part) = part else { return };
            all.store_timestamp = part.store_timestamp;
            all.end = part.end;
            all.durable &= part.durable;
            if all.rows.is_empty() {
                all.rows = part.rows;
            } else {
                all.rows.extend_from_slice(&part.rows);
            }
        };
        let mut sender = self.batch_sender(atomicity, durability)?;
        for draft in drafts {
            match draft {
                Ok(draft) => add(sender.push(&draft)?),
                Err(error) => return Err(sender.refuse(error)),
            }
        }
        add(sender.finish()?);
        Ok(all)
    }

    /// Starts a batch whose rows are pushed one by one: [`Producer::send_batch`] for rows that do
    /// not outlive their push.
    pub fn batch_sender(
        &self,
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<BatchSender<'_>> {
        let engine = self.shared.writer()?;
        let turn = self.queue.unwrap_or_else(|| self.topic.next_queue());
        let mut batch = SCRATCH.take();
        batch.clear();
        Ok(BatchSender {
            producer: self,
            engine,
            atomicity,
            durability,
            turn,
            now: now_ms(),
            row: 0,
            batch,
        })
    }

    /// Whether a send would not wait; see [`Engine::is_ready_for`].
    #[inline]
    pub fn is_ready_for(&self, len: usize) -> bool {
        self.shared.engine.is_ready_for(len)
    }

    /// Waits until the readable end of the log is above `position`; see [`Engine::wait_readable`].
    pub fn wait_readable(&self, position: u64, timeout: Duration) -> Result<u64> {
        Ok(self.shared.engine()?.wait_readable(position, timeout))
    }
}

/// A batch in the making; see [`Producer::batch_sender`]. What was pushed and not appended is
/// given up when the sender is dropped.
pub struct BatchSender<'a> {
    producer: &'a Producer,
    engine: &'a dyn Engine,
    atomicity: Atomicity,
    durability: Durability,
    turn: u32,
    now: i64,
    row: usize,
    batch: Batch,
}

impl BatchSender<'_> {
    /// Adds a row, and appends the chunk that is full with it: then the places of its rows are
    /// returned.
    ///
    /// # Errors
    ///
    /// As [`Producer::send_batch`]. After an error the sender is to be dropped.
    #[inline]
    pub fn push(&mut self, draft: &Draft<'_>) -> Result<Option<Appended>> {
        if let Err(error) = self.encode(draft) {
            return Err(self.refuse(error));
        }
        self.row += 1;
        match self.atomicity {
            Atomicity::Rows if self.batch.encoded_len() >= BATCH_LEN_MAX => self.append().map(Some),
            Atomicity::Whole if self.batch.encoded_len() > ATOMIC_BATCH_LEN_MAX => {
                Err(Error::TooLarge {
                    what: "atomic batch, encoded,".to_owned(),
                    size: self.batch.encoded_len() as u64,
                    limit: ATOMIC_BATCH_LEN_MAX as u64,
                })
            }
            _ => Ok(None),
        }
    }

    #[inline]
    fn encode(&mut self, draft: &Draft<'_>) -> Result<()> {
        let producer = self.producer;
        let turn = draft.keys.is_empty().then_some(self.turn);
        let queue = producer.queue_for(draft, turn.or(producer.queue))?;
        let (batch, topic) = (&mut self.batch, &producer.topic);
        producer.push(self.engine, batch, topic, queue, draft, self.now)
    }

    /// The error of the row that comes next, told with its number.
    pub fn refuse(&self, error: Error) -> Error {
        error.in_row(self.row)
    }

    /// Appends what is left; nothing is returned where nothing was.
    pub fn finish(mut self) -> Result<Option<Appended>> {
        if self.batch.rows().is_empty() {
            return Ok(None);
        }
        self.append().map(Some)
    }

    fn append(&mut self) -> Result<Appended> {
        let (topic, batch) = (&self.producer.topic, &mut self.batch);
        let part = self
            .engine
            .append(topic, batch, self.atomicity, self.durability)?;
        self.batch.clear();
        Ok(part)
    }
}

impl Drop for BatchSender<'_> {
    fn drop(&mut self) {
        if self.batch.capacity() <= SCRATCH_LEN_MAX {
            SCRATCH.set(std::mem::take(&mut self.batch));
        }
    }
}
