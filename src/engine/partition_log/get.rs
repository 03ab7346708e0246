//! One message, by its offset.

use super::PartitionLog;
use crate::engine::{Check, Cursor, Damage, Filter, Rows, Topic};
use crate::error::{Error, Result};
use crate::record::Message;

/// The message with this offset; `None` outside the bounds of the queue.
///
/// # Errors
///
/// [`Error::Corrupt`] if damage has destroyed it; [`Error::OffsetOutOfRange`] if the log has no
/// message there; errors of reading.
pub(super) fn get(
    engine: &PartitionLog,
    topic: &Topic,
    queue: u32,
    offset: u64,
) -> Result<Option<Message>> {
    let found = engine.existing(topic, queue)?;
    let bounds = found.1.bounds.clone();
    if !bounds.contains(&offset) {
        return Ok(None);
    }
    let damaged = engine.shared.report.damaged();
    let all = Filter::default();
    let mut cursor = engine.cursor_over(found, offset..bounds.end, &all, Check::Full);
    let mut rows = Rows::default();
    cursor.next(1, &mut rows)?;
    let message = rows.rows.first().and_then(|row| rows.message(row));
    let there = message
        .as_ref()
        .map(|it| it.record().queue_offset().cast_unsigned());
    if there == Some(offset) {
        return Ok(message);
    }
    let report = &engine.shared.report;
    let place = report.place_of(&topic.name, queue, offset);
    if place.is_some() || report.damaged() > damaged {
        return Err(lost(engine, place));
    }
    // The offset is in a gap that compaction left, or has a control record or an uncommitted one.
    Err(Error::OffsetOutOfRange {
        topic: topic.name.to_string(),
        queue,
        offset: offset.cast_signed(),
        min: there.unwrap_or(bounds.end),
        max: bounds.end,
    })
}

/// The error for a message that damage has destroyed.
fn lost(engine: &PartitionLog, place: Option<Damage>) -> Error {
    match place.or_else(|| engine.shared.report.last()) {
        Some(place) => Error::corrupt(place.path, place.position, place.reason),
        None => Error::corrupt(&engine.root, 0, ""),
    }
}
