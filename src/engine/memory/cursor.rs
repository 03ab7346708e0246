//! Cursors of the memory engine. They share its tables and still work after it is closed.

use super::state::State;
use crate::engine::{Cursor, Filter, Rows, STEP};
use crate::error::Result;
use crate::sync::RwLock;
use std::ops::Range;
use std::sync::Arc;

/// Walks a queue.
pub(super) struct QueueCursor {
    state: Arc<RwLock<State>>,
    topic: u32,
    queue: u32,
    range: Range<u64>,
    filter: Filter,
}

impl QueueCursor {
    /// A cursor over `range`, which ends within the bounds of the queue, given as topic and number.
    pub(super) fn new(
        state: Arc<RwLock<State>>,
        (topic, queue): (u32, u32),
        range: Range<u64>,
        filter: Filter,
    ) -> QueueCursor {
        QueueCursor {
            state,
            topic,
            queue,
            range,
            filter,
        }
    }

    /// Visits up to [`STEP`] records and adds those that pass, up to `rows_max`. The lock is held
    /// for that long only, so that a filter that passes few records does not block senders.
    fn visit(&mut self, rows_max: usize, rows: &mut Rows) {
        let state = self.state.read();
        let whole = self.filter.is_empty();
        let step_end = self.range.end.min(self.range.start.saturating_add(STEP));
        while self.range.start < step_end && rows.rows.len() < rows_max {
            let position = state.position_of(self.topic, self.queue, self.range.start);
            self.range.start += 1;
            let Some(position) = position else { continue };
            let record = state.record(position);
            if whole || record.is_some_and(|record| self.filter.passes(&record)) {
                state.push_row(position, rows);
            }
        }
    }
}

impl Cursor for QueueCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        let before = rows.rows.len();
        let rows_max = before.saturating_add(max_rows);
        while !self.range.is_empty() && rows.rows.len() == before && max_rows > 0 {
            self.visit(rows_max, rows);
        }
        Ok(())
    }

    fn step(&mut self, max_rows: usize, rows: &mut Rows) -> Result<bool> {
        self.visit(rows.rows.len().saturating_add(max_rows), rows);
        Ok(!self.range.is_empty())
    }

    fn offset(&self) -> u64 {
        self.range.start
    }
}

/// Walks the log.
pub(super) struct LogCursor {
    state: Arc<RwLock<State>>,
    range: Range<u64>,
}

impl LogCursor {
    /// A cursor over `range`, which ends within the log.
    pub(super) fn new(state: Arc<RwLock<State>>, range: Range<u64>) -> LogCursor {
        LogCursor { state, range }
    }
}

impl Cursor for LogCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        let state = self.state.read();
        for position in self.range.by_ref().take(max_rows) {
            state.push_row(position, rows);
        }
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.range.start
    }
}
