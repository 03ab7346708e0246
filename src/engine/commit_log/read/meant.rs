//! Whether a record belongs to a queue entry: it has the entry's topic, queue and offset.

use crate::engine::Topic;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::queues::queue::entry::QueueEntry;
use crate::error::Result;
use crate::record::Flaw;
use crate::record::rocketmq::Record;

/// The topic, queue and offset of an entry.
pub type Meant<'a> = (&'a Topic, u32, u64);

/// Whether a record has this topic, queue and offset.
#[inline]
pub fn is_meant(record: &Record<'_>, (topic, queue, offset): Meant<'_>) -> bool {
    record.queue_offset() == offset.cast_signed()
        && record.queue_id() == queue.cast_signed()
        && record.topic() == topic.name.as_bytes()
}

/// The record at the start of `bytes`, if it states `position` and belongs to the entry.
#[inline]
pub fn check_record<'a>(
    bytes: &'a [u8],
    position: u64,
    meant: Meant<'_>,
) -> Result<Record<'a>, Flaw> {
    let record = Record::parse(bytes)?;
    if record.position() != position.cast_signed() {
        return Err(Flaw::Position(record.position()));
    }
    if !is_meant(&record, meant) {
        return Err(Flaw::Field(
            "queue entry: the record belongs to another message",
        ));
    }
    Ok(record)
}

/// Whether an entry points to a sound record that belongs to it.
///
/// # Errors
///
/// As [`Log::record_at`].
pub fn leads_home(log: &Log, meant: Meant<'_>, entry: QueueEntry) -> Result<bool> {
    let found = log.checked_record_at(entry.position)?.record();
    Ok(found.is_some_and(|message| {
        let record = message.record().rocketmq();
        is_meant(&record, meant) && record.layout().total_len == entry.size
    }))
}
