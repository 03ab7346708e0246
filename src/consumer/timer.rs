//! Messages with a delivery time: from the timer topic to the topic that each is meant for.
//!
//! ```text
//!   send(deliver_at) --> rmq_sys_forebay_delay, queue 0   REAL_TOPIC, REAL_QID, FOREBAY_DELIVER_AT
//!                          | read on --> Pending: (time, offset), in memory
//!                          | due     --> real topic, FOREBAY_DELAY_OFFSET = its offset here
//!                          | retired --> the end of this topic, FOREBAY_DELAY_OFFSET = old offset
//! ```
//!
//! The log says what waits: each message of the topic without a record that names its offset. The
//! index and the table `forebay.delay` are caches. The table tells what was delivered when it was
//! written, which the log was durable up to; opening reads on from there, and looks for later
//! deliveries in the topics that overdue messages are meant for. So a process that dies delivers
//! nothing twice. A machine that dies can, if it had not stored a delivery that a consumer has
//! seen.

use super::deliver::{Delivered, deliver};
use super::pending::Pending;
use super::service::Due;
use crate::disk::Disk;
use crate::engine::{Atomicity, Check, Engine, Files, Filter, Point, Rows, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::record::names::{DELIVER_AT, REAL_QID, REAL_TOPIC, TIMER_OFFSET, TIMER_TOPIC};
use crate::record::{Batch, Copied, Row};
use crate::sync::Mutex;
use crate::table::timer::TimerTable;
use crate::warning::Warning;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The queue of the timer topic.
const QUEUE: u32 = 0;
/// Messages that one step delivers at most, so that others get their turn.
const STEP_MAX: usize = 1_000;
/// Rows that one step of a cursor collects.
const WALK_ROWS: usize = 1_024;
/// Encoded bytes after which messages that are carried forward are appended.
const CARRY_LEN: usize = 1 << 20;

/// The delivery of one store.
#[derive(Debug)]
pub(super) struct Timer {
    /// Where the table is; `None` for a store without files.
    place: Option<(Arc<dyn Disk>, PathBuf)>,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    pending: Pending,
    /// The first offset that was not read yet.
    read: u64,
    is_saved: bool,
}

impl Timer {
    /// Nothing is read before the first step.
    pub(super) fn new(place: Option<(Arc<dyn Disk>, PathBuf)>) -> Timer {
        Timer {
            place,
            state: Mutex::new(None),
        }
    }

    /// Delivers what is due at `now`, in the order of times. Returns when more will be.
    pub(super) fn step(&self, handle: &Handle, now: i64) -> Result<Due> {
        let engine = handle.writer()?;
        let Some(topic) = engine.topics().get(TIMER_TOPIC) else {
            return Ok(Due::Never);
        };
        let mut state = self.state.lock();
        if state.is_none() {
            let table = match &self.place {
                Some((disk, path)) => TimerTable::load(&**disk, path)?,
                None => TimerTable::default(),
            };
            *state = Some(State::load(engine, &topic, table, now)?);
        }
        let Some(state) = &mut *state else {
            return Ok(Due::Never);
        };
        state.read_on(handle, &topic)?;
        state.deliver(handle, &topic, now)
    }

    /// Whether [`Timer::save`] would write.
    pub(super) fn is_unsaved(&self) -> bool {
        let state = self.state.lock();
        self.place.is_some() && state.as_ref().is_some_and(|state| !state.is_saved)
    }

    /// Stores how far delivery is; durable on return, after what was delivered.
    pub(super) fn save(&self, handle: &Handle) -> Result<()> {
        let mut state = self.state.lock();
        let (Some(state), Some((disk, path))) = (state.as_mut(), &self.place) else {
            return Ok(());
        };
        if state.is_saved {
            return Ok(());
        }
        // Nothing is delivered meanwhile, for the state is locked.
        let position = handle.engine.flush()?;
        let first = state.pending.first();
        let table = TimerTable {
            low: state.pending.low().unwrap_or(state.read).min(state.read),
            end: state.read,
            delivered_ms: first.map_or(i64::MAX, |(at, _)| at.saturating_sub(1)),
            position,
        };
        table.save(&**disk, path)?;
        state.is_saved = true;
        Ok(())
    }

    /// Appends again, durably, what waits below `until` of the log. False where nothing of the log
    /// may go at the moment: it is not known what waits, or a step runs.
    pub(super) fn carry(&self, handle: &Handle, until: u64) -> Result<bool> {
        let (Ok(engine), Some(files)) = (handle.writer(), handle.engine.files()) else {
            return Ok(false);
        };
        let Some(topic) = engine.topics().get(TIMER_TOPIC) else {
            return Ok(true);
        };
        let Some(mut state) = self.state.try_lock() else {
            return Ok(false);
        };
        let Some(state) = &mut *state else {
            return Ok(engine.bounds(&topic, QUEUE)?.is_none_or(|it| it.is_empty()));
        };
        files.make_readable(u64::MAX)?;
        state.read_on(handle, &topic)?;
        let end = engine.offset_at(&topic, QUEUE, Point::Position(until))?;
        let carried = state.append_again(handle, files, &topic, end);
        // What was appended before an error counts, too.
        state.read_on(handle, &topic)?;
        carried.map(|()| true)
    }
}

impl State {
    /// Finds out what waits, by the table of the process before and the log.
    fn load(engine: &dyn Engine, topic: &Topic, table: TimerTable, now: i64) -> Result<State> {
        let bounds = engine.bounds(topic, QUEUE)?.unwrap_or(0..0);
        // A table of a log that came back shorter tells of other messages.
        let is_of_it = table.end <= bounds.end && table.position <= engine.readable_position();
        let table = match is_of_it {
            true => table,
            false => TimerTable::default(),
        };
        let mut pending = Pending::default();
        let mut targets = BTreeSet::new();
        let range = table.low.max(bounds.start)..bounds.end;
        let read = walk(engine, topic, (QUEUE, range), |record| {
            let Some(timed) = Timed::of(record) else {
                return;
            };
            if let Some(of) = timed.of {
                pending.remove(timed.at, of);
            }
            if timed.offset < table.end && timed.at <= table.delivered_ms {
                return;
            }
            pending.insert(timed.at, timed.offset);
            if timed.at <= now {
                targets.extend(target(record));
            }
        })?;
        for (name, queue) in targets {
            let Some(topic) = engine.topics().get(&name) else {
                continue;
            };
            let queue = queue % topic.write_queues().max(1);
            let Some(bounds) = engine.bounds(&topic, queue)? else {
                continue;
            };
            let first = engine.offset_at(&topic, queue, Point::Position(table.position))?;
            walk(engine, &topic, (queue, first..bounds.end), |record| {
                if let Some(Timed {
                    at, of: Some(of), ..
                }) = Timed::of(record)
                {
                    pending.remove(at, of);
                }
            })?;
        }
        Ok(State {
            pending,
            read: read.max(bounds.start),
            is_saved: false,
        })
    }

    /// Adds what was sent since the last call.
    fn read_on(&mut self, handle: &Handle, topic: &Topic) -> Result<()> {
        let engine = &*handle.engine;
        let Some(bounds) = engine.bounds(topic, QUEUE)? else {
            return Ok(());
        };
        if bounds.end <= self.read {
            return Ok(());
        }
        self.is_saved = false;
        let range = self.read..bounds.end;
        self.read = walk(engine, topic, (QUEUE, range), |record| {
            match Timed::of(record) {
                Some(timed) => {
                    if let Some(of) = timed.of {
                        self.pending.remove(timed.at, of);
                    }
                    self.pending.insert(timed.at, timed.offset);
                }
                None => handle.warnings().add(Warning::Undelivered {
                    position: record.position().cast_unsigned(),
                }),
            }
        })?;
        Ok(())
    }

    fn deliver(&mut self, handle: &Handle, topic: &Topic, now: i64) -> Result<Due> {
        let mut delivered = Delivered::to(handle);
        for _ in 0..STEP_MAX {
            let Some((at, offset)) = self.pending.first() else {
                return Ok(Due::Never);
            };
            if at > now {
                return Ok(Due::At(at));
            }
            match handle.engine.get(topic, QUEUE, offset) {
                Ok(Some(message)) => {
                    let of = offset.to_string();
                    let without = [REAL_TOPIC, REAL_QID, TIMER_OFFSET];
                    let with = [(TIMER_OFFSET, &*of)];
                    delivered.add(deliver(handle, &message, &without, &with)?);
                }
                // Nobody can deliver it. A damaged place is reported by who reads it.
                Ok(None) | Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
            self.pending.remove(at, offset);
            self.is_saved = false;
        }
        Ok(Due::Now)
    }

    /// Appends again what waits below the offset `end`; durable on return.
    fn append_again(
        &self,
        handle: &Handle,
        files: &dyn Files,
        topic: &Topic,
        end: u64,
    ) -> Result<()> {
        let mut batch = files.batch();
        let mut appended = None;
        let mut append = |batch: &mut Batch| -> Result<()> {
            if !batch.is_empty() {
                appended = Some(files.append_staged(&mut [(topic, batch)], Atomicity::Rows)?);
                batch.clear();
            }
            Ok(())
        };
        for offset in self.pending.below(end) {
            let message = match files.get(topic, QUEUE, offset) {
                Ok(Some(message)) => message,
                Ok(None) | Err(Error::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let (record, of) = (message.record(), offset.to_string());
            let copied = Copied {
                topic: TIMER_TOPIC,
                queue: QUEUE,
                without: &[TIMER_OFFSET],
                with: &[(TIMER_OFFSET, &*of)],
                reconsume_times: record.reconsume_times(),
                clock_ms: handle.clock.now_ms(),
            };
            batch.push_copy(&record, &copied)?;
            if batch.encoded_len() >= CARRY_LEN {
                append(&mut batch)?;
            }
        }
        append(&mut batch)?;
        if let Some(end) = appended {
            files.flush_to(end)?;
            files.make_readable(end)?;
        }
        Ok(())
    }
}

/// What a record says of a time.
struct Timed {
    offset: u64,
    at: i64,
    /// The offset in the timer topic of the message that it is made of.
    of: Option<u64>,
}

impl Timed {
    fn of(record: &Row<'_>) -> Option<Timed> {
        let text = |name: &str| str::from_utf8(record.property(name)?).ok();
        Some(Timed {
            offset: record.queue_offset().cast_unsigned(),
            at: text(DELIVER_AT)?.parse().ok()?,
            of: text(TIMER_OFFSET).and_then(|text| text.parse().ok()),
        })
    }
}

/// The topic and queue that a message names.
fn target(record: &Row<'_>) -> Option<(String, u32)> {
    let text = |name: &str| str::from_utf8(record.property(name)?).ok();
    Some((text(REAL_TOPIC)?.to_owned(), text(REAL_QID)?.parse().ok()?))
}

/// Calls `each` with the records of a queue. Returns the offset after the last one.
fn walk(
    engine: &dyn Engine,
    topic: &Topic,
    (queue, range): (u32, Range<u64>),
    mut each: impl FnMut(&Row<'_>),
) -> Result<u64> {
    let mut cursor = engine.cursor(topic, queue, range, &Filter::default(), Check::Full)?;
    let mut rows = Rows::default();
    loop {
        rows.clear();
        cursor.next(WALK_ROWS, &mut rows)?;
        if rows.rows.is_empty() {
            return Ok(cursor.offset());
        }
        let records = rows.rows.iter().filter_map(|row| rows.record(row));
        records.for_each(|record| each(&record));
    }
}

/// Whether a store has messages with a delivery time that may not have been delivered.
pub(super) fn has_messages(engine: &dyn Engine) -> Result<bool> {
    let Some(topic) = engine.topics().get(TIMER_TOPIC) else {
        return Ok(false);
    };
    let bounds = engine.bounds(&topic, QUEUE)?;
    Ok(bounds.is_some_and(|bounds| !bounds.is_empty()))
}
