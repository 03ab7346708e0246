//! Delivers delayed messages: from the schedule topic to the topic that each is meant for.
//!
//! ```text
//!   SCHEDULE_TOPIC_XXXX, queue level - 1: | delivered | due | due | not due yet ...
//!                                                     ^ next
//! ```
//!
//! All messages of a level have the same delay, so a queue is in delivery order, and its first
//! message that is not due decides when the level must run next. A changed option `delay_levels`
//! applies to waiting messages too; queues above the last level have its delay.
//!
//! A message is due once its delay has passed by one of two clocks: by the wall clock since its
//! store time, or by the steady clock since this process first saw it ([`Seen`]). By the wall clock
//! alone, a clock that was set back by an hour would delay all messages by an hour, later ones too,
//! because store times never decrease. A message that was stored before this process started has
//! waited at least until the newest store time of the log. Its delay continues from there, so a
//! restart does not begin it again while the wall clock is set back.
//!
//! `config/delayOffset.json` holds `next` of each level, as in RocketMQ. It is written after the
//! log is durable up to what was delivered. After a crash, messages delivered since the last write
//! are delivered again, and none is lost. A broker writes the table without waiting for its log.
//! After a power loss `next` may then be higher than the end of the queue. Messages sent later get
//! offsets below `next` and would count as delivered. So `next` is lowered to the end of the queue
//! when the epoch of the log began. A table that names this epoch was written by one of its
//! processes, which may have delivered later messages. It is left as it is.
//!
//! A refused message is nowhere but here once the original is settled. So retention keeps the log
//! from the first message on that is not delivered according to the saved table
//! ([`Delay::keep_from`]). To append such messages again, as those with a delivery time, would
//! begin their delay again, or move them to a topic that a broker does not deliver.

use super::deliver::{Delivered, deliver_or_warn};
use super::hold::position_from;
use super::seen::Seen;
use super::service::Due;
use crate::clock::Moment;
use crate::engine::directory::epochs::Epoch;
use crate::engine::directory::page::StatePage;
use crate::engine::{Check, Engine, Filter, Point, Rows, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::num::short;
use crate::plant::{Bug, planted};
use crate::record::names::SCHEDULE_TOPIC;
use crate::region::Access;
use crate::sync::Mutex;
use crate::table::TablePlace;
use crate::table::levels::{self, LevelTable, SavedIn};
use crate::warning::Warning;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Messages of higher levels are not delivered. A broker takes any number.
const QUEUES_MAX: u32 = 4096;
/// Maximum number of messages that one step of a level delivers, so that other levels get their
/// turn.
const STEP_MAX: usize = 1_000;

/// The delivery for one store.
#[derive(Debug)]
pub(super) struct Delay {
    /// Where the table is; `None` if the store has no files.
    place: Option<TablePlace>,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    table: LevelTable,
    /// The newest epoch of the log, if it is known.
    epoch: Option<Epoch>,
    is_saved: bool,
    levels: Vec<Level>,
}

/// What this process knows of the messages of a level.
#[derive(Clone, Debug, Default)]
struct Level {
    seen: Seen,
    found: Option<Found>,
    /// When the first message is due by either clock, if known. All others are due later.
    head: Option<Moment>,
}

/// The state of a level when this process first reads it.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The end of the queue.
    end: u64,
    /// When it was read by the steady clock, and a time that the wall clock had reached before.
    at: Moment,
}

impl Level {
    /// Notes that the queue ends at `end` at the time `now`. `reached_ms`: a time that the wall
    /// clock had reached after its last message was stored, if it is known.
    fn note(&mut self, end: u64, now: Moment, delay: i64, reached_ms: impl Fn() -> Option<i64>) {
        self.seen.note(end, now.steady_ms, delay);
        let found = self.found.get_or_insert_with(|| Found {
            end,
            at: Moment {
                wall_ms: reached_ms().unwrap_or(i64::MIN),
                ..now
            },
        });
        // If the log came back shorter, other messages will get the offsets after its end.
        found.end = found.end.min(end);
    }

    /// When a message that is due at `due_ms` by the wall clock is due by the steady clock, if that
    /// is known.
    fn due(&self, offset: u64, due_ms: i64, delay: i64) -> Option<i64> {
        let seen = self.seen.due(offset, delay);
        let found = self.found.filter(|found| offset < found.end);
        let left = found.map(|found| {
            let left = due_ms.saturating_sub(found.at.wall_ms).max(0);
            found.at.steady_ms.saturating_add(left)
        });
        left.into_iter().chain(seen).min()
    }
}

impl Delay {
    /// The delivery of a store. Reads nothing before the first step.
    pub(super) fn new(place: Option<TablePlace>) -> Delay {
        Delay {
            place,
            state: Mutex::new(None),
        }
    }

    /// Delivers what is due at `now`. Returns when more will be due.
    pub(super) fn step(&self, handle: &Handle, now: i64) -> Result<Due> {
        let engine = handle.writer()?;
        let Some(schedule) = schedule_of(engine) else {
            return Ok(Due::Never);
        };
        let mut state = self.state.lock();
        if state.is_none() {
            let table = match &self.place {
                Some(place) => LevelTable::open(&*place.disk, &place.config(levels::FILE_NAME))?,
                None => LevelTable::default(),
            };
            let (mut table, epoch) = (table, self.epoch()?);
            let is_lowered = lower(&mut table, epoch, engine, &schedule)?;
            *state = Some(State {
                table,
                epoch,
                is_saved: !is_lowered,
                levels: Vec::new(),
            });
        }
        let Some(state) = &mut *state else {
            return Ok(Due::Never);
        };
        let mut due = Ok(Due::Never);
        let delays = handle.options.delay_levels();
        // Earlier options of the store, or a broker's, may have had more levels.
        let last_queue = engine.queues(&schedule).into_iter().max();
        let of_queues = last_queue.map_or(0, |queue| queue.saturating_add(1).min(QUEUES_MAX));
        let level_count = of_queues.max(short(delays.all_ms().len()));
        state.levels.resize(level_count as usize, Level::default());
        for level in 1..=level_count {
            let Some(delay) = delays.of(level as usize) else {
                continue;
            };
            let next = state.run_level(handle, &schedule, (level, delay), now);
            // A level that fails must not stop the others.
            due = due.and_then(|due| Ok(due.min(next?)));
        }
        due
    }

    /// The newest epoch of the log. It began when the first of the processes that have the store
    /// open for writing opened it.
    fn epoch(&self) -> Result<Option<Epoch>> {
        let Some(place) = self.place.as_ref().filter(|place| !place.is_flat()) else {
            return Ok(None);
        };
        let page = StatePage::open(&*place.disk, place.root(), Access::Read)?;
        Ok(page.and_then(|page| page.epochs().newest()))
    }

    /// The position of the first message that is not delivered; `u64::MAX` if there is none. Reads
    /// the saved table: after a crash, messages are delivered from there on. Takes no lock that is
    /// held during a flush, because the thread that flushes calls this.
    pub(super) fn keep_from(&self, handle: &Handle) -> Result<u64> {
        let (engine, Some(place)) = (&*handle.engine, &self.place) else {
            return Ok(u64::MAX);
        };
        if handle.joint().is_some() && schedule_of(engine).is_none() {
            // The table of topics does not list it, if another process has created it.
            engine.refresh(None)?;
        }
        let Some(schedule) = schedule_of(engine) else {
            return Ok(u64::MAX);
        };
        let mut saved = LevelTable::open(&*place.disk, &place.config(levels::FILE_NAME))?;
        lower(&mut saved, self.epoch()?, engine, &schedule)?;
        let mut keep = u64::MAX;
        for queue in engine.queues(&schedule) {
            let end = engine.bounds(&schedule, queue)?.map_or(0, |it| it.end);
            let next = saved.get(queue.saturating_add(1)).unwrap_or(0);
            // A table of a longer log says nothing about this queue.
            let next = if next <= end { next } else { 0 };
            keep = keep.min(position_from(engine, SCHEDULE_TOPIC, queue, next)?);
        }
        Ok(keep)
    }

    /// Whether [`Delay::save`] would write.
    pub(super) fn is_unsaved(&self) -> bool {
        let state = self.state.lock();
        state.as_ref().is_some_and(|state| !state.is_saved)
    }

    /// Saves the progress of delivery. Durable on return, and only after the delivered messages
    /// are.
    pub(super) fn save(&self, handle: &Handle, now: i64) -> Result<()> {
        let mut state = self.state.lock();
        let Some(state) = state.as_mut().filter(|state| !state.is_saved) else {
            return Ok(());
        };
        if !planted(Bug::LevelsAhead) {
            handle.engine.flush(&mut || true)?;
        }
        if let Some(place) = &self.place {
            let saved_in = state.epoch.map(saved_in);
            state.table.save(&*place.disk, saved_in, now)?;
        }
        state.is_saved = true;
        Ok(())
    }
}

impl State {
    /// Delivers what is due of one level at `now` by the wall clock.
    fn run_level(
        &mut self,
        handle: &Handle,
        schedule: &Topic,
        (level, delay): (u32, i64),
        now: i64,
    ) -> Result<Due> {
        let engine = &*handle.engine;
        let queue = level - 1;
        let Some(bounds) = engine.bounds(schedule, queue)? else {
            return Ok(Due::Never);
        };
        // Read after the bounds: no message was sent later.
        let now = Moment {
            wall_ms: now,
            steady_ms: handle.clock.steady_ms(),
        };
        let Some(known) = self.levels.get_mut(queue as usize) else {
            return Ok(Due::Never);
        };
        known.note(bounds.end, now, delay, || engine.newest_stored_ms());
        if let Some(left) = known.head.map(|head| left(head, now)).filter(|it| *it > 0) {
            return Ok(Due::At(now.wall_ms.saturating_add(left)));
        }
        known.head = None;
        self.pass_retired(handle, schedule, level, bounds.start);
        let mut next = self.table.get(level).unwrap_or(0).max(bounds.start);
        if next >= bounds.end {
            return Ok(Due::Never);
        }
        let range = next..bounds.end;
        let mut cursor = engine.cursor(schedule, queue, range, &Filter::default(), Check::Full)?;
        let mut rows = Rows::default();
        cursor.next(STEP_MAX, &mut rows)?;
        let mut due = match cursor.offset() < bounds.end {
            true => Due::Now,
            false => Due::Never,
        };
        let mut delivered = Delivered::to(handle);
        for message in rows.rows.iter().filter_map(|row| rows.message(row)) {
            let record = message.record();
            let offset = record.queue_offset().cast_unsigned();
            let due_ms = record.store_timestamp().saturating_add(delay);
            let known = self.levels.get(queue as usize);
            let by_steady = known.and_then(|known| known.due(offset, due_ms, delay));
            let head = Moment {
                wall_ms: due_ms,
                steady_ms: by_steady.unwrap_or(now.steady_ms),
            };
            let left = left(head, now);
            if left > 0 {
                due = Due::At(now.wall_ms.saturating_add(left));
                if let Some(known) = self.levels.get_mut(queue as usize) {
                    known.head = Some(head);
                }
                break;
            }
            // As in RocketMQ, the message keeps the properties about its delay.
            delivered.add(deliver_or_warn(handle, &message)?);
            next = offset + 1;
            self.set(level, next);
        }
        if !matches!(due, Due::At(_)) {
            self.set(level, cursor.offset());
        }
        Ok(due)
    }

    /// Passes over messages that were removed before they were delivered, and warns of them. The
    /// retention of a broker removes them.
    fn pass_retired(&mut self, handle: &Handle, schedule: &Topic, level: u32, start: u64) {
        // Without the table nobody knows what was delivered.
        let next = self.table.get(level).unwrap_or(start);
        if next < start {
            handle.warnings().add(Warning::Retired {
                topic: schedule.name.clone(),
                queue: level - 1,
                messages: start - next,
            });
            self.set(level, start);
        }
    }

    fn set(&mut self, level: u32, next: u64) {
        if self.table.get(level) != Some(next) {
            self.table.set(level, next);
            self.is_saved = false;
        }
    }
}

/// Lowers the progress of levels whose queues came back shorter, unless the table was saved in this
/// epoch. A table of an earlier one says nothing about what was sent since. Returns whether it has
/// changed the table.
fn lower(
    table: &mut LevelTable,
    epoch: Option<Epoch>,
    engine: &dyn Engine,
    schedule: &Topic,
) -> Result<bool> {
    let Some(epoch) = epoch.filter(|it| table.saved_in() != Some(saved_in(*it))) else {
        return Ok(false);
    };
    let began = Point::Position(epoch.start);
    let queues: BTreeSet<u32> = engine.queues(schedule).into_iter().collect();
    let mut is_lowered = false;
    for (level, next) in table.all() {
        let queue = level - 1;
        let before = match queues.contains(&queue) {
            true => engine.offset_at(schedule, queue, began)?,
            false => 0,
        };
        if next > before {
            table.set(level, before);
            is_lowered = true;
        }
    }
    Ok(is_lowered)
}

fn saved_in(epoch: Epoch) -> SavedIn {
    SavedIn {
        began_ns: epoch.began_ns,
        epoch: epoch.number,
    }
}

/// How many ms are left at `now` until one of the clocks has reached `due`.
fn left(due: Moment, now: Moment) -> i64 {
    let by_wall = due.wall_ms.saturating_sub(now.wall_ms);
    by_wall.min(due.steady_ms.saturating_sub(now.steady_ms))
}

/// The topic of messages with a delay level. If the times of a queue may decrease, its messages
/// would not be in delivery order, so messages with a level get a delivery time instead.
fn schedule_of(engine: &dyn Engine) -> Option<Arc<Topic>> {
    match engine.meanings().append_times {
        true => engine.topics().get(SCHEDULE_TOPIC),
        false => None,
    }
}

/// Whether a store has delayed messages, which may not have been delivered yet.
pub(super) fn has_messages(engine: &dyn Engine) -> Result<bool, Error> {
    let Some(schedule) = schedule_of(engine) else {
        return Ok(false);
    };
    for queue in engine.queues(&schedule) {
        if engine
            .bounds(&schedule, queue)?
            .is_some_and(|bounds| !bounds.is_empty())
        {
            return Ok(true);
        }
    }
    Ok(false)
}
