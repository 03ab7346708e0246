//! Verification: every record, queue entry and index entry, each against the log, and the tables.
//!
//! A stretch of the log that holds no record is one *hole*, whatever leads into it: the queue
//! entries that do name the messages that it costs, and the index entries that do are part of it.
//! Damaged entries that follow one another in a file are one place.

pub mod index;
pub mod stretch;
pub mod survey;
pub mod tables;

use super::log::Log;
use super::log::bridge::is_bridge;
use super::log::search::next_record;
use super::log::walker::{Step, Walker};
use super::parts::Parts;
use super::queues::queue::entry::queue_and_offset;
use super::queues::queue::{ConsumeQueue, ENTRY_LEN, QueueEntry};
use super::read::follow;
use super::read::locate::Search;
use super::read::meant::{is_meant, leads_home};
use crate::engine::{Damage, DamageKind, Topic, Verification};
use crate::error::Result;
use crate::record::properties::{Known, SCHEDULE_TOPIC};
use crate::record::{Flaw, Freshness, Record};
use index::index_entries;
use std::ops::Range;
use std::sync::Arc;
use survey::{BadEntry, Hole, Survey};
use tables::tables;

/// Bytes of the log between two reports of progress.
const PROGRESS_STEP: u64 = 16 << 20;

/// Checks a store as it is. `progress` hears of bytes done and in all; false ends the check.
pub fn verify(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
    survey(parts, progress).map(|survey| survey.found)
}

/// [`verify`], with what a repair needs to know.
pub fn survey(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Survey> {
    let mut survey = Survey::default();
    let log = &parts.log;
    let all = log.min_position()..log.published();
    if !records(parts, all, &mut survey, progress)? {
        survey.stopped = true;
        add_holes(parts, &mut survey);
        return Ok(survey);
    }
    for (topic, queue) in parts.queues.all(&parts.topics) {
        follow::extend(parts, &topic, &queue)?;
        entries(parts, &topic, &queue, 0..u64::MAX, &mut survey)?;
        parts.queues.limit_maps();
    }
    for file in parts.index.iter().flat_map(|index| index.files()) {
        index_entries(parts, &file, &mut survey)?;
    }
    finish(parts, &mut survey)?;
    Ok(survey)
}

/// Adds the tables, and what was found before; puts all in order.
pub(super) fn finish(parts: &Parts, survey: &mut Survey) -> Result<()> {
    survey.tables = tables(parts, survey.last_store_ms)?;
    survey.found.damage.extend(survey.tables.iter().cloned());
    add_known(parts, survey);
    add_holes(parts, survey);
    Ok(())
}

/// Checks the records that begin in `stretch`, which begins where a record may. A hole goes on to
/// the next record, wherever that is.
pub(super) fn records(
    parts: &Parts,
    stretch: Range<u64>,
    survey: &mut Survey,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<bool> {
    let log = &parts.log;
    let (start, end) = (stretch.start, stretch.end);
    let mut walker = Walker::new(log, start, end);
    let mut told = start;
    loop {
        let position = walker.position();
        if position >= told + PROGRESS_STEP {
            told = position;
            if !progress(position - start, end - start) {
                return Ok(false);
            }
        }
        let flaw = match walker.step()? {
            // Retention has taken it away meanwhile.
            Step::Flawed(_) if position < log.min_position() => {
                walker.move_to(log.min_position());
                continue;
            }
            Step::End => break,
            Step::Blank => continue,
            Step::Flawed(flaw) => flaw,
            Step::Record(at, layout) => {
                let Some(record) = walker.record(at, layout) else {
                    break;
                };
                match check(&record, position) {
                    Ok(freshness) => {
                        whole(parts, &record, position, survey)?;
                        survey.found.stale_checksums += u64::from(freshness == Freshness::Stale);
                        continue;
                    }
                    Err(flaw) => flaw,
                }
            }
        };
        let log_end = log.published();
        let next = next_record(log, position + 1, log_end)?.unwrap_or(log_end);
        survey.holes.push(Hole {
            range: position..next,
            reason: flaw.to_string(),
            store_ms: survey.last_store_ms,
            lost: Vec::new(),
        });
        walker.move_to(next);
    }
    Ok(progress(end - start, end - start))
}

fn check(record: &Record<'_>, position: u64) -> Result<Freshness, Flaw> {
    let freshness = record.check(position)?;
    record.check_body().map(|()| freshness)
}

/// Takes note of a record that holds: the holes before it get a store time, and its queue entry has
/// to be there.
fn whole(parts: &Parts, record: &Record<'_>, position: u64, survey: &mut Survey) -> Result<()> {
    survey.found.records += 1;
    if is_bridge(record) {
        let end = position + u64::from(record.layout().total_len);
        survey.bridges.push(position..end);
    }
    let store_ms = record.store_timestamp();
    if survey.last_store_ms == 0 {
        survey.holes.iter_mut().for_each(|h| h.store_ms = store_ms);
    }
    survey.last_store_ms = survey.last_store_ms.max(store_ms);
    if position >= parts.dispatcher.dispatched() {
        return Ok(());
    }
    if let Some(reason) = is_stray(parts, record, position)? {
        survey.strays.push(position);
        let log = &parts.log;
        survey.found.damage.push(Damage {
            kind: DamageKind::Log,
            path: log.files.path_of(log.files.start_of(position)),
            position,
            length: u64::from(record.layout().total_len),
            reason: format!("the record is in no queue: {reason}"),
            lost: named(record).into_iter().collect(),
        });
    }
    Ok(())
}

/// Topic, queue and offset that a record claims.
fn named(record: &Record<'_>) -> Option<(String, u32, u64)> {
    let topic = std::str::from_utf8(record.topic()).ok()?;
    let queue = u32::try_from(record.queue_id()).ok()?;
    let offset = u64::try_from(record.queue_offset()).ok()?;
    Some((topic.to_owned(), queue, offset))
}

/// Why no entry can lead to a record. An entry that is there and damaged is no reason: it is found
/// with its queue.
fn is_stray(parts: &Parts, record: &Record<'_>, position: u64) -> Result<Option<&'static str>> {
    let Some(((id, offset), name)) =
        queue_and_offset(record).zip(std::str::from_utf8(record.topic()).ok())
    else {
        return Ok(None);
    };
    let Some(topic) = parts.topics.get(name) else {
        return Ok(Some("its topic has no queue"));
    };
    let Some(queue) = parts.queues.get(&topic, id) else {
        return Ok(Some("its queue is missing"));
    };
    // In this order: retention moves the first position before it moves the first offsets.
    if offset < queue.min() && position >= parts.log.min_position() {
        return Ok(Some("its queue begins behind it"));
    }
    if parts.log.source.is_none() && offset >= queue.max() {
        return Ok(Some("its queue ends before it"));
    }
    let other = queue
        .entry(offset)?
        .filter(|entry| entry.position != position);
    let taken = match other {
        Some(other) => leads_home(&parts.log, (&topic, id, offset), other)?,
        None => false,
    };
    Ok(taken.then_some("another record has its queue offset"))
}

/// Checks the entries of a queue with these numbers, as far as they are there.
pub(super) fn entries(
    parts: &Parts,
    topic: &Arc<Topic>,
    queue: &Arc<ConsumeQueue>,
    numbers: Range<u64>,
    survey: &mut Survey,
) -> Result<()> {
    let log = &parts.log;
    let mut search = Search::default();
    for number in numbers.start.max(queue.min())..numbers.end.min(queue.max()) {
        let entry = queue.entry(number)?;
        if entry.is_some_and(|entry| entry.is_filler()) {
            continue;
        }
        let name = || (topic.name.to_string(), queue.id, number);
        // The record there may well look like the right one, but for its checksum.
        if let Some(hole) = entry.and_then(|entry| survey.hole_at(entry.position)) {
            hole.lost.push(name());
            continue;
        }
        let Some(reason) = flaw_of(log, topic, queue, number)? else {
            survey.found.queue_entries += 1;
            continue;
        };
        // Retention may have taken the message away meanwhile.
        let gone = entry.is_some_and(|entry| entry.position < log.min_position());
        if gone || number < queue.min() {
            continue;
        }
        let record = search.locate(log, topic, queue, number)?;
        let lost = record.is_none().then(name);
        survey.entries.push(BadEntry {
            queue: Arc::clone(queue),
            number,
            record,
            position: entry.map_or(0, |entry| entry.position),
            lost: lost.clone(),
        });
        let (path, position) = queue.place_of(number);
        survey.add_entry(Damage {
            kind: DamageKind::Queue,
            path,
            position,
            length: ENTRY_LEN,
            reason,
            lost: lost.into_iter().collect(),
        });
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
        return Ok(Some("the entry leads out of the log".to_owned()));
    }
    let Some(message) = log.record_at(entry.position)?.record() else {
        return Ok(Some("the entry leads to no record".to_owned()));
    };
    let record = message.record();
    if !is_meant(&record, (topic, queue.id, number)) {
        return Ok(Some("the entry leads to another's record".to_owned()));
    }
    if entry.size != record.layout().total_len {
        return Ok(Some(
            "the entry has another size than its record".to_owned(),
        ));
    }
    // A broker may have delivery times of its own for delayed messages.
    let known = Known::read(record.raw_properties());
    if &*topic.name != SCHEDULE_TOPIC
        && entry.tags_code != QueueEntry::of(&record, &known, entry.position).tags_code
    {
        return Ok(Some("the entry has another tag than its record".to_owned()));
    }
    Ok(None)
}

/// Adds what was found before and is not among what is found here.
fn add_known(parts: &Parts, survey: &mut Survey) {
    for damage in parts.report.all() {
        // Queues and index were checked as a whole, and a clock that jumped damages no file.
        let kind = damage.kind;
        if matches!(
            kind,
            DamageKind::Queue | DamageKind::Index | DamageKind::Clock
        ) {
            continue;
        }
        if kind == DamageKind::Log
            && let Some(hole) = survey.hole_at(damage.position)
        {
            // Opening has made fillers of the entries that led here.
            for lost in damage.lost {
                if !hole.lost.contains(&lost) {
                    hole.lost.push(lost);
                }
            }
            continue;
        }
        let same = |known: &Damage| {
            known.path == damage.path && known.position == damage.position
                || !damage.lost.is_empty() && damage.lost.iter().all(|l| known.lost.contains(l))
        };
        let in_hole = |hole: &Hole| {
            !damage.lost.is_empty() && damage.lost.iter().all(|lost| hole.lost.contains(lost))
        };
        if !survey.found.damage.iter().any(same) && !survey.holes.iter().any(in_hole) {
            survey.found.damage.push(damage);
        }
    }
}

/// Puts the holes before all else that is damaged.
fn add_holes(parts: &Parts, survey: &mut Survey) {
    let files = &parts.log.files;
    let holes = survey.holes.iter().map(|hole| Damage {
        kind: DamageKind::Log,
        path: files.path_of(files.start_of(hole.range.start)),
        position: hole.range.start,
        length: hole.range.end - hole.range.start,
        reason: hole.reason.clone(),
        lost: hole.lost.clone(),
    });
    let holes: Vec<Damage> = holes.collect();
    survey.found.damage.splice(0..0, holes);
}
