//! Taking messages from a lane.

use super::lane::{Delivery, Lane};
use super::lane_state::State;
use super::order::Order;
use super::patience::Threads;
use super::window::Window;
use crate::clock::Moment;
use crate::engine::{COPIED_MAX, Check, Engine, Filter, Rows, STEP};
use crate::error::{Error, Result};
use crate::meter::GetMeter;
use crate::plant::{Point, pass};
use crate::record::Message;
use crate::warning::Warning;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of rows per step of a cursor.
const STEP_ROWS: usize = 1024;
/// A call passes over at most about this many messages without a wanted tag, because it holds the
/// locks of a lane meanwhile. Its caller answers signals before it calls again.
const PASSED_OVER_MAX: u64 = 16 * STEP;

/// How messages are taken from a lane.
pub(super) struct Taking<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) gets: &'a GetMeter,
    pub(super) member: u64,
    pub(super) filter: &'a Filter,
    pub(super) order: Order,
    pub(super) now: Moment,
    /// When the taken messages become due again, by the steady clock.
    pub(super) deadline: i64,
    pub(super) max_unsettled: u64,
    /// Bytes that were read again or copied for the taken messages.
    pub(super) copied: Cell<u64>,
    /// Messages that the filter has refused, or that could not be read again.
    pub(super) passed_over: Cell<u64>,
}

impl Taking<'_> {
    /// Whether the call must take no more messages.
    pub(super) fn has_enough(&self) -> bool {
        self.copied.get() >= COPIED_MAX || self.passed_over.get() >= PASSED_OVER_MAX
    }

    fn pass_over(&self, messages: u64) {
        let passed_over = self.passed_over.get().saturating_add(messages);
        self.passed_over.set(passed_over);
    }

    fn passes(&self, message: &Message) -> bool {
        self.filter.is_empty() || self.filter.passes(&message.record())
    }
}

impl Lane {
    /// Adds up to `max` messages to `taken`, beginning with those that are due again. Returns
    /// whether the lane may have more right now.
    ///
    /// # Errors
    ///
    /// [`Error::LogShrunk`] if the queue ends before what the group has settled; errors of reading.
    /// Messages read before the error are in `taken`.
    pub(super) fn take(
        self: &Arc<Lane>,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<bool> {
        let mut state = self.current(by.now, Threads::Await)?;
        self.inherit_after(&mut state, by.now, Threads::Await)?;
        if state.owner != Some(by.member) || state.heir.is_some() {
            return Ok(false);
        }
        if let Some(end) = state.shrunk {
            return Err(self.shrunk(state.window.committed(), end));
        }
        let begin = taken.len();
        let more = self.take_owned(&mut state, by, max, taken);
        if !self.store(&mut state)? {
            // Another process owns the queue and will deliver the messages.
            taken.truncate(begin);
            return Ok(false);
        }
        more
    }

    fn take_owned(
        self: &Arc<Lane>,
        state: &mut State,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<bool> {
        let State {
            window, retries, ..
        } = state;
        if by.order == Order::Queue && window.is_out(by.now.steady_ms) {
            return Ok(false);
        }
        let begin = taken.len();
        self.take_again(window, by, max, taken)?;
        let seen = |again: &&Delivery| window.attempts(again.receipt.place().2) > 1;
        let again = taken.iter().skip(begin).filter(seen).count();
        by.gets.delivered(0, again);
        *retries += again as u64;
        let waits = by.order == Order::Queue && window.unsettled() > taken.len() - begin;
        let room = max - (taken.len() - begin);
        if waits || room == 0 {
            return Ok(false);
        }
        self.take_new(window, by, room, taken)
    }

    fn take_again(
        self: &Arc<Lane>,
        window: &mut Window,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<()> {
        let mut retired = 0;
        let mut failed = Ok(());
        let mut from = 0;
        let begin = taken.len();
        while taken.len() - begin < max && !by.has_enough() {
            let due = match by.order {
                Order::None => window.due(from, by.now.steady_ms),
                Order::Queue => window.due_in_order(from, by.now.steady_ms),
            };
            let Some(offset) = due else {
                break;
            };
            if by.order == Order::Queue && from == 0 {
                window.take_back_after(offset);
            }
            from = offset + 1;
            match by.engine.get(&self.topic, self.queue, offset) {
                // It was delivered to a consumer with another filter.
                Ok(Some(message)) if !by.passes(&message) => {
                    window.give_up(offset);
                    by.pass_over(1);
                }
                Ok(Some(message)) => {
                    let len = u64::from(message.record().layout().total_len());
                    by.copied.set(by.copied.get() + len);
                    let serial = window.deliver_again(offset, by.deadline);
                    taken.extend(serial.map(|serial| self.delivery(message, offset, serial)));
                }
                // It was retired, compacted or damaged meanwhile, so nobody can handle it.
                Ok(None) | Err(Error::Corrupt { .. } | Error::OffsetOutOfRange { .. }) => {
                    window.give_up(offset);
                    by.pass_over(1);
                    let bounds = by.engine.bounds(&self.topic, self.queue);
                    let is_retired = |bounds: Option<Range<u64>>| {
                        bounds.is_some_and(|bounds| offset < bounds.start)
                    };
                    retired += u64::from(bounds.is_ok_and(is_retired));
                }
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        if retired > 0 {
            self.warn_of_retired(by, retired);
        }
        failed
    }

    fn take_new(
        self: &Arc<Lane>,
        window: &mut Window,
        by: &Taking<'_>,
        max: usize,
        taken: &mut Vec<Delivery>,
    ) -> Result<bool> {
        let Some(bounds) = by.engine.bounds(&self.topic, self.queue)? else {
            return Ok(false);
        };
        if window.next() > bounds.end {
            return Err(self.shrunk(window.next(), bounds.end));
        }
        if window.next() < bounds.start {
            self.warn_of_retired(by, bounds.start - window.next());
            window.skip_to(bounds.start);
        }
        let begin = window.next();
        let end = bounds
            .end
            .min(window.committed().saturating_add(by.max_unsettled));
        if begin >= end {
            return Ok(false);
        }
        pass(Point::Bounded);
        let (topic, range) = (&self.topic, begin..end);
        let mut cursor = by
            .engine
            .cursor(topic, self.queue, range, by.filter, Check::Full)?;
        let mut rows = Rows::default();
        let mut left = max;
        let (mut has_more, mut is_held_up) = (true, false);
        while has_more && !is_held_up && left > 0 && !by.has_enough() {
            rows.clear();
            let before = cursor.offset();
            has_more = cursor.step(left.min(STEP_ROWS), &mut rows)?;
            let visited = cursor.offset() - before;
            // The cursor is searching the log for a lost message. The locks are released meanwhile.
            is_held_up = has_more && visited == 0;
            let passed_over = visited.saturating_sub(rows.rows.len() as u64);
            by.pass_over(passed_over);
            if rows.retired > 0 {
                // Retention has deleted them since the bounds were read.
                self.warn_of_retired(by, rows.retired);
            }
            left -= rows.rows.len();
            by.copied.set(by.copied.get() + rows.copied);
            for message in rows.rows.iter().filter_map(|row| rows.message(row)) {
                let offset = message.record().queue_offset().cast_unsigned();
                let serial = window.deliver(offset, by.deadline);
                taken.push(self.delivery(message, offset, serial));
            }
        }
        window.skip_to(cursor.offset());
        Ok(is_held_up || window.next() < bounds.end && window.next() > begin)
    }

    fn warn_of_retired(&self, by: &Taking<'_>, messages: u64) {
        by.engine.report().warnings.add(Warning::Retired {
            topic: self.topic.name.clone(),
            queue: self.queue,
            messages,
        });
    }

    fn shrunk(&self, offset: u64, end: u64) -> Error {
        Error::LogShrunk {
            topic: self.topic.name.to_string(),
            queue: self.queue,
            offset,
            end,
        }
    }
}
