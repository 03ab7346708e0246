//! Repairs queue entries: points them to their records again, marks them as lost, or adds them.

use super::keep;
use crate::engine::RepairStep;
use crate::engine::commit_log::log::bridge::first;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, ENTRY_LEN, QueueEntry};
use crate::engine::commit_log::read::meant::leads_home;
use crate::engine::commit_log::retention::Retention;
use crate::engine::commit_log::verify::inspection::{Inspection, LostRange};
use crate::error::{Error, Result};
use crate::num::index;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::Known;

/// What was done with queue entries.
const LOST: &str = "marked queue entries whose messages are lost";
const RIGHT: &str = "corrected queue entries";
const ADDED: &str = "added queue entries of records that had none";

/// Points the entries of the messages in a hole to the record that fills it.
pub fn mark_lost(
    parts: &Parts,
    retention: &Retention,
    hole: &LostRange,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    let _kept = retention.pause();
    let files = &parts.log.files;
    let mut within = (files.start_of(hole.range.start)..hole.range.end)
        .step_by(index(files.file_len()))
        .map(|start| start..start + files.file_len());
    let bridge = within.find_map(|file| {
        let part = hole.range.start.max(file.start)..hole.range.end.min(file.end);
        first(&part, &file)
    });
    let entry = bridge.map_or(QueueEntry::FILLER, |bridge| QueueEntry::lost(&bridge));
    for (name, id, number) in &hole.lost {
        let topic = parts.topics.get(name);
        let Some(topic) = topic else { continue };
        let Some(queue) = parts.queues.get(&topic, *id)? else {
            continue;
        };
        if (queue.min()..queue.max()).contains(number) {
            parts.dispatcher.pause(|| queue.put(*number, entry))?;
            entry_step(parts, &queue, *number, LOST, steps);
        }
    }
    Ok(())
}

/// Points entries to their records, and marks those whose messages are lost.
pub fn correct_entries(
    parts: &Parts,
    retention: &Retention,
    found: &Inspection,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    for bad in &found.entries {
        let _kept = retention.pause();
        if bad.number < bad.queue.min() {
            continue;
        }
        let entry = match bad.record {
            Some(position) => {
                let message = parts.log.require(position)?;
                entry_of(parts, &message.record().rocketmq(), position)
            }
            None => {
                // An interrupted repair has filled the hole that it points into.
                let at = found.bridges.partition_point(|it| it.end <= bad.position);
                let bridge = found.bridges.get(at);
                let bridge = bridge.filter(|it| it.contains(&bad.position));
                bridge.map_or(QueueEntry::FILLER, QueueEntry::lost)
            }
        };
        parts
            .dispatcher
            .pause(|| bad.queue.put(bad.number, entry))?;
        let what = if bad.record.is_some() { RIGHT } else { LOST };
        entry_step(parts, &bad.queue, bad.number, what, steps);
        if let Some(step) = steps.last_mut() {
            step.lost.extend(bad.lost.clone());
        }
    }
    Ok(())
}

/// Adds queue entries for records that have none. A record whose offset belongs to another record
/// gets none.
pub fn place_strays(
    parts: &Parts,
    retention: &Retention,
    strays: &[u64],
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    for position in strays.iter().copied() {
        let Some(_kept) = keep(parts, retention, position) else {
            continue;
        };
        let message = parts.log.require(position)?;
        let record = message.record().rocketmq();
        let name = String::from_utf8_lossy(record.topic()).into_owned();
        let id = u32::try_from(record.queue_id()).unwrap_or_default();
        let offset = u64::try_from(record.queue_offset()).unwrap_or_default();
        let placed = parts.dispatcher.pause(|| {
            let mut tail = parts.tail.lock();
            let (topic, _) = parts.topics.get_or_add(&name, id + 1);
            let queue = parts.queues.get_or_add(&topic, id)?;
            if let Some(there) = queue.entry(offset)?
                && leads_home(&parts.log, (&topic, id, offset), there)?
            {
                return Ok(None);
            }
            match queue.put(offset, entry_of(parts, &record, position)) {
                Ok(_) => {}
                Err(Error::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            tail.raise_next_offset(&topic, id, queue.max());
            Ok(Some(queue))
        })?;
        if let Some(queue) = placed {
            entry_step(parts, &queue, offset, ADDED, steps);
        }
    }
    Ok(())
}

fn entry_of(parts: &Parts, record: &Record<'_>, position: u64) -> QueueEntry {
    let known = Known::read(record.raw_properties());
    QueueEntry::of(record, &known, position, &parts.queues.store.delays)
}

fn entry_step(
    parts: &Parts,
    queue: &ConsumeQueue,
    number: u64,
    what: &str,
    steps: &mut Vec<RepairStep>,
) {
    let (path, position) = queue.place_of(number);
    let step = RepairStep {
        path,
        position,
        length: ENTRY_LEN,
        what: what.to_owned(),
        saved: None,
        lost: Vec::new(),
    };
    add_step(steps, step);
    parts.queues.limit_maps();
}

/// Adds a step. Merges it with the previous one if they are adjacent in a file.
fn add_step(steps: &mut Vec<RepairStep>, step: RepairStep) {
    if let Some(last) = steps.last_mut()
        && last.path == step.path
        && last.what == step.what
        && last.position + last.length == step.position
    {
        last.length += step.length;
        last.lost.extend(step.lost);
    } else {
        steps.push(step);
    }
}
