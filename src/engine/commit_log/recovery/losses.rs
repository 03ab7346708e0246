//! Messages that were lost with a part of the log: their offsets stay used, and reports name them.
//!
//! Holes are in the order of the log. There may be as many holes as records, so no step goes over
//! all of them for each entry or queue.

use super::begin::Begin;
use super::find::Found;
use super::load::Loaded;
use super::place::Gap;
use crate::damage::Lost;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walk::Hole;
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, QueueEntry};
use crate::engine::report::{LOST_MAX, Report};
use crate::engine::{Damage, Topic};
use crate::error::Result;
use crate::record::Flaw;
use crate::region::Access;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Index of the first hole that ends after a position of the log.
fn first_after(holes: &[Hole], position: u64) -> usize {
    holes.partition_point(|hole| hole.range.end <= position)
}

/// Raises the end of a queue past the entries after it that point into holes: the log held their
/// messages, so their offsets are used.
pub fn pass_holes(queue: &ConsumeQueue, holes: &[Hole]) -> Result<()> {
    let mut max = queue.max();
    while let Some(entry) = queue.entry(max)?
        && let Some(hole) = holes.get(first_after(holes, entry.position))
        && is_within(&entry, &hole.range)
    {
        max += 1;
    }
    queue.extend_to(max);
    Ok(())
}

/// As [`pass_holes`], for the `missing` end of the log. The entries become fillers, because new
/// records will take the positions that they point to.
pub fn pass_missing(queue: &ConsumeQueue, missing: &Range<u64>) -> Result<()> {
    let is_lost = |number: u64| -> Result<bool> {
        Ok(queue
            .entry(number)?
            .is_some_and(|entry| is_within(&entry, missing)))
    };
    let mut numbers = queue.max()..queue.max();
    while numbers.start > queue.min() && is_lost(numbers.start - 1)? {
        numbers.start -= 1;
    }
    while is_lost(numbers.end)? {
        numbers.end += 1;
    }
    queue.extend_to(numbers.end);
    for number in numbers {
        queue.put(number, QueueEntry::FILLER)?;
    }
    Ok(())
}

fn is_within(entry: &QueueEntry, bytes: &Range<u64>) -> bool {
    bytes.start <= entry.position && entry.position < entry.end() && entry.end() <= bytes.end
}

/// Reports the `holes` of a log that ends at `end`, and its missing files, with the messages that
/// were lost in them.
pub fn report_losses(
    found: &Found,
    loaded: &Loaded,
    begin: &Begin,
    (mut holes, gaps): (Vec<Hole>, &[Gap]),
    end: u64,
) -> Result<()> {
    let (log, queues) = (&loaded.log, &loaded.queues);
    let missing = missing_begin(found, log, begin, end);
    if let Some(missing) = &missing {
        let range = missing.position..missing.position.saturating_add(missing.length);
        let flaw = Flaw::Empty;
        holes.insert(0, Hole { range, flaw });
    }
    let mut lost = name_losses(queues, &queues.all(&found.topics)?, &holes, gaps)?;
    if let Some(missing) = &missing {
        let lost = lost.remove(&0).unwrap_or_default();
        found.report.add_losing(missing.clone(), lost);
    }
    let first = usize::from(missing.is_some());
    report_holes(
        &found.report,
        log,
        holes.iter().enumerate().skip(first),
        lost,
    );
    if let Some(missing) = missing_end(log, begin.promised, end) {
        found.report.add(missing);
    }
    match missing {
        Some(missing) => name_missing(found, queues, begin, missing),
        None => Ok(()),
    }
}

/// Reports holes, each with its number and the messages that were `lost` in it.
pub fn report_holes<'a>(
    report: &Report,
    log: &Log,
    holes: impl Iterator<Item = (usize, &'a Hole)>,
    mut lost: LostIn,
) {
    for (number, hole) in holes {
        let lost = lost.remove(&number).unwrap_or_default();
        report.add_losing(log.damage(hole.range.clone(), hole.flaw), lost);
    }
}

/// Messages lost in holes, by the number of the hole.
type LostIn = BTreeMap<usize, Vec<Lost>>;

/// Finds the lost messages: entries of `all` that point into holes, and offsets without a record.
/// In a writable store the entries become fillers. Names no more messages than a report keeps.
pub fn name_losses(
    queues: &Queues,
    all: &[(Arc<Topic>, Arc<ConsumeQueue>)],
    holes: &[Hole],
    gaps: &[Gap],
) -> Result<LostIn> {
    let mut named = LostIn::new();
    let mut left = LOST_MAX;
    let mut lose = |hole: usize, lost: &mut dyn Iterator<Item = Lost>| {
        for message in lost.take(left) {
            named.entry(hole).or_default().push(message);
            left -= 1;
        }
    };
    for (topic, queue) in all {
        for (hole, number) in entries_in(queue, holes)? {
            let lost = || (topic.name.to_string(), queue.id, number);
            lose(hole, &mut std::iter::once_with(lost));
            if queues.store.access == Access::ReadWrite {
                queue.put(number, QueueEntry::FILLER)?;
            }
        }
        queues.limit_maps();
    }
    for gap in gaps {
        let at = holes.partition_point(|hole| hole.range.start < gap.after);
        if holes
            .get(at)
            .is_some_and(|hole| hole.range.start < gap.before)
        {
            let name = |number| (gap.topic.to_string(), gap.queue, number);
            lose(at, &mut gap.offsets.clone().map(name));
        }
    }
    Ok(named)
}

/// The entries of a queue that point into holes: the index of the hole, and the number.
fn entries_in(queue: &ConsumeQueue, holes: &[Hole]) -> Result<Vec<(usize, u64)>> {
    let mut found = Vec::new();
    let Some(first) = holes.first() else {
        return Ok(found);
    };
    let mut from = queue.first_from(first.range.start)?;
    while let Some((number, entry)) = queue.next_readable(from..queue.max())? {
        from = number + 1;
        let at = first_after(holes, entry.position);
        let is_lost = |hole: &Hole| hole.range.contains(&entry.position);
        if holes.get(at).is_some_and(is_lost) {
            found.push((at, number));
        }
    }
    Ok(found)
}

/// Describes the missing end of a log that must reach `promised`. A file that was removed or
/// truncated at the end leaves no other trace.
fn missing_end(log: &Log, promised: u64, end: u64) -> Option<Damage> {
    let reason = "the log ends here, but was longer when it was last open";
    (end < promised).then(|| log.damage(end..promised, reason))
}

/// Describes the missing beginning of a log that ends at `end`. Retention has not removed these
/// files: it first moves the minimum mark and makes it durable.
///
/// Another system removes files without moving the mark. So nothing is reported if it has halted
/// since, or if the log is longer than Forebay left it.
fn missing_begin(found: &Found, log: &Log, begin: &Begin, end: u64) -> Option<Damage> {
    let min = found.min_position();
    let began = begin
        .began
        .filter(|began| *began < min && !found.files.is_empty())?;
    let is_longer = begin.clean && end > begin.promised;
    let reason = "the log began here when it was last open: its first files are missing";
    (!is_longer).then(|| log.damage(began..min, reason))
}

/// Reports the messages that are lost with the beginning of the log: those before the first offsets
/// of the queues, as far as the inventory lists them.
fn name_missing(found: &Found, queues: &Queues, begin: &Begin, missing: Damage) -> Result<()> {
    let mut lost = Vec::new();
    for (name, id, first, _) in begin.inventory.iter().flat_map(|known| &known.queues) {
        let topic = found.topics.get(name);
        let queue = topic.map(|topic| queues.get(&topic, *id)).transpose()?;
        if let Some(queue) = queue.flatten() {
            lost.push((name, *id, *first..queue.min()));
        }
        queues.limit_maps();
    }
    let named = |(name, id, numbers): (&String, u32, Range<u64>)| {
        let name = name.clone();
        numbers.map(move |number| (name.clone(), id, number))
    };
    let lost = lost.into_iter().flat_map(named);
    found.report.add_losing(missing, lost);
    Ok(())
}
