//! Messages with a delivery time: from the timer topic to the topic that each is meant for.
//!
//! ```text
//!   send(deliver_at) --> rmq_sys_forebay_delay, queue 0   REAL_TOPIC, REAL_QID, FOREBAY_DELIVER_AT
//!                          | read on --> Pending: (time, offset), in memory
//!                          | due     --> real topic, FOREBAY_DELAY_OFFSET = its offset here
//!                          | retired --> the end of this topic, FOREBAY_DELAY_OFFSET = old offset
//! ```
//!
//! The log determines which messages wait: those of the topic whose offset no delivered record
//! names. The index and the tables `forebay.delay` and `forebay.pending` are caches. The first
//! lists the deliveries before it was written, all of them durable; opening searches the target
//! topics of overdue messages for later deliveries. The second lists the messages that waited at an
//! earlier moment; opening reads the timer topic from there on, or without the table from the
//! oldest message that waits. So no message is delivered twice after a process dies. After a power
//! loss one can be, if a consumer had seen a delivery that was not durable.

use super::deliver::{Delivered, deliver};
use super::pending::Pending;
use super::service::Due;
use super::timed::{QUEUE, Timed, get, is_listed, is_reached, last_before, target, walk};
use crate::engine::directory::names;
use crate::engine::{Atomicity, Engine, Point, Staging, Topic};
use crate::error::Result;
use crate::handle::Handle;
use crate::plant::{Bug, planted};
use crate::record::names::{REAL_QID, REAL_TOPIC, TIMER_OFFSET, TIMER_TOPIC};
use crate::record::{Batch, Copied};
use crate::sync::Mutex;
use crate::table::TablePlace;
use crate::table::pending::PendingTable;
use crate::table::timer::TimerTable;
use crate::warning::Warning;
use std::collections::BTreeSet;

/// Messages that one step delivers at most, so that others get their turn.
const STEP_MAX: usize = 1_000;
/// The waiting messages are listed again after at least this many further messages.
const UNLISTED_MAX: u64 = if cfg!(test) { 8 } else { 65_536 };
/// Messages that are carried forward are appended in chunks of this many encoded bytes.
const CARRY_LEN: usize = 1 << 20;

/// The delivery of one store.
#[derive(Debug)]
pub(super) struct Timer {
    /// Where the tables are; `None` for a store without files.
    place: Option<TablePlace>,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    pending: Pending,
    /// The first offset of the timer topic that was not read yet.
    read: u64,
    /// The value of `read` when the waiting messages were last listed.
    listed: u64,
    is_saved: bool,
}

impl Timer {
    /// The delivery of a store. Reads nothing before the first step.
    pub(super) fn new(place: Option<TablePlace>) -> Timer {
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
            let (table, listed) = match &self.place {
                Some(place) => (
                    TimerTable::load(&*place.disk, &place.own(names::DELAY))?,
                    PendingTable::load(&*place.disk, &place.own(names::PENDING))?,
                ),
                None => (TimerTable::default(), None),
            };
            *state = Some(State::load(engine, &topic, (table, listed), now)?);
        }
        let Some(state) = &mut *state else {
            return Ok(Due::Never);
        };
        state.read_on(handle, &topic)?;
        state.deliver(handle, &topic, now)
    }

    /// No message below this offset waits, as far as is known.
    pub(super) fn low(&self) -> u64 {
        let state = self.state.lock();
        let state = state.as_ref();
        state.map_or(0, |it| it.pending.low().unwrap_or(it.read).min(it.read))
    }

    /// Whether [`Timer::save`] would write.
    pub(super) fn is_unsaved(&self) -> bool {
        let state = self.state.lock();
        self.place.is_some() && state.as_ref().is_some_and(|state| !state.is_saved)
    }

    /// Saves the progress of delivery; durable on return, after the delivered messages.
    pub(super) fn save(&self, handle: &Handle) -> Result<()> {
        let mut state = self.state.lock();
        let (Some(state), Some(place)) = (state.as_mut(), &self.place) else {
            return Ok(());
        };
        if state.is_saved {
            return Ok(());
        }
        // The lock of the state prevents deliveries meanwhile.
        let position = match planted(Bug::TimesAhead) {
            true => handle.engine.readable_position(),
            false => handle.engine.flush(&mut || true)?,
        };
        let first = state.pending.first();
        let table = TimerTable {
            low: state.pending.low().unwrap_or(state.read).min(state.read),
            end: state.read,
            delivered_ms: first.map_or(i64::MAX, |(at, _)| at.saturating_sub(1)),
            position,
        };
        table.save(&*place.disk, &place.own(names::DELAY))?;
        state.is_saved = true;
        let unlisted = state.read.saturating_sub(state.listed);
        if unlisted > UNLISTED_MAX.max(state.pending.len() as u64)
            && let Some(last) = last_before(handle, state.read)?
        {
            let listed = PendingTable {
                delivered: table,
                last,
                waiting: state.pending.all(),
            };
            listed.save(&*place.disk, &place.own(names::PENDING))?;
            state.listed = state.read;
        }
        Ok(())
    }

    /// Appends again, durably, the waiting messages below `until` of the log. Returns false if
    /// nothing may be deleted at the moment, because a step is running or the waiting messages are
    /// unknown.
    pub(super) fn carry(&self, handle: &Handle, until: u64) -> Result<bool> {
        let (Ok(engine), Some(staging)) = (handle.writer(), handle.engine.staging()) else {
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
        staging.make_readable(u64::MAX)?;
        state.read_on(handle, &topic)?;
        let end = engine.offset_at(&topic, QUEUE, Point::Position(until))?;
        let carried = state.append_again(handle, staging, &topic, end);
        // Messages that were appended before an error count too.
        state.read_on(handle, &topic)?;
        carried.map(|()| true)
    }
}

impl State {
    /// Finds the waiting messages in the tables of the previous process and the log.
    fn load(
        engine: &dyn Engine,
        topic: &Topic,
        (table, listed): (TimerTable, Option<PendingTable>),
        now: i64,
    ) -> Result<State> {
        let bounds = engine.bounds(topic, QUEUE)?.unwrap_or(0..0);
        // If the log came back shorter, the table describes other messages.
        let is_of_it = table.end <= bounds.end && is_reached(engine, table.position);
        let mut table = match is_of_it {
            true => table,
            false => TimerTable::default(),
        };
        let mut pending = Pending::default();
        let mut targets = BTreeSet::new();
        let listed = match listed {
            Some(listed) if is_listed(engine, topic, &bounds, &listed)? => Some(listed),
            _ => None,
        };
        let mut from = table.low.max(bounds.start);
        let mut listed_until = 0;
        if let Some(listed) = listed {
            from = listed.delivered.end;
            listed_until = from;
            if table.position < listed.delivered.position {
                table = listed.delivered;
            }
            for (at, offset) in listed.waiting {
                let is_delivered = offset < table.end && at <= table.delivered_ms;
                if offset < bounds.start || is_delivered {
                    continue;
                }
                pending.insert(at, offset);
                if at <= now
                    && let Some(message) = get(engine, topic, offset)?
                {
                    targets.extend(target(&message.record()));
                }
            }
        }
        let read = walk(engine, topic, (QUEUE, from..bounds.end), |record| {
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
        remove_delivered(engine, &mut pending, targets, table.position)?;
        Ok(State {
            pending,
            read: read.max(bounds.start),
            listed: listed_until,
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
                    reason: "it names no time".to_owned(),
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
            // A message that cannot be read can never be delivered.
            if let Some(message) = get(&*handle.engine, topic, offset)? {
                let of = offset.to_string();
                let without = [REAL_TOPIC, REAL_QID, TIMER_OFFSET];
                let with = [(TIMER_OFFSET, &*of)];
                delivered.add(deliver(handle, &message, &without, &with)?);
            }
            self.pending.remove(at, offset);
            self.is_saved = false;
        }
        Ok(Due::Now)
    }

    /// Appends again the waiting messages below the offset `end`; durable on return.
    fn append_again(
        &self,
        handle: &Handle,
        staging: &dyn Staging,
        topic: &Topic,
        end: u64,
    ) -> Result<()> {
        let mut batch = staging.form().batch();
        let mut appended = None;
        let mut append = |batch: &mut Batch| -> Result<()> {
            if !batch.is_empty() {
                appended = Some(staging.append_staged(&mut [(topic, batch)], Atomicity::Rows)?);
                batch.clear();
            }
            Ok(())
        };
        for offset in self.pending.below(end) {
            let Some(message) = get(staging, topic, offset)? else {
                continue;
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
            staging.flush_to(end)?;
            staging.make_readable(end)?;
        }
        Ok(())
    }
}

/// Removes what was delivered to these topics and queues at or after a position of the previous
/// process.
fn remove_delivered(
    engine: &dyn Engine,
    pending: &mut Pending,
    targets: BTreeSet<(String, u32)>,
    position: u64,
) -> Result<()> {
    for (name, queue) in targets {
        let Some(topic) = engine.topics().get(&name) else {
            continue;
        };
        let queue = queue % topic.write_queues().max(1);
        let Some(bounds) = engine.bounds(&topic, queue)? else {
            continue;
        };
        let first = match engine.meanings().lasting_positions {
            true => engine.offset_at(&topic, queue, Point::Position(position))?,
            // Positions of another process are not valid here.
            false => bounds.start,
        };
        walk(engine, &topic, (queue, first..bounds.end), |record| {
            if let Some(Timed {
                at, of: Some(of), ..
            }) = Timed::of(record)
            {
                pending.remove(at, of);
            }
        })?;
    }
    Ok(())
}

/// Whether a store has messages with a delivery time that may not have been delivered.
pub(super) fn has_messages(engine: &dyn Engine) -> Result<bool> {
    let Some(topic) = engine.topics().get(TIMER_TOPIC) else {
        return Ok(false);
    };
    let bounds = engine.bounds(&topic, QUEUE)?;
    Ok(bounds.is_some_and(|bounds| !bounds.is_empty()))
}
