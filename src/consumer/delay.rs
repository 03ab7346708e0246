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
//! `config/delayOffset.json` has `next` of each level, as in RocketMQ. It is written after the log
//! is durable up to what was delivered. After a crash, messages delivered since the last write are
//! delivered again, and none is lost.

use super::deliver::{Delivered, deliver};
use super::service::Due;
use crate::engine::{Check, Engine, Filter, Rows, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::num::short;
use crate::plant::{Bug, planted};
use crate::record::names::SCHEDULE_TOPIC;
use crate::sync::Mutex;
use crate::table::TablePlace;
use crate::table::levels::{self, LevelTable};
use std::sync::Arc;

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
    is_saved: bool,
    /// When the first message of each level is due, if known. All others of the level are due
    /// later.
    heads: Vec<Option<i64>>,
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
            *state = Some(State {
                table,
                is_saved: true,
                heads: Vec::new(),
            });
        }
        let Some(state) = &mut *state else {
            return Ok(Due::Never);
        };
        let mut due = Due::Never;
        let delays = handle.options.delay_levels();
        // The store may have had more levels.
        let level_count = schedule.write_queues().max(short(delays.all_ms().len()));
        state.heads.resize(level_count as usize, None);
        for level in 1..=level_count {
            let Some(delay) = delays.of(level as usize) else {
                continue;
            };
            let head = state.heads.get(level as usize - 1).copied().flatten();
            // After the clock was set back, no message waits longer than the delay of its level.
            let is_before = |at: &i64| now < *at && *at <= now.saturating_add(delay);
            let level_due = match head.filter(is_before) {
                Some(at) => Due::At(at),
                None => state.run_level(handle, &schedule, level, delay, now)?,
            };
            if let Some(head) = state.heads.get_mut(level as usize - 1) {
                *head = match level_due {
                    Due::At(at) => Some(at),
                    Due::Now | Due::Never => None,
                };
            }
            due = due.min(level_due);
        }
        Ok(due)
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
            state.table.save(&*place.disk, now)?;
        }
        state.is_saved = true;
        Ok(())
    }
}

impl State {
    /// Delivers what is due of one level.
    fn run_level(
        &mut self,
        handle: &Handle,
        schedule: &Topic,
        level: u32,
        delay: i64,
        now: i64,
    ) -> Result<Due> {
        let engine = &*handle.engine;
        let queue = level - 1;
        let Some(bounds) = engine.bounds(schedule, queue)? else {
            return Ok(Due::Never);
        };
        // If the log came back shorter, nothing after its end was delivered.
        let stored = self.table.get(level).unwrap_or(0);
        let mut next = stored.clamp(bounds.start, bounds.end);
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
            let at = record.store_timestamp().saturating_add(delay);
            let at = at.min(now.saturating_add(delay));
            if at > now {
                due = Due::At(at);
                break;
            }
            // As in RocketMQ, the message keeps the properties about its delay.
            delivered.add(deliver(handle, &message, &[], &[])?);
            next = record.queue_offset().cast_unsigned() + 1;
            self.set(level, next);
        }
        if !matches!(due, Due::At(_)) {
            self.set(level, cursor.offset());
        }
        Ok(due)
    }

    fn set(&mut self, level: u32, next: u64) {
        if self.table.get(level) != Some(next) {
            self.table.set(level, next);
            self.is_saved = false;
        }
    }
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
