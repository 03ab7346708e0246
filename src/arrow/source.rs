//! The source of the records of a scan. It is created at the start of a stream and is a snapshot:
//! messages sent later are not in it.

use crate::engine::{Cursor, Filter, RowRef, Rows};
use crate::error::Result;
use crate::record::{Message, Row};

/// Steps of a cursor in one call of [`Source::fill`]. A queue may end in each of them.
const STEPS: usize = 64;
/// A call of [`Source::fill`] adds no more records once the cursors have copied this many bytes.
const COPIED_MAX: u64 = 4 << 20;

/// The records of a scan, in order.
///
/// A source owns its cursors and the regions that they hold, but no handle of the store, so it does
/// not prevent the store from closing.
pub struct Source(Kind);

enum Kind {
    /// Queue by queue, the next one last. A cursor is dropped as soon as it has ended.
    Queues(Vec<Box<dyn Cursor>>),
    /// The log in order of position.
    Log(LogWalk),
    /// Messages found earlier, the next one last.
    Found(Vec<Message>),
}

struct LogWalk {
    cursor: Box<dyn Cursor>,
    end: u64,
    filter: Filter,
    done: bool,
}

impl Source {
    /// One queue after another.
    pub fn queues(mut cursors: Vec<Box<dyn Cursor>>) -> Source {
        cursors.reverse();
        Source(Kind::Queues(cursors))
    }

    /// The log below the position `end`: records that belong to a queue and pass the filter.
    pub fn log(cursor: Box<dyn Cursor>, end: u64, filter: Filter) -> Source {
        Source(Kind::Log(LogWalk {
            cursor,
            end,
            filter,
            done: false,
        }))
    }

    /// Messages in the given order.
    pub fn found(mut messages: Vec<Message>) -> Source {
        messages.reverse();
        Source(Kind::Found(messages))
    }

    /// Adds up to `rows_max` records. It examines few at a time, so it may add none although more
    /// follow. Returns false once the source has ended.
    pub fn fill(&mut self, rows_max: usize, rows: &mut Rows) -> Result<bool> {
        match &mut self.0 {
            Kind::Queues(cursors) => {
                for _ in 0..STEPS {
                    let before = rows.rows.len();
                    let Some(cursor) = cursors.last_mut().filter(|_| !is_full(rows, rows_max))
                    else {
                        break;
                    };
                    if !cursor.step(rows_max - before, rows)? {
                        cursors.pop();
                    }
                }
                Ok(!cursors.is_empty())
            }
            Kind::Log(walk) => walk.fill(rows_max, rows),
            Kind::Found(messages) => {
                while rows.rows.len() < rows_max {
                    let Some(message) = messages.pop() else { break };
                    let (region, start) = message.place();
                    rows.push(region, start, message.record().layout());
                }
                Ok(!messages.is_empty())
            }
        }
    }

    /// Leaks the cursors. In a child process after `fork` their locks may be held by threads that
    /// do not exist there, and dropping them could wait forever.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.0, Kind::Found(Vec::new())));
    }
}

fn is_full(rows: &Rows, rows_max: usize) -> bool {
    rows.rows.len() >= rows_max || rows.copied >= COPIED_MAX
}

impl LogWalk {
    fn fill(&mut self, rows_max: usize, rows: &mut Rows) -> Result<bool> {
        for _ in 0..STEPS {
            let before = rows.rows.len();
            if self.done || is_full(rows, rows_max) {
                break;
            }
            self.cursor.next(rows_max - before, rows)?;
            self.done = rows.rows.len() == before;
            self.select(before, rows);
        }
        Ok(!self.done)
    }

    /// Drops those rows from `first` on that do not belong to the scan.
    fn select(&mut self, first: usize, rows: &mut Rows) {
        let mut kept = first;
        for index in first..rows.rows.len() {
            let Some(row) = rows.rows.get(index).copied() else {
                break;
            };
            let record = record(rows, &row);
            if record.position() as u64 >= self.end {
                self.done = true;
                break;
            }
            if record.is_queued() && (self.filter.is_empty() || self.filter.passes(&record)) {
                rows.rows.swap(kept, index);
                kept += 1;
            }
        }
        rows.rows.truncate(kept);
    }
}

/// The record of a row of these rows.
#[inline]
pub(crate) fn record<'a>(rows: &'a Rows, row: &RowRef) -> Row<'a> {
    there(rows.record(row))
}

#[inline]
fn there(record: Option<Row<'_>>) -> Row<'_> {
    match record {
        Some(record) => record,
        None => unreachable!("a cursor adds a row together with its region and below its mark"),
    }
}

/// The records of some of these rows.
#[inline]
pub(crate) fn records<'a>(
    rows: &'a Rows,
    some: &'a [RowRef],
) -> impl ExactSizeIterator<Item = Row<'a>> {
    rows.records(some).map(there)
}
