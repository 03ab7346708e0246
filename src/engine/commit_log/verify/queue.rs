//! Verifies the queues: each entry points to its record.

use super::inspection::{BadEntry, Inspection};
use crate::engine::Topic;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, QueueEntry};
use crate::engine::commit_log::read::locate::Search;
use crate::engine::commit_log::read::meant::is_meant;
use crate::error::Result;
use crate::options::DelayLevels;
use crate::record::rocketmq::properties::{Known, SCHEDULE_TOPIC};
use std::ops::Range;
use std::sync::Arc;

/// Checks the entries of a queue with these numbers, as far as they exist.
pub fn entries(
    parts: &Parts,
    topic: &Arc<Topic>,
    queue: &Arc<ConsumeQueue>,
    numbers: Range<u64>,
    inspection: &mut Inspection,
) -> Result<()> {
    let log = &parts.log;
    let mut search = Search::default();
    for number in numbers.start.max(queue.min())..numbers.end.min(queue.max()) {
        let entry = queue.entry(number)?;
        if entry.is_some_and(|entry| entry.is_filler()) {
            continue;
        }
        let name = || (topic.name.to_string(), queue.id, number);
        // The record there may seem right except for its checksum.
        if let Some(hole) = entry.and_then(|entry| inspection.hole_at(entry.position)) {
            hole.lost.push(name());
            continue;
        }
        let Some(reason) = flaw_of(log, topic, queue, number)? else {
            inspection.found.queue_entries += 1;
            continue;
        };
        // Retention may have deleted the message meanwhile.
        let gone = entry.is_some_and(|entry| entry.position < log.min_position());
        if gone || number < queue.min() {
            continue;
        }
        let record = search.locate(log, topic, queue, number)?;
        let lost = record.is_none().then(name);
        inspection.entries.push(BadEntry {
            queue: Arc::clone(queue),
            number,
            record,
            position: entry.map_or(0, |entry| entry.position),
            lost: lost.clone(),
        });
        inspection.add_entry(queue.damage(number, reason).losing(lost));
    }
    Ok(())
}

/// What is wrong with a queue entry.
fn flaw_of(
    log: &Arc<Log>,
    topic: &Topic,
    queue: &ConsumeQueue,
    number: u64,
) -> Result<Option<String>> {
    let Some(entry) = queue.entry(number)? else {
        return Ok(Some("no entry".to_owned()));
    };
    if !entry.is_message(log.published()) {
        return Ok(Some("the entry points outside the log".to_owned()));
    }
    let Some(message) = log.record_at(entry.position)?.record() else {
        return Ok(Some("the entry points to no record".to_owned()));
    };
    let record = message.record().rocketmq();
    if !is_meant(&record, (topic, queue.id, number)) {
        return Ok(Some(
            "the entry points to the record of another message".to_owned(),
        ));
    }
    if entry.size != record.layout().total_len {
        return Ok(Some(
            "the size in the entry is not that of its record".to_owned(),
        ));
    }
    // A broker may have other delivery times for delayed messages.
    let (known, delays) = (
        Known::read(record.raw_properties()),
        &DelayLevels::default(),
    );
    if &*topic.name != SCHEDULE_TOPIC
        && entry.tags_code != QueueEntry::of(&record, &known, entry.position, delays).tags_code
    {
        return Ok(Some(
            "the tag in the entry is not that of its record".to_owned(),
        ));
    }
    Ok(None)
}
