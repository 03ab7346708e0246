//! Sending batches, in chunks.

use super::{Producer, To, keep, scratch};
use crate::engine::topic::PERMISSION_WRITE;
use crate::engine::{Appended, Atomicity, Durability, Topic};
use crate::error::{Error, Result};
use crate::meter::ROWS_A_SAMPLE;
use crate::num::index;
use crate::record::{Batch, Draft};
use crate::ticket::BatchTicket;
use std::time::Instant;

/// A chunk of a batch has at most this many encoded bytes: one lock and one flush.
pub const BATCH_LEN_MAX: usize = 4 << 20;
/// Maximum encoded bytes of an atomic batch.
pub const ATOMIC_BATCH_LEN_MAX: usize = 64 << 20;

/// Rows of a batch between two calls of `go_on`.
const ROWS_BETWEEN_CALLS: usize = 1024;

impl Producer {
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
        self.send_batch_while(drafts, (atomicity, durability), &mut || true)
    }

    /// As [`Producer::send_batch`]. Calls `go_on` now and then; once it returns false, the current
    /// chunk is not appended. Those before it stay.
    ///
    /// # Errors
    ///
    /// As [`Producer::send_batch`].
    pub fn send_batch_while<'a>(
        &self,
        drafts: impl Iterator<Item = Result<Draft<'a>>>,
        (atomicity, durability): (Atomicity, Durability),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Appended> {
        let mut all = Appended {
            durable: true,
            ..Appended::default()
        };
        let mut add = |part: Appended| {
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
            if sender.row % ROWS_BETWEEN_CALLS == ROWS_BETWEEN_CALLS - 1 && !go_on() {
                return Ok(all);
            }
            // Not moved: a draft is long. That of a short row is not even stored: only a copy of it
            // goes to a function that is not inlined.
            if let Ok(draft) = &draft {
                if !sender.add_short(draft) {
                    let stored = *draft;
                    sender.add(&stored)?;
                }
            } else if let Err(error) = draft {
                return Err(sender.refuse(error));
            }
            if sender.is_full() {
                add(sender.append()?);
            }
        }
        if let Some(rest) = sender.finish()? {
            add(rest);
        }
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
    ) -> Result<BatchTicket> {
        self.send_batch_nowait_while(drafts, atomicity, &mut || true)
    }

    /// As [`Producer::send_batch_nowait`], and as [`Producer::send_batch_while`].
    ///
    /// # Errors
    ///
    /// As [`Producer::send_batch`].
    pub fn send_batch_nowait_while<'a>(
        &self,
        drafts: impl Iterator<Item = Result<Draft<'a>>>,
        atomicity: Atomicity,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<BatchTicket> {
        let written = (atomicity, Durability::Written);
        let appended = self.send_batch_while(drafts, written, go_on)?;
        let waiter = self.enlist(appended.end);
        Ok(BatchTicket::new(appended, waiter))
    }

    /// Starts a batch whose rows are pushed one by one: [`Producer::send_batch`] for rows that
    /// live only as long as their push.
    pub fn batch_sender(
        &self,
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<BatchSender<'_>> {
        let to = self.to()?;
        let turn = self.queue.unwrap_or_else(|| to.topic.next_queue());
        let now = self.shared.clock.now_ms();
        let batch = scratch(to.engine.form());
        Ok(BatchSender {
            producer: self,
            needs_key: to.needs_key(),
            to,
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
}

/// A batch under construction; see [`Producer::batch_sender`]. Dropping the sender discards rows
/// that were pushed and not appended.
pub struct BatchSender<'a> {
    producer: &'a Producer,
    to: To<'a>,
    /// Whether a message of the topic must have a key.
    needs_key: bool,
    atomicity: Atomicity,
    durability: Durability,
    turn: u32,
    now: i64,
    row: usize,
    /// The first row whose encoding is timed.
    first_sample: usize,
    batch: Box<Batch>,
}

impl BatchSender<'_> {
    /// Adds a row. If that fills a chunk, appends the chunk and returns the places of its rows.
    ///
    /// # Errors
    ///
    /// As [`Producer::send_batch`]. After an error the sender must be dropped.
    #[inline]
    pub fn push(&mut self, draft: &Draft<'_>) -> Result<Option<Appended>> {
        self.add(draft)?;
        match self.is_full() {
            true => self.append().map(Some),
            false => Ok(None),
        }
    }

    /// Adds a row.
    #[inline]
    fn add(&mut self, draft: &Draft<'_>) -> Result<()> {
        if let Err(error) = self.encode(draft) {
            return Err(self.refuse(error));
        }
        self.row += 1;
        let len = self.batch.encoded_len();
        if self.atomicity == Atomicity::Whole && len > ATOMIC_BATCH_LEN_MAX {
            return Err(Error::TooLarge {
                what: "encoded atomic batch".to_owned(),
                size: len as u64,
                limit: ATOMIC_BATCH_LEN_MAX as u64,
            });
        }
        Ok(())
    }

    /// Adds a row of few bytes to a partition log, if its queue is known and nothing is to be
    /// checked or timed. Otherwise returns false, and the row is not added.
    #[inline(always)]
    fn add_short(&mut self, draft: &Draft<'_>) -> bool {
        let Some(batch) = self.batch.kafka_mut() else {
            return false;
        };
        let topic: &Topic = &self.to.topic;
        let is_keyless = draft.first_key().is_none();
        let turn = is_keyless.then_some(self.turn);
        let queue = draft.queue.or(turn).or(self.producer.queue);
        let Some(queue) = queue.filter(|queue| *queue < topic.write_queues()) else {
            return false;
        };
        let is_checked = self.producer.claim.is_none()
            && !(is_keyless && self.needs_key)
            && self.atomicity == Atomicity::Rows
            && self.row % ROWS_A_SAMPLE != self.first_sample
            && topic.permissions() & PERMISSION_WRITE != 0;
        let is_added = is_checked && batch.push_short(queue, draft, self.now);
        self.row += usize::from(is_added);
        is_added
    }

    /// Whether the rows fill a chunk.
    #[inline]
    fn is_full(&self) -> bool {
        self.atomicity == Atomicity::Rows && self.batch.encoded_len() >= BATCH_LEN_MAX
    }

    #[inline]
    fn encode(&mut self, draft: &Draft<'_>) -> Result<()> {
        let producer = self.producer;
        let turn = draft.first_key().is_none().then_some(self.turn);
        let queue =
            producer.queue_of(&self.to, draft, turn.or(producer.queue), || self.needs_key)?;
        let (batch, topic) = (&mut self.batch, &self.to.topic);
        if self.row % ROWS_A_SAMPLE != self.first_sample {
            return producer.push(batch, topic, queue, draft, self.now);
        }
        let began = Instant::now();
        producer.push(batch, topic, queue, draft, self.now)?;
        self.to.handle.meters.puts.encoded_row(began.elapsed());
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
        let (topic, batch) = (&self.to.topic, &mut self.batch);
        let (rows, len) = (batch.len(), batch.encoded_len());
        let began = Instant::now();
        let part = self
            .to
            .engine
            .append(&mut [(topic, batch)], self.atomicity, self.durability)?;
        let now = Instant::now();
        self.batch.clear();
        let shared = self.to.handle;
        let took = now.duration_since(began).saturating_sub(part.waited);
        shared.meters.puts.batch(took, &topic.name, rows, len);
        shared.sample_rates(now);
        Ok(part)
    }
}

impl Drop for BatchSender<'_> {
    fn drop(&mut self) {
        let empty = Box::new(self.batch.form().batch());
        keep(std::mem::replace(&mut self.batch, empty));
    }
}
