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
//!
//! A message whose topic is refused is set [`aside`](super::aside). `forebay.delay` describes it as
//! delivered, and lists it in `aside` so that it is tried again; `forebay.pending` lists it as one
//! that waits. It is tried again with growing pauses, and by each opening. While too many messages
//! are refused to be listed, the tables stay as they are, like those of a process that has died.
//!
//! Otherwise `forebay.delay` describes the delivered messages by one time: those with an earlier or
//! equal time. One time is not enough while a waiting message has the time of a delivered one, or
//! an earlier one. This happens if the clock was set back, if the time of a message had passed when
//! it was sent, and between two steps that deliver messages of the same time. Meanwhile the table
//! keeps its last description, with the position from which later deliveries are searched.

use super::aside::Aside;
use super::deliver::{Delivered, Outcome, deliver, warn};
use super::pending::Pending;
use super::service::Due;
use super::timed::{QUEUE, Target, Timed, get, is_listed, is_reached, last_before, target, walk};
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
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;

/// Messages that one step delivers at most, so that others get their turn.
const STEP_MAX: usize = if cfg!(test) { 100 } else { 1_000 };
/// The waiting messages are listed again after at least this many further messages.
const UNLISTED_MAX: u64 = if cfg!(test) { 8 } else { 65_536 };
/// Maximum number of refused messages in `forebay.delay`.
const ASIDE_MAX: usize = if cfg!(test) { 4 } else { 10_000 };
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
    /// No message below this offset waits, except those that were set aside.
    low: u64,
    /// The latest time of a delivered message with an offset of `low` or higher, or a later time.
    delivered_ms: i64,
    /// The last table.
    told: TimerTable,
    is_saved: bool,
    /// Messages that are due and were refused.
    aside: Aside,
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
        let Some(state) = state.as_ref() else {
            return 0;
        };
        let low = [state.pending.low(), state.aside.offsets().next()];
        low.into_iter().flatten().fold(state.read, u64::min)
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
        let Some(table) = state.table(position) else {
            // The files hold older tables, which stay true. The next delivery tries again.
            state.is_saved = true;
            return Ok(());
        };
        table.save(&*place.disk, &place.own(names::DELAY))?;
        state.is_saved = true;
        let unlisted = state.read.saturating_sub(state.listed);
        let waiting = state.pending.len() + state.aside.len();
        if unlisted > UNLISTED_MAX.max(waiting as u64)
            && let Some(last) = last_before(handle, state.read)?
        {
            let listed = state.list(position, last);
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
        let (mut told, listed) = of_this_log(engine, topic, &bounds, (table, listed))?;
        // No message with a later time was delivered. If the clock was set back since the last
        // delivery, the newest store time counts, in logs where store times never decrease.
        let newest = engine.newest_stored_ms();
        let reached = newest.map_or(now, |newest| newest.max(now));
        let low = told.low.max(bounds.start);
        let (mut pending, mut targets) = (Pending::default(), BTreeSet::new());
        // Before what was sent later is read: they may have been carried forward.
        for offset in std::mem::take(&mut told.aside) {
            if let Some((at, to)) = refused_at(engine, topic, &bounds, offset)? {
                pending.insert(at, offset);
                targets.extend(to);
            }
        }
        let of_list = listed.as_ref().map(|listed| listed.delivered.clone());
        let from = of_list.as_ref().map_or(low, |it| it.end);
        // If both cover the same messages, both are true, and either may be the later one. Only the
        // table says what was delivered since a list of an earlier moment.
        let newer = of_list.as_ref().filter(|it| told.end < it.end);
        let of_list_end = of_list.as_ref().map(|it| it.end);
        let told_ms = told_ms(&told, of_list_end, low, (newest, reached));
        let table = newer.unwrap_or(&told);
        let waits = |at, offset| offset >= low && !table.has_delivered(at, offset);
        let waiting = listed.into_iter().flat_map(|it| it.waiting);
        for (at, offset) in waiting.filter(|(at, offset)| waits(*at, *offset)) {
            pending.insert(at, offset);
            if at <= reached
                && let Some(message) = get(engine, topic, offset)?
            {
                targets.extend(target(&message.record()));
            }
        }
        let read = walk(engine, topic, (QUEUE, from..bounds.end), |record| {
            let Some(timed) = Timed::of(record) else {
                return;
            };
            if let Some(of) = timed.of {
                pending.remove(timed.at, of);
            }
            if !waits(timed.at, timed.offset) {
                return;
            }
            pending.insert(timed.at, timed.offset);
            if timed.at <= reached {
                targets.extend(target(record));
            }
        })?;
        let latest_ms = remove_delivered(engine, &mut pending, targets, table.position)?;
        Ok(State {
            pending,
            read: read.max(bounds.start),
            listed: of_list.as_ref().map_or(0, |it| it.end),
            low,
            delivered_ms: latest_ms.max(told_ms),
            told,
            is_saved: false,
            aside: Aside::default(),
        })
    }

    /// The table that describes the delivered messages; `None` if too many were refused. All
    /// deliveries end at or below `position`.
    fn table(&mut self, position: u64) -> Option<TimerTable> {
        let waits = self.pending.low().unwrap_or(self.read);
        self.low = waits.min(self.read).max(self.low);
        let first = self.pending.first().map(|(at, _)| at);
        if first.is_none() {
            self.delivered_ms = i64::MIN;
        }
        if first.is_none_or(|first| self.delivered_ms < first) {
            self.told = TimerTable {
                end: self.read,
                delivered_ms: first.map_or(i64::MAX, |_| self.delivered_ms),
                position,
                ..TimerTable::default()
            };
        }
        // Otherwise the last description stays true: later deliveries are after its position.
        self.told.low = self.low;
        // Those that the previous process had set aside may not have been tried again yet. The
        // description covers them, by `low` or by `delivered_ms`.
        let mut aside = self.pending.below(self.low);
        let by_time = self.pending.until(self.told.delivered_ms);
        aside.extend(by_time.filter(|offset| (self.low..self.told.end).contains(offset)));
        aside.extend(self.aside.offsets());
        if aside.len() > ASIDE_MAX {
            return None;
        }
        aside.sort_unstable();
        self.told.aside = aside;
        Some(self.told.clone())
    }

    /// The list of the messages that wait, refused ones included: it may be read without the other
    /// table. All deliveries end at or below `position`; `last` identifies the last message read.
    fn list(&self, position: u64, last: (u64, i64)) -> PendingTable {
        let mut waiting = self.pending.all();
        waiting.extend(self.aside.all());
        waiting.sort_unstable();
        let first = waiting.first();
        PendingTable {
            delivered: TimerTable {
                end: self.read,
                delivered_ms: first.map_or(i64::MAX, |it| it.0.saturating_sub(1)),
                position,
                ..TimerTable::default()
            },
            last,
            waiting,
        }
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
                        self.aside.remove(of);
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

    /// Delivers what is due at `now`, and what was refused and is to be tried again.
    fn deliver(&mut self, handle: &Handle, topic: &Topic, now: i64) -> Result<Due> {
        let mut delivered = Delivered::to(handle);
        let steady = handle.clock.steady_ms();
        let to = (handle, topic);
        for _ in 0..STEP_MAX {
            let due = self.pending.first().filter(|(at, _)| *at <= now);
            let again = self.aside.first().filter(|(at, _)| *at <= steady);
            match (due, again) {
                (Some((at, offset)), _) => {
                    self.deliver_one(to, (at, offset), &mut delivered)?;
                    self.pending.remove(at, offset);
                    self.delivered_ms = self.delivered_ms.max(at);
                    self.is_saved = false;
                }
                (None, Some((_, message))) => self.deliver_one(to, message, &mut delivered)?,
                (None, None) => {
                    let next = self.pending.first().map(|(at, _)| at);
                    let again = self.aside.first();
                    let again = again.map(|(at, _)| now.saturating_add(at - steady));
                    let first = next.into_iter().chain(again).min();
                    return Ok(first.map_or(Due::Never, Due::At));
                }
            }
        }
        Ok(Due::Now)
    }

    /// Tries to deliver a message, or sets it aside.
    fn deliver_one(
        &mut self,
        (handle, topic): (&Handle, &Topic),
        (at, offset): (i64, u64),
        delivered: &mut Delivered<'_>,
    ) -> Result<()> {
        // A message that cannot be read can never be delivered.
        if let Some(message) = get(&*handle.engine, topic, offset)? {
            let of = offset.to_string();
            let without = [REAL_TOPIC, REAL_QID, TIMER_OFFSET];
            let with = [(TIMER_OFFSET, &*of)];
            match deliver(handle, &message, &without, &with)? {
                Outcome::Delivered(end) => delivered.add(Some(end)),
                Outcome::Impossible(reason) => warn(handle, &message, reason),
                Outcome::Refused(reason) => {
                    if self.aside.put((at, offset), handle.clock.steady_ms()) {
                        let reason = format!("{reason}; it is tried again");
                        warn(handle, &message, reason);
                    }
                    return Ok(());
                }
            }
        }
        if self.aside.remove(offset) {
            self.is_saved = false;
        }
        Ok(())
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
        let mut waiting = self.pending.below(end);
        waiting.extend(self.aside.offsets().take_while(|offset| *offset < end));
        waiting.sort_unstable();
        for offset in waiting {
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

/// The latest time of a message with an offset of `low` or higher that was delivered before the
/// tables were written, or a later time. `listed`: the end of the messages that the list covers.
fn told_ms(
    told: &TimerTable,
    listed: Option<u64>,
    low: u64,
    (newest, reached): (Option<i64>, i64),
) -> i64 {
    let of_table = match newest {
        None => told.delivered_ms,
        Some(_) => told.delivered_ms.min(reached),
    };
    match listed.map(|end| told.end.cmp(&end)) {
        // A list does not tell it.
        Some(Ordering::Less) => reached,
        _ if low >= told.end => i64::MIN,
        // The list may be the later one.
        Some(Ordering::Equal) => of_table.max(reached),
        _ => of_table,
    }
}

/// Time, and topic and queue, of a message that an earlier process has set aside.
fn refused_at(
    engine: &dyn Engine,
    topic: &Topic,
    bounds: &Range<u64>,
    offset: u64,
) -> Result<Option<(i64, Option<Target>)>> {
    if !bounds.contains(&offset) {
        return Ok(None);
    }
    let message = get(engine, topic, offset)?;
    let found = message.and_then(|message| {
        let record = message.record();
        Some((Timed::of(&record)?.at, target(&record)))
    });
    Ok(found)
}

/// The tables as far as they are about the messages of this log: it may have come back shorter.
fn of_this_log(
    engine: &dyn Engine,
    topic: &Topic,
    bounds: &Range<u64>,
    (table, listed): (TimerTable, Option<PendingTable>),
) -> Result<(TimerTable, Option<PendingTable>)> {
    // A table that keeps an earlier description may have a later `low`.
    let end = table.end.max(table.low);
    let is_told = end <= bounds.end && is_reached(engine, table.position);
    let listed = match listed {
        Some(listed) if is_listed(engine, topic, bounds, &listed)? => Some(listed),
        _ => None,
    };
    let table = match is_told {
        true => table,
        false => TimerTable::default(),
    };
    Ok((table, listed))
}

/// Removes what was delivered to these topics and queues at or after a position of the previous
/// process. Returns the latest time of such a delivery.
fn remove_delivered(
    engine: &dyn Engine,
    pending: &mut Pending,
    targets: BTreeSet<Target>,
    position: u64,
) -> Result<i64> {
    let mut latest_ms = i64::MIN;
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
                latest_ms = latest_ms.max(at);
            }
        })?;
    }
    Ok(latest_ms)
}

/// Whether a store has messages with a delivery time that may not have been delivered.
pub(super) fn has_messages(engine: &dyn Engine) -> Result<bool> {
    let Some(topic) = engine.topics().get(TIMER_TOPIC) else {
        return Ok(false);
    };
    let bounds = engine.bounds(&topic, QUEUE)?;
    Ok(bounds.is_some_and(|bounds| !bounds.is_empty()))
}
