//! Reads from the log which messages wait.

use crate::engine::{Check, Engine, Filter, Rows, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::record::names::{DELIVER_AT, REAL_QID, REAL_TOPIC, TIMER_OFFSET, TIMER_TOPIC};
use crate::record::{Message, Row};
use crate::table::pending::PendingTable;
use std::ops::Range;

/// The queue of the timer topic.
pub(super) const QUEUE: u32 = 0;
/// Rows that one step of a cursor collects.
const WALK_ROWS: usize = 1_024;

/// Whether the log still reaches a position that an earlier process stored.
pub(super) fn is_reached(engine: &dyn Engine, position: u64) -> bool {
    !engine.meanings().lasting_positions || position <= engine.readable_position()
}

/// The message at an offset; `None` if it is retired or damaged. The read that finds damage reports
/// it.
pub(super) fn get(engine: &dyn Engine, topic: &Topic, offset: u64) -> Result<Option<Message>> {
    match engine.get(topic, QUEUE, offset) {
        Err(Error::Corrupt { .. }) => Ok(None),
        found => found,
    }
}

/// Position and store time of the message before `end`; `None` if it cannot be read.
pub(super) fn last_before(handle: &Handle, end: u64) -> Result<Option<(u64, i64)>> {
    let engine = &*handle.engine;
    let (Some(topic), Some(last)) = (engine.topics().get(TIMER_TOPIC), end.checked_sub(1)) else {
        return Ok(None);
    };
    Ok(get(engine, &topic, last)?.map(|message| identity(&message)))
}

fn identity(message: &Message) -> (u64, i64) {
    let record = message.record();
    (record.position().cast_unsigned(), record.store_timestamp())
}

/// Whether a table describes this log: the log has the last message that the table names.
pub(super) fn is_listed(
    engine: &dyn Engine,
    topic: &Topic,
    bounds: &Range<u64>,
    listed: &PendingTable,
) -> Result<bool> {
    let Some(last) = listed.delivered.end.checked_sub(1) else {
        return Ok(false);
    };
    if !bounds.contains(&last) || !is_reached(engine, listed.delivered.position) {
        return Ok(false);
    }
    let found = get(engine, topic, last)?;
    Ok(found.is_some_and(|message| identity(&message) == listed.last))
}

/// The delivery that a record states.
pub(super) struct Timed {
    pub(super) offset: u64,
    pub(super) at: i64,
    /// The offset in the timer topic of the message that it was made from.
    pub(super) of: Option<u64>,
}

impl Timed {
    pub(super) fn of(record: &Row<'_>) -> Option<Timed> {
        let text = |name: &str| str::from_utf8(record.property(name)?).ok();
        Some(Timed {
            offset: record.queue_offset().cast_unsigned(),
            at: text(DELIVER_AT)?.parse().ok()?,
            of: text(TIMER_OFFSET).and_then(|text| text.parse().ok()),
        })
    }
}

/// A topic and a queue that messages are meant for.
pub(super) type Target = (String, u32);

/// The topic and queue that a message names.
pub(super) fn target(record: &Row<'_>) -> Option<Target> {
    let text = |name: &str| str::from_utf8(record.property(name)?).ok();
    Some((text(REAL_TOPIC)?.to_owned(), text(REAL_QID)?.parse().ok()?))
}

/// Calls `each` with the records of a queue. Returns the offset after the last one.
pub(super) fn walk(
    engine: &dyn Engine,
    topic: &Topic,
    (queue, range): (u32, Range<u64>),
    mut each: impl FnMut(&Row<'_>),
) -> Result<u64> {
    let mut cursor = engine.cursor(topic, queue, range, &Filter::default(), Check::Full)?;
    let mut rows = Rows::default();
    while cursor.refill(WALK_ROWS, &mut rows)? {
        let records = rows.rows.iter().filter_map(|row| rows.record(row));
        records.for_each(|record| each(&record));
    }
    Ok(cursor.offset())
}
