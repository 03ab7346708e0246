//! Sending single messages and batches.

use crate::engine::{Appended, Atomicity, Durability, Engine, Topic, Waiter, topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::meter::ROWS_A_SAMPLE;
use crate::num::index;
use crate::record::{Batch, Draft, java_hash, names};
use crate::ticket::{Sent, Ticket};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A chunk of a batch has at most this many encoded bytes: one lock and one flush.
pub const BATCH_LEN_MAX: usize = 4 << 20;
/// Maximum encoded bytes of an atomic batch.
pub const ATOMIC_BATCH_LEN_MAX: usize = 64 << 20;

thread_local! {
    /// The batch used for single sends, kept so that a send does not allocate.
    static SCRATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

/// A message may be delivered this much later at most.
const DELAY_MAX: Duration = Duration::from_hours(366 * 24);
const DELAY_TOO_LONG: &str = "a message is delivered at most 366 days after it is sent";

/// When a message is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// At once.
    #[default]
    None,
    /// After RocketMQ's delay of this level, 1 to 18.
    Level(u8),
    /// At this time, in ms since the epoch, at most 366 days ahead; at once if it has passed.
    Until(i64),
    /// After this time, at most 366 days.
    For(Duration),
}

impl Delay {
    /// The delay of a level, where 0 means none.
    pub fn level(level: u8) -> Delay {
        match level {
            0 => Delay::None,
            level => Delay::Level(level),
        }
    }

    /// The topic that the message waits in.
    pub fn topic(self) -> Option<&'static str> {
        match self {
            Delay::None => None,
            Delay::Level(_) => Some(names::SCHEDULE_TOPIC),
            Delay::Until(_) | Delay::For(_) => Some(names::TIMER_TOPIC),
        }
    }
}

/// A scratch batch larger than this is freed after the send.
const SCRATCH_LEN_MAX: usize = 1 << 20;

/// Sends to one topic; the fastest way to send in a loop. Clones share the store.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Handle>,
    topic: Arc<Topic>,
    queue: Option<u32>,
}

impl Producer {
    pub(crate) fn new(shared: Arc<Handle>, topic: Arc<Topic>, queue: Option<u32>) -> Producer {
        Producer {
            shared,
            topic,
            queue,
        }
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic.name
    }

    /// Sends one message. With a delay level (1 to 18) it is stored under the schedule topic, and
    /// delivered after the delay.
    pub fn send(&self, draft: &Draft<'_>, delay_level: u8, durability: Durability) -> Result<Sent> {
        self.send_delayed(draft, Delay::level(delay_level), durability)
    }

    /// Sends one message that is delivered later; see [`Delay`].
    pub fn send_delayed(
        &self,
        draft: &Draft<'_>,
        delay: Delay,
        durability: Durability,
    ) -> Result<Sent> {
        let engine = self.shared.writer()?;
        self.append_draft(engine, draft, delay, durability)
    }

    /// Sends one message and returns at once with a ticket for its durability.
    ///
    /// # Errors
    ///
    /// As [`Producer::send`]; there is no ticket for a message that is not in the log.
    pub fn send_nowait(&self, draft: &Draft<'_>, delay: Delay) -> Result<Ticket> {
        let engine = self.shared.writer()?;
        let written = Durability::Written;
        let sent = self.append_draft(engine, draft, delay, written)?;
        Ok(Ticket::new(sent, engine.enlist(sent.end)))
    }

    /// A waiter for the durability of the log up to `end`, even after the store was closed; see
    /// [`Engine::enlist`].
    pub fn enlist(&self, end: u64) -> Arc<Waiter> {
        self.shared.engine.enlist(end)
    }

    #[inline]
    fn append_draft(
        &self,
        engine: &dyn Engine,
        draft: &Draft<'_>,
        delay: Delay,
        durability: Durability,
    ) -> Result<Sent> {
        match delay {
            Delay::None => {}
            Delay::Level(level) => return self.send_to_level(engine, draft, level, durability),
            Delay::Until(at) => return self.send_to_timer(engine, draft, at, durability),
            Delay::For(delay) if delay > DELAY_MAX => {
                let seconds = delay.as_secs_f64();
                return Err(Error::option("delay", seconds, DELAY_TOO_LONG));
            }
            Delay::For(delay) => {
                let ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                let at = self.shared.clock.now_ms().saturating_add(ms);
                return self.send_to_timer(engine, draft, at, durability);
            }
        }
        let queue = self.queue_for(draft, self.queue)?;
        self.append_one(engine, &self.topic, queue, draft, durability)
    }

    /// Encodes and appends.
    #[inline]
    fn append_one(
        &self,
        engine: &dyn Engine,
        topic: &Topic,
        queue: u32,
        draft: &Draft<'_>,
        durability: Durability,
    ) -> Result<Sent> {
        SCRATCH.with_borrow_mut(|scratch| {
            let batch = match scratch {
                Some(kept) => {
                    kept.renew(&engine.batch());
                    kept
                }
                None => scratch.insert(engine.batch()),
            };
            let meter = &self.shared.meter;
            let mut put = meter.begin();
            self.push(batch, topic, queue, draft, put.clock_ms())?;
            put.encoded();
            let appended = engine.append(&mut [(topic, batch)], Atomicity::Rows, durability)?;
            let len = batch.encoded_len();
            if let Some(now) = meter.end(&put, &topic.name, len, appended.waited) {
                self.shared.sample_rates(now);
            }
            if batch.capacity() > SCRATCH_LEN_MAX {
                *scratch = None;
            }
            let Some(place) = appended.rows.first().copied() else {
                unreachable!("an append of one row returns one place")
            };
            Ok(Sent {
                place,
                end: appended.end,
                store_timestamp: appended.store_timestamp,
                durable: appended.durable,
            })
        })
    }

    /// Encodes a row, with a unique id if the store is configured for them.
    #[inline]
    fn push(
        &self,
        batch: &mut Batch,
        topic: &Topic,
        queue: u32,
        draft: &Draft<'_>,
        now: i64,
    ) -> Result<()> {
        if !self.shared.options.unique_ids() {
            return batch.push(&topic.name, queue, draft, now);
        }
        batch.push_with_id(&topic.name, queue, draft, now)
    }

    fn send_to_level(
        &self,
        engine: &dyn Engine,
        draft: &Draft<'_>,
        delay_level: u8,
        durability: Durability,
    ) -> Result<Sent> {
        let levels = names::DELAY_LEVELS_MS.len();
        if usize::from(delay_level) > levels {
            let reason = format!("must be between 1 and {levels}, or 0 for no delay");
            return Err(Error::option("delay_level", delay_level, reason));
        }
        let real_queue = self.queue_for(draft, self.queue)?.to_string();
        let level = delay_level.to_string();
        let system = [
            (names::DELAY, level.as_str()),
            (names::REAL_TOPIC, &self.topic.name),
            (names::REAL_QID, real_queue.as_str()),
        ];
        let schedule = engine.topic_for_append(names::SCHEDULE_TOPIC)?;
        let draft = Draft {
            system_properties: &system,
            ..*draft
        };
        let queue = u32::from(delay_level) - 1;
        let sent = self.append_one(engine, &schedule, queue, &draft, durability)?;
        self.shared.delayed(sent.end);
        Ok(sent)
    }

    /// Appends a message that waits until `at`.
    fn send_to_timer(
        &self,
        engine: &dyn Engine,
        draft: &Draft<'_>,
        at: i64,
        durability: Durability,
    ) -> Result<Sent> {
        let longest = i64::try_from(DELAY_MAX.as_millis()).unwrap_or(i64::MAX);
        if at.saturating_sub(self.shared.clock.now_ms()) > longest {
            return Err(Error::option("deliver_at", at, DELAY_TOO_LONG));
        }
        let real_queue = self.queue_for(draft, self.queue)?.to_string();
        let at = at.to_string();
        let system = [
            (names::DELIVER_AT, at.as_str()),
            (names::REAL_TOPIC, &self.topic.name),
            (names::REAL_QID, real_queue.as_str()),
        ];
        let timer = engine.topic_for_append(names::TIMER_TOPIC)?;
        let draft = Draft {
            system_properties: &system,
            ..*draft
        };
        let sent = self.append_one(engine, &timer, 0, &draft, durability)?;
        self.shared.delayed(sent.end);
        Ok(sent)
    }

    /// The queue of a message: the requested one, else chosen by the first key, else the next.
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
            (Some(queue), _) => Err(self.topic.unknown_queue(queue)),
            (None, Some(key)) => {
                let hash = java_hash(key.as_bytes()) as u32 & 0x7FFF_FFFF;
                Ok(hash % queues.max(1))
            }
            (None, None) => Ok(self.topic.next_queue()),
        }
    }

    /// Sends many messages. Rows without queue and key all go to the same queue, the next in turn.
    ///
    /// A chunk of up to [`BATCH_LEN_MAX`] encoded bytes takes one lock and one flush; a longer
    /// batch is split into such chunks. With [`Atomicity::Whole`] (up to
    /// [`ATOMIC_BATCH_LEN_MAX`]) all or nothing is stored, even across a crash.
    ///
    /// # Errors
    ///
    /// [`Error::Row`] names the rejected row. Nothing of its chunk was appended, but all chunks
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

    /// Sends many messages and returns at once with a ticket for their durability.
    ///
    /// # Errors
    ///
    /// As [`Producer::send_batch`].
    pub fn send_batch_nowait<'a>(
        &self,
        drafts: impl Iterator<Item = Result<Draft<'a>>>,
        atomicity: Atomicity,
    ) -> Result<Ticket<Appended>> {
        let appended = self.send_batch(drafts, atomicity, Durability::Written)?;
        let waiter = self.enlist(appended.end);
        Ok(Ticket::new(appended, waiter))
    }

    /// Starts a batch whose rows are pushed one by one: [`Producer::send_batch`] for rows that
    /// live only as long as their push.
    pub fn batch_sender(
        &self,
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<BatchSender<'_>> {
        let engine = self.shared.writer()?;
        let turn = self.queue.unwrap_or_else(|| self.topic.next_queue());
        let now = self.shared.clock.now_ms();
        let empty = engine.batch();
        let batch = match SCRATCH.take() {
            Some(mut kept) => {
                kept.renew(&empty);
                kept
            }
            None => empty,
        };
        Ok(BatchSender {
            producer: self,
            engine,
            atomicity,
            durability,
            turn,
            now,
            row: 0,
            // From the clock, so that of many short batches some are timed, but not all.
            first_sample: index(now.unsigned_abs()) % ROWS_A_SAMPLE,
            batch,
        })
    }

    /// Whether a send would not wait; see [`Engine::is_ready_for`].
    #[inline]
    pub fn is_ready_for(&self, len: usize) -> bool {
        self.shared.engine.is_ready_for(len)
    }

    /// Waits until the readable end of the log is above `position`; see [`Engine::wait_until`].
    pub fn wait_readable(&self, position: u64, timeout: Duration) -> Result<u64> {
        Ok(self.shared.engine()?.wait_readable(position, timeout))
    }
}

/// A batch under construction; see [`Producer::batch_sender`]. Dropping the sender discards rows
/// that were pushed and not appended.
pub struct BatchSender<'a> {
    producer: &'a Producer,
    engine: &'a dyn Engine,
    atomicity: Atomicity,
    durability: Durability,
    turn: u32,
    now: i64,
    row: usize,
    /// The first row whose encoding is timed.
    first_sample: usize,
    batch: Batch,
}

impl BatchSender<'_> {
    /// Adds a row. If that fills a chunk, appends the chunk and returns the places of its rows.
    ///
    /// # Errors
    ///
    /// As [`Producer::send_batch`]. After an error the sender must be dropped.
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
                    what: "encoded atomic batch".to_owned(),
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
        if self.row % ROWS_A_SAMPLE != self.first_sample {
            return producer.push(batch, topic, queue, draft, self.now);
        }
        let began = Instant::now();
        producer.push(batch, topic, queue, draft, self.now)?;
        producer.shared.meter.encoded_row(began.elapsed());
        Ok(())
    }

    /// Adds the number of the next row to its error.
    pub fn refuse(&self, error: Error) -> Error {
        error.in_row(self.row)
    }

    /// Appends the remaining rows; `None` if there are none.
    pub fn finish(mut self) -> Result<Option<Appended>> {
        if self.batch.is_empty() {
            return Ok(None);
        }
        self.append().map(Some)
    }

    fn append(&mut self) -> Result<Appended> {
        let (topic, batch) = (&self.producer.topic, &mut self.batch);
        let (rows, len) = (batch.len(), batch.encoded_len());
        let began = Instant::now();
        let part = self
            .engine
            .append(&mut [(topic, batch)], self.atomicity, self.durability)?;
        let now = Instant::now();
        self.batch.clear();
        let shared = &*self.producer.shared;
        let took = now.duration_since(began).saturating_sub(part.waited);
        shared.meter.batch(took, &topic.name, rows, len);
        shared.sample_rates(now);
        Ok(part)
    }
}

impl Drop for BatchSender<'_> {
    fn drop(&mut self) {
        if self.batch.capacity() <= SCRATCH_LEN_MAX {
            let empty = self.batch.another();
            SCRATCH.set(Some(std::mem::replace(&mut self.batch, empty)));
        }
    }
}
