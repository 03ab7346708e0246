//! Repair: saves damaged bytes beside the log, fills holes of the log, and corrects queues, index
//! and tables from the log.
//!
//! ```text
//!   inspect --> save damaged bytes --> fill the holes --> queues --> index --> tables --> inspect
//! ```
//!
//! After each step the store can be opened, and another repair completes one that was interrupted:
//! filled holes are no longer damage, and the rest is found again. Messages can be sent and read
//! meanwhile. A query by key waits while the index is rebuilt.

pub mod rewrite;
pub mod turn;

use super::index::is_indexed;
use super::log::bridge::{can_fill, first};
use super::log::walk::{Belief, walk};
use super::parts::Parts;
use super::queues::queue::{ConsumeQueue, ENTRY_LEN, QueueEntry};
use super::read::meant::leads_home;
use super::retention::{Pause, Retention};
use crate::engine::directory::{kept_options, names, salvage};
use rewrite::rewrite;

use super::verify::inspection::{Inspection, LostRange};
use super::verify::{inspect, verify};
use crate::engine::{DamageKind, Repair, RepairStep};
use crate::error::{Error, Result};
use crate::num::index;
use crate::options::EngineKind;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::Known;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Repairs an open store. `progress` receives the bytes inspected and the total. If it returns
/// false during the inspection, the repair ends without changes.
pub fn repair(
    parts: &Parts,
    retention: &Retention,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Repair> {
    parts.health.check()?;
    parts.flush_to(parts.wrote())?;
    let end = parts.log.published();
    parts.dispatcher.catch_up(end)?;
    let mut found = inspect(parts, progress)?;
    let mut repair = Repair::default();
    if found.stopped {
        return Ok(repair);
    }
    if found.found.damage.is_empty() && found.index_from.is_none() {
        // Changes of an interrupted repair may be only in the page cache.
        parts.full_pass()?;
        return Ok(repair);
    }
    let done = changes(parts, retention, &mut found, &mut repair.steps);
    done.inspect_err(|error| {
        // A temporary error is no failure: the changes so far are complete, or have failed the
        // store.
        if error.ends_writing() {
            parts.fail(error);
        }
    })?;
    forget(parts);
    repair.left = verify(parts, &mut |_, _| true)?.damage;
    Ok(repair)
}

/// The directory for damaged bytes.
fn damaged(parts: &Parts) -> PathBuf {
    parts.root.join("damaged")
}

fn changes(
    parts: &Parts,
    retention: &Retention,
    found: &mut Inspection,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    let withdrawn = parts.withdraw_full_pass();
    bridge_holes(parts, retention, found, steps)?;
    for hole in &found.holes {
        mark_lost(parts, retention, hole, steps)?;
    }
    correct_entries(parts, retention, found, steps)?;
    place_strays(parts, retention, &found.strays, steps)?;
    if let Some(name) = found.index_from {
        let _queries = parts.rebuilding.write();
        rebuild_index(parts, name, steps)?;
    }
    drop(withdrawn);
    // As in a full pass: what the inventory describes is durable when it is saved.
    let flushed = parts.flush_all()?;
    rewrite_tables(parts, found, steps)?;
    parts.save_inventory(flushed)
}

/// Removes known damage of the kinds that are checked again, also in log files that no longer
/// exist: the log ends before them, or only a BLANK is left of them.
fn forget(parts: &Parts) {
    use DamageKind::{Index, Log, Options, Queue, Retention};
    let checked = [Log, Queue, Index, Options, Retention];
    parts
        .report
        .retain(|damage| !checked.contains(&damage.kind));
}

/// Saves the bytes in the holes, then fills the holes, file by file.
fn bridge_holes(
    parts: &Parts,
    retention: &Retention,
    found: &Inspection,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    let files = &parts.log.files;
    let newest = match found.last_store_ms {
        0 => parts.clock.now_ms(),
        store_ms => store_ms,
    };
    let mut by_file: BTreeMap<u64, Vec<LostRange>> = BTreeMap::new();
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
                by_file.entry(start).or_default().push(part);
            }
        }
    }
    for (start, holes) in by_file {
        let Some(_kept) = keep(parts, retention, start) else {
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
                saved: salvage::save(&*parts.disk, (&path, within), (&damaged(parts), &name))?,
                lost: hole.lost.clone(),
            });
        }
        rewrite(parts, start, &holes)?;
        steps.append(&mut filled);
    }
    Ok(())
}

/// Keeps retention from deleting the file at a position during the work. `None` if it is already
/// deleted, and its damage with it.
fn keep<'a>(parts: &Parts, retention: &'a Retention, position: u64) -> Option<Pause<'a>> {
    let kept = retention.pause();
    (position >= parts.log.min_position()).then_some(kept)
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

/// Points the entries of the messages in a hole to the record that fills it.
fn mark_lost(
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

/// What was done with queue entries.
const LOST: &str = "marked queue entries whose messages are lost";
const RIGHT: &str = "corrected queue entries";
const ADDED: &str = "added queue entries of records that had none";

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

/// Points entries to their records, and marks those whose messages are lost.
fn correct_entries(
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
                let bridge = found.bridges.iter().find(|b| b.contains(&bad.position));
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

fn entry_of(parts: &Parts, record: &Record<'_>, position: u64) -> QueueEntry {
    let known = Known::read(record.raw_properties());
    QueueEntry::of(record, &known, position, &parts.queues.store.delays)
}

/// Adds queue entries for records that have none. A record whose offset belongs to another one
/// stays without.
fn place_strays(
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

/// Drops the index files from `name` on and puts their keys again, from the log.
fn rebuild_index(parts: &Parts, name: u64, steps: &mut Vec<RepairStep>) -> Result<()> {
    let Some(index) = &parts.index else {
        return Ok(());
    };
    let mut put = 0;
    let page = &parts.log.state;
    let mut again = || {
        // A partial index looks complete. If this is interrupted, the next opening rebuilds it.
        page.set_unindexed(true);
        page.sync(&*parts.disk)?;
        index.drop_from(name)?;
        let end = parts.dispatcher.dispatched();
        let from = index.end_position()?.unwrap_or(parts.log.min_position());
        let mut visit = |record: &Record<'_>, position: u64, _: u64| -> Result<()> {
            if position < end && is_indexed(record) {
                let known = Known::read(record.raw_properties());
                put += index.put_missing(record, &known, position)?;
            }
            Ok(())
        };
        let walked = walk(&parts.log, from, Belief::below(end), &mut visit);
        page.next_generation();
        walked?;
        // It need not be durable before the index is: the following full pass syncs both.
        page.set_unindexed(false);
        Ok(())
    };
    let paused = || again().inspect_err(|error| parts.fail(error));
    parts.dispatcher.pause(paused)?;
    steps.push(RepairStep {
        path: parts.root.join(names::INDEX).join(format!("{name:017}")),
        position: 0,
        length: 0,
        what: format!("rebuilt the index from this file on: {put} entries"),
        saved: None,
        lost: Vec::new(),
    });
    Ok(())
}

/// Saves the damaged tables and rewrites those of Forebay; another system's are left unchanged.
fn rewrite_tables(parts: &Parts, found: &Inspection, steps: &mut Vec<RepairStep>) -> Result<()> {
    for damage in &found.tables {
        let name = damage.path.file_name().unwrap_or_default();
        let saved_as = format!("{}-{}", name.to_string_lossy(), damage.length);
        let from = (&*damage.path, 0..damage.length);
        let saved = salvage::save(&*parts.disk, from, (&damaged(parts), &saved_as))?;
        let what = match damage.kind {
            DamageKind::Topics => {
                let mut table = parts.table.lock();
                table.update(&parts.topics, parts.clock.now_ms());
                table.save(&*parts.disk)?;
                "rewritten from the queues"
            }
            DamageKind::ForeignTable => "left unchanged: it belongs to another system",
            DamageKind::Checkpoint => {
                if let Some(checkpoint) = &parts.flushing.checkpoint {
                    checkpoint.reset(found.last_store_ms)?;
                    checkpoint.sync(&*parts.disk)?;
                }
                "rewritten"
            }
            DamageKind::Options => {
                kept_options::mend(&*parts.disk, &parts.root, EngineKind::CommitLog)?;
                kept_options::MENDED
            }
            // The inventory is written after everything else, the state page by the next opening.
            _ => "rewritten",
        };
        steps.push(RepairStep::of_file(damage, what, saved));
    }
    Ok(())
}
