//! Repair: what is damaged is saved beside the log, holes of the log are filled, caches are put
//! right from the log.
//!
//! ```text
//!   survey --> save damaged bytes --> fill the holes --> queues --> index --> tables --> survey
//! ```
//!
//! Each step leaves a store that can be opened, and a repair that was cut short is made whole by
//! the next one: what was filled is no damage any more, the rest is found again. Messages are sent
//! and read meanwhile; who asks for a key waits while the index is built again.

use super::bridge::{can_fill, first};
use super::consume_queue::{ConsumeQueue, ENTRY_LEN, QueueEntry};
use super::index::is_indexed;
use super::kept;
use super::meant::leads_home;
use super::recover::{Belief, walk};
use super::retention::Pause;
use super::rewrite::rewrite;
use super::salvage;
use super::shared::Shared;
use super::verify::{survey, verify};
use super::verify_survey::{Hole, Survey};
use crate::engine::{DamageKind, Repair, RepairStep};
use crate::error::{Error, Result};
use crate::num::index;
use crate::record::Record;
use crate::record::properties::Known;
use std::collections::BTreeMap;

/// Repairs an open store. `progress` hears of bytes looked at and in all; while it does, false ends
/// the repair before anything is changed.
pub fn repair(shared: &Shared, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair> {
    shared.check_failed(false)?;
    shared.flush_to(shared.wrote())?;
    let end = shared.log.published();
    shared.dispatcher.catch_up(end)?;
    let mut found = survey(shared, progress)?;
    let mut repair = Repair::default();
    if found.stopped {
        return Ok(repair);
    }
    if found.found.damage.is_empty() && found.index_from.is_none() {
        // What a repair that was cut short has put right may be in the page cache alone.
        shared.settle()?;
        return Ok(repair);
    }
    let done = changes(shared, &mut found, &mut repair.steps);
    done.inspect_err(|error| {
        // What passes is no failure, and what was done so far is whole, or has failed the store.
        if error.ends_writing() {
            shared.fail(error);
        }
    })?;
    forget(shared);
    repair.left = verify(shared, &mut |_, _| true)?.damage;
    Ok(repair)
}

fn changes(shared: &Shared, found: &mut Survey, steps: &mut Vec<RepairStep>) -> Result<()> {
    let unsettled = shared.unsettle();
    bridge_holes(shared, found, steps)?;
    for hole in &found.holes {
        mark_lost(shared, hole, steps)?;
    }
    correct_entries(shared, found, steps)?;
    place_strays(shared, &found.strays, steps)?;
    if let Some(name) = found.index_from {
        let _queries = shared.rebuilding.write();
        rebuild_index(shared, name, steps)?;
    }
    drop(unsettled);
    // As in a settling: what the inventory tells of is durable when it is written.
    let flushed = shared.flush_all()?;
    rewrite_tables(shared, found, steps)?;
    shared.save_inventory(flushed)
}

/// Takes what was known of places that are looked at again, and of log files that are gone: the log
/// ends before them, or nothing but a filler is left of them.
fn forget(shared: &Shared) {
    use DamageKind::{Index, Log, Options, Queue, Retention};
    let checked = [Log, Queue, Index, Options, Retention];
    shared
        .report
        .retain(|damage| !checked.contains(&damage.kind));
}

/// Saves what lies in the holes, and fills them, file by file.
fn bridge_holes(shared: &Shared, found: &Survey, steps: &mut Vec<RepairStep>) -> Result<()> {
    let files = &shared.log.files;
    let newest = match found.last_store_ms {
        0 => shared.clock.now_ms(),
        store_ms => store_ms,
    };
    let mut parts: BTreeMap<u64, Vec<Hole>> = BTreeMap::new();
    for hole in &found.holes {
        let mut rest = hole.clone();
        if rest.store_ms == 0 {
            rest.store_ms = newest;
        }
        while !rest.range.is_empty() {
            let start = files.start_of(rest.range.start);
            let end = rest.range.end.min(start + files.file_len());
            let mut part = rest.clone();
            part.range.end = end;
            rest.range.start = end;
            rest.lost.clear();
            if can_fill(&part.range, &(start..start + files.file_len())) {
                parts.entry(start).or_default().push(part);
            }
        }
    }
    for (start, holes) in parts {
        let Some(_kept) = keep(shared, start) else {
            continue;
        };
        let path = files.path_of(start);
        let mut filled = Vec::with_capacity(holes.len());
        for hole in &holes {
            let len = hole.range.end - hole.range.start;
            let name = format!("{:020}-{len}", hole.range.start);
            let within = hole.range.start - start..hole.range.end - start;
            filled.push(RepairStep {
                path: path.clone(),
                position: hole.range.start,
                length: len,
                what: format!("filled the hole ({})", hole.reason),
                saved: salvage::save(shared, &path, within, &name)?,
                lost: hole.lost.clone(),
            });
        }
        rewrite(shared, start, &holes)?;
        steps.append(&mut filled);
    }
    Ok(())
}

/// Keeps retention from taking the file of a position away while it is worked on. `None` where it
/// has done so already: what was damaged there is gone with it.
fn keep(shared: &Shared, position: u64) -> Option<Pause<'_>> {
    let kept = shared.retention.pause();
    (position >= shared.log.min_position()).then_some(kept)
}

/// Adds a step, joined with the one before where they touch in a file.
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

/// Lets the entries of the messages that lay in a hole lead to what fills it.
fn mark_lost(shared: &Shared, hole: &Hole, steps: &mut Vec<RepairStep>) -> Result<()> {
    let _kept = shared.retention.pause();
    let files = &shared.log.files;
    let mut within = (files.start_of(hole.range.start)..hole.range.end)
        .step_by(index(files.file_len()))
        .map(|start| start..start + files.file_len());
    let bridge = within.find_map(|file| {
        let part = hole.range.start.max(file.start)..hole.range.end.min(file.end);
        first(&part, &file)
    });
    let entry = bridge.map_or(QueueEntry::FILLER, |bridge| QueueEntry::lost(&bridge));
    for (name, id, number) in &hole.lost {
        let topic = shared.topics.get(name);
        let Some(queue) = topic.and_then(|topic| shared.queues.get(&topic, *id)) else {
            continue;
        };
        if (queue.min()..queue.max()).contains(number) {
            shared.dispatcher.pause(|| queue.put(*number, entry))?;
            entry_step(shared, &queue, *number, LOST, steps);
        }
    }
    Ok(())
}

/// What is done with queue entries.
const LOST: &str = "marked queue entries whose messages are lost";
const RIGHT: &str = "put queue entries right";
const ADDED: &str = "added queue entries of records that had none";

fn entry_step(
    shared: &Shared,
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
    shared.queues.limit_maps();
}

/// Lets entries lead to their records, and marks those whose messages are lost.
fn correct_entries(shared: &Shared, found: &Survey, steps: &mut Vec<RepairStep>) -> Result<()> {
    for bad in &found.entries {
        let _kept = shared.retention.pause();
        if bad.number < bad.queue.min() {
            continue;
        }
        let entry = match bad.record {
            Some(position) => {
                let message = shared.log.require(position)?;
                entry_of(&message.record(), position)
            }
            None => {
                // A repair that was cut short has filled the hole that it leads into.
                let bridge = found.bridges.iter().find(|b| b.contains(&bad.position));
                bridge.map_or(QueueEntry::FILLER, QueueEntry::lost)
            }
        };
        shared
            .dispatcher
            .pause(|| bad.queue.put(bad.number, entry))?;
        let what = if bad.record.is_some() { RIGHT } else { LOST };
        entry_step(shared, &bad.queue, bad.number, what, steps);
        if let Some(step) = steps.last_mut() {
            step.lost.extend(bad.lost.clone());
        }
    }
    Ok(())
}

fn entry_of(record: &Record<'_>, position: u64) -> QueueEntry {
    let known = Known::read(record.raw_properties());
    QueueEntry::of(record, &known, position)
}

/// Puts records into their queues that no entry leads to. One whose place another record has stays
/// as it is.
fn place_strays(shared: &Shared, strays: &[u64], steps: &mut Vec<RepairStep>) -> Result<()> {
    for position in strays.iter().copied() {
        let Some(_kept) = keep(shared, position) else {
            continue;
        };
        let message = shared.log.require(position)?;
        let record = message.record();
        let name = String::from_utf8_lossy(record.topic()).into_owned();
        let id = u32::try_from(record.queue_id()).unwrap_or_default();
        let offset = u64::try_from(record.queue_offset()).unwrap_or_default();
        let placed = shared.dispatcher.pause(|| {
            let mut tail = shared.tail.lock();
            let (topic, _) = shared.topics.get_or_add(&name, id + 1);
            let queue = shared.queues.get_or_add(&topic, id);
            if let Some(there) = queue.entry(offset)?
                && leads_home(&shared.log, (&topic, id, offset), there)?
            {
                return Ok(None);
            }
            match queue.put(offset, entry_of(&record, position)) {
                Ok(_) => {}
                Err(Error::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            tail.raise_next_offset(&topic, id, queue.max());
            Ok(Some(queue))
        })?;
        if let Some(queue) = placed {
            entry_step(shared, &queue, offset, ADDED, steps);
        }
    }
    Ok(())
}

/// Drops the index files from `name` on and puts their keys again, from the log.
fn rebuild_index(shared: &Shared, name: u64, steps: &mut Vec<RepairStep>) -> Result<()> {
    let Some(index) = &shared.index else {
        return Ok(());
    };
    let mut put = 0;
    let page = &shared.log.state;
    let mut again = || {
        // Half an index is not whole, and looks as if it were: who opens the store next builds it
        // again, whatever ends this.
        page.set_unindexed(true);
        page.sync(&*shared.disk)?;
        index.drop_from(name)?;
        let end = shared.dispatcher.dispatched();
        let from = index.end_position()?.unwrap_or(shared.log.min_position());
        let mut visit = |record: &Record<'_>, position: u64, _: u64| -> Result<()> {
            if position < end && is_indexed(record) {
                let known = Known::read(record.raw_properties());
                put += index.put_missing(record, &known, position)?;
            }
            Ok(())
        };
        let walked = walk(&shared.log, from, Belief::below(end), &mut visit);
        page.count_exchange();
        walked?;
        // It need not be durable before the index is: the full pass that comes next syncs both.
        page.set_unindexed(false);
        Ok(())
    };
    let paused = || again().inspect_err(|error| shared.fail(error));
    shared.dispatcher.pause(paused)?;
    steps.push(RepairStep {
        path: shared.root.join("index").join(format!("{name:017}")),
        position: 0,
        length: 0,
        what: format!("dropped the index from this file on and put {put} entries again"),
        saved: None,
        lost: Vec::new(),
    });
    Ok(())
}

/// Saves the damaged tables and writes those that are ours; another system's are left.
fn rewrite_tables(shared: &Shared, found: &Survey, steps: &mut Vec<RepairStep>) -> Result<()> {
    for damage in &found.tables {
        let name = damage.path.file_name().unwrap_or_default();
        let saved_as = format!("{}-{}", name.to_string_lossy(), damage.length);
        let saved = salvage::save(shared, &damage.path, 0..damage.length, &saved_as)?;
        let what = match damage.kind {
            DamageKind::Topics => {
                let mut table = shared.table.lock();
                table.update(&shared.topics, shared.clock.now_ms());
                table.save(&*shared.disk)?;
                "written again from the queues"
            }
            DamageKind::ForeignTable => "left as it is: it is another system's",
            DamageKind::Checkpoint => {
                if let Some(checkpoint) = &shared.checkpoint {
                    checkpoint.reset(found.last_store_ms)?;
                    checkpoint.sync(&*shared.disk)?;
                }
                "written again"
            }
            DamageKind::Options => {
                kept::mend(&*shared.disk, &shared.root)?;
                "written again with the options that it names"
            }
            // The inventory is written behind everything else, the state page on opening.
            _ => "written again",
        };
        steps.push(RepairStep {
            path: damage.path.clone(),
            position: 0,
            length: damage.length,
            what: what.to_owned(),
            saved,
            lost: Vec::new(),
        });
    }
    Ok(())
}
