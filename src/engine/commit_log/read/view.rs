//! A reader's view of queues and log, which each call first brings up to date.
//!
//! In the process that writes the store, queues are built up to the readable end of the log. In
//! other processes the writer's marks are taken over ([`follow`]).

use super::cursor::{LogCursor, QueueCursor};
use super::{follow, query};
use crate::engine::commit_log::log::Lookup;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::engine::directory::page::Mark;
use crate::engine::{Check, Cursor, Filter, Point, Rows, Topic};
use crate::error::{Error, Result};
use crate::record::Message;
use std::ops::Range;
use std::sync::Arc;

/// Brings the view of one topic, or of all, up to date.
pub fn refresh(parts: &Parts, topic: Option<&str>) -> Result<()> {
    parts.catch_up();
    match topic {
        Some(name) => follow::refresh_topic(parts, name),
        None => follow::refresh(parts),
    }
}

/// Position up to which the log is durable.
pub fn durable_end(parts: &Parts) -> u64 {
    let _ = follow::refresh_log(parts);
    parts.log.state.get(Mark::Durable)
}

/// Position after the last message that a reader may see.
pub fn readable_end(parts: &Parts) -> u64 {
    let _ = follow::refresh_log(parts);
    let _ = parts.write_out();
    parts.log.readable_end()
}

/// A queue; `None` if it was never used.
pub fn queue(parts: &Parts, topic: &Topic, id: u32) -> Result<Option<Arc<ConsumeQueue>>> {
    parts.catch_up();
    if parts.queues.get(topic, id)?.is_none() {
        follow::refresh_queues(parts)?;
    }
    let Some(queue) = parts.queues.get(topic, id)? else {
        return Ok(None);
    };
    follow::extend(parts, topic, &queue)?;
    Ok(Some(queue))
}

/// Numbers of the queues that a topic has in its table, or that were ever used.
pub fn queue_ids(parts: &Parts, topic: &Topic) -> Vec<u32> {
    parts.catch_up();
    let mut ids = parts.queues.ids(topic);
    ids.extend(0..topic.write_queues());
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The offsets of a queue; `None` if it was never used and the topic does not have it.
pub fn bounds(parts: &Parts, topic: &Topic, id: u32) -> Result<Option<Range<u64>>> {
    let given = id < topic.write_queues().max(topic.read_queues());
    let found = queue(parts, topic, id)?.map(|queue| queue.min()..queue.max());
    Ok(found.or(given.then_some(0..0)))
}

/// The offset of the first message of a queue at or after `point`.
pub fn offset_at(parts: &Parts, topic: &Topic, id: u32, point: Point) -> Result<u64> {
    let Some(found) = queue(parts, topic, id)? else {
        return Ok(0);
    };
    match point {
        Point::Time(time) => query::offset_at(parts, topic, &found, time),
        Point::Position(end) if end >= parts.log.published() => Ok(found.max()),
        Point::Position(end) => found.end_below(end),
    }
}

/// How many messages fit into `bytes`; see [`Engine::fit`](crate::Engine::fit).
pub fn fit(
    parts: &Parts,
    topic: &Topic,
    id: u32,
    range: Range<u64>,
    bytes: u64,
) -> Result<(u64, u64)> {
    match queue(parts, topic, id)? {
        Some(queue) => queue.fit(range, bytes),
        None => Ok((range.start, 0)),
    }
}

/// A cursor over `range` of a queue, cut to its bounds.
pub fn cursor(
    parts: &Parts,
    topic: &Topic,
    id: u32,
    range: Range<u64>,
    filter: &Filter,
    check: Check,
) -> Result<Box<dyn Cursor>> {
    let found = queue(parts, topic, id)?;
    let Some((queue, topic)) = found.zip(parts.topics.by_id(topic.id)) else {
        return Ok(Box::new(EmptyCursor(range.start)));
    };
    let (log, report) = (&parts.log, &parts.report);
    let cursor = QueueCursor::new(log, topic, queue, range, filter, check, report);
    Ok(Box::new(cursor))
}

/// A cursor over the whole log.
pub fn log_cursor(parts: &Parts, check: Check) -> Result<Box<dyn Cursor>> {
    follow::refresh_log(parts)?;
    let _ = parts.write_out();
    let cursor = LogCursor::new(&parts.log, check, &parts.report);
    Ok(Box::new(cursor))
}

/// The message at an offset; `None` if it is outside the bounds of the queue.
///
/// # Errors
///
/// [`Error::Corrupt`] if the message is lost.
pub fn message(parts: &Parts, topic: &Topic, id: u32, offset: u64) -> Result<Option<Message>> {
    let range = offset..offset + 1;
    let mut cursor = cursor(parts, topic, id, range, &Filter::default(), Check::Full)?;
    let mut rows = Rows::default();
    cursor.next(1, &mut rows)?;
    if let Some(message) = rows.rows.first().and_then(|row| rows.message(row)) {
        return Ok(Some(message));
    }
    let Some(queue) = queue(parts, topic, id)? else {
        return Ok(None);
    };
    if offset < queue.min() || offset >= queue.max() {
        return Ok(None);
    }
    let entry = queue.entry(offset)?;
    let position = entry.map_or(0, |entry| entry.position);
    let files = &parts.log.files;
    let path = files.path_of(files.start_of(position));
    let reason = format!("the message at offset {offset} of {} is lost", topic.name);
    Err(Error::corrupt(path, position, reason))
}

/// The message whose record begins at `position`.
///
/// # Errors
///
/// [`Error::InvalidOption`] if no record begins there; [`Error::Corrupt`] if it is damaged.
pub fn message_at(parts: &Parts, position: u64) -> Result<Message> {
    let log = &parts.log;
    let (min, end) = (log.min_position(), readable_end(parts));
    if position < min || position >= end {
        let rule = format!("be between {min} and {end} (exclusive)");
        return Err(Error::must("position", position, rule));
    }
    // Bytes that do not even resemble a record mean a wrong position, not damage.
    let Lookup::Record(found) = log.record_at(position)? else {
        return Err(Error::option(
            "position",
            position,
            "no record begins there",
        ));
    };
    let message = log.require(position);
    if let Err(Error::Corrupt { reason, .. }) = &message {
        let name = String::from_utf8_lossy(found.record().topic()).into_owned();
        let topic = parts.topics.get(&name);
        query::report_record(parts, topic.as_deref(), position, reason)?;
    }
    message
}

/// A cursor without records.
struct EmptyCursor(u64);

impl Cursor for EmptyCursor {
    fn next(&mut self, _: usize, _: &mut Rows) -> Result<()> {
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.0
    }
}
