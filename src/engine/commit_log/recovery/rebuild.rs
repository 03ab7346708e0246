//! Walks the log and adds what queues and index lack.

use super::begin::Begin;
use super::confirm::confirm;
use super::find::Found;
use super::load::{Counted, Loaded, end_held, forget_overlays, load, queues_are_complete};
use super::losses::{pass_holes, pass_missing, report_losses};
use super::place::{Gap, Placed, Placer, Scene};
use super::reindex::{KeyPlan, complete_index, plan_index};
use crate::engine::commit_log::index::Index;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walk::{self, Hole, WalkResult};
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, QueueEntry};
use crate::engine::commit_log::read::meant::leads_home;
use crate::engine::directory::names;
use crate::engine::topic::initial_queues;
use crate::engine::{Recovery, Topic};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::Known;
use crate::region::Access;
use std::ops::Range;
use std::sync::Arc;

/// A log that was walked, and queues and index up to its end. The maps of the walk are released.
pub struct Walked {
    /// The queues.
    pub queues: Arc<Queues>,
    /// The index, if keys are indexed.
    pub index: Option<Arc<Index>>,
    /// Log positions whose keys the index lacks; only in a read-only store.
    pub unindexed: Range<u64>,
    /// End of the log.
    pub end: u64,
    /// Where the log ended when Forebay closed it, if the marks state it.
    pub closed_at: Option<u64>,
    /// Whether nothing was written to the log since then.
    pub untouched_since_close: bool,
    /// Position up to which the log was durable before it was opened.
    pub durable: u64,
    /// Store time of the newest record.
    pub last_store_ms: i64,
    /// Position of the newest record; `None` in an empty log.
    pub last: Option<u64>,
    /// Where the store was closed, if the queues have their offsets at this position and their
    /// files are read later.
    pub later: Option<u64>,
    /// Whether some queue ends with an offset that neither a message nor the saved inventory shows.
    pub ends_unshown: bool,
    /// What was found and repaired.
    pub recovery: Recovery,
}

/// Walks the log and brings queues and index up to its end.
///
/// # Errors
///
/// [`Error::Io`] if something cannot be read. Nothing is known about such bytes: they are neither a
/// hole nor the end of the log.
pub fn walk(found: &Found, begin: Begin) -> Result<Walked> {
    let loaded = load(found, &begin)?;
    let begin = confirm(found, &loaded, begin)?;
    let min = found.min_position();
    let mut from = match queues_are_complete(found, &loaded, &begin)? {
        true => begin.from,
        false => min,
    };
    let mut plan = plan_index(found, loaded.index.as_ref(), &begin, from)?;
    let (mut outcome, mut placed) = walk_from(found, &loaded, &begin, from, &mut plan)?;
    if placed.begins_too_late {
        forget_overlays(found, &loaded, &begin)?;
        from = min;
        let before = placed.rebuilt;
        (outcome, placed) = walk_from(found, &loaded, &begin, from, &mut plan)?;
        placed.rebuilt += before;
    }
    let end = outcome.end;
    let closed_at = begin.closed_at();
    let untouched = closed_at == Some(from) && closed_at == Some(end);
    if !untouched {
        sync_removals(found)?;
    }
    cut_queues(found, &loaded, &begin, (&outcome.holes, end))?;
    restart_empty_queues(found, &loaded, &begin)?;
    let reindexed = complete_index(found, &loaded, &begin, &plan, end)?;
    placed
        .gaps
        .extend(keep_next_offsets(found, &loaded, &begin, from, end)?);
    count_queues(found, &loaded.queues);
    report_losses(found, &loaded, &begin, (outcome.holes, &placed.gaps), end)?;
    if outcome.last.is_none() && end > min {
        (outcome.last, outcome.last_store_ms) = newest_record(found, &loaded)?;
    }
    let ends_unshown = ends_unshown(found, &loaded.queues, &begin, end)?;
    Ok(Walked {
        queues: loaded.queues,
        index: loaded.index,
        unindexed: reindexed.unindexed,
        end,
        closed_at,
        untouched_since_close: untouched,
        durable: match begin.clean {
            true => end,
            false => begin.durable,
        },
        last_store_ms: outcome.last_store_ms,
        last: outcome.last,
        later: None,
        ends_unshown,
        recovery: Recovery {
            clean: begin.clean,
            walked_from: from,
            end,
            records_checked: outcome.records + reindexed.records_checked,
            queue_entries_rebuilt: placed.rebuilt,
            index_entries_rebuilt: reindexed.entries_put,
            stale_checksums: outcome.stale_checksums,
            ..Recovery::default()
        },
    })
}

/// Walks the log once and puts what it finds into queues and index.
fn walk_from(
    found: &Found,
    loaded: &Loaded,
    begin: &Begin,
    from: u64,
    plan: &mut KeyPlan,
) -> Result<(WalkResult, Placed)> {
    let scene = Scene {
        topics: Arc::clone(&found.topics),
        queues: Arc::clone(&loaded.queues),
        log: Arc::clone(&loaded.log),
        report: Arc::clone(&found.report),
        min: found.min_position(),
    };
    let mut placer = Placer::new(scene, from);
    let mut visit = |record: &Record<'_>, position: u64, holes: u64| -> Result<()> {
        let known = Known::read(record.raw_properties());
        placer.place(record, &known, position, holes)?;
        plan.meet(record, &known, position)
    };
    let outcome = walk::walk(&loaded.log, from, begin.belief(), &mut visit)?;
    Ok((outcome, placer.finish()?))
}

/// Makes removals of log files durable before the entries of their records are removed: a file that
/// came back after a power loss would lack its queue entries.
fn sync_removals(found: &Found) -> Result<()> {
    if found.access == Access::ReadWrite && found.min_position() > 0 {
        let directory = found.root.join(names::COMMIT_LOG);
        found.disk().sync_directory(&directory)?;
    }
    Ok(())
}

/// Removes queue entries after the end of the log and before its beginning. Entries after the end
/// of a queue belong to messages that a crash took. If they stayed, they would become valid once
/// the log grows past their positions again. Entries that point into `holes` stay: damage took
/// their messages, so their offsets are used.
fn cut_queues(
    found: &Found,
    loaded: &Loaded,
    begin: &Begin,
    (holes, end): (&[Hole], u64),
) -> Result<()> {
    let min = found.min_position();
    let known = Counted::of(begin);
    if !planted(Bug::ForgetLost) {
        for queue in &loaded.stale {
            pass_holes(queue, holes)?;
        }
        if end < begin.promised && found.access == Access::ReadWrite {
            for (_, queue) in loaded.queues.all(&found.topics)? {
                pass_missing(&queue, &(end..begin.promised))?;
                loaded.queues.limit_maps();
            }
        }
    }
    for queue in &loaded.stale {
        queue.truncate(queue.max())?;
    }
    for (topic, queue) in loaded.queues.all(&found.topics)? {
        let counted = known.next(&topic.name, queue.id);
        let first = known.first(&topic.name, queue.id);
        cut_queue(&queue, &topic, &loaded.log, (counted, first), min..end)?;
        loaded.queues.limit_maps();
    }
    match &loaded.index {
        Some(index) if found.access == Access::ReadWrite => index.retire_below(min),
        _ => Ok(()),
    }
}

/// [`cut_queues`] for one queue and a log with these positions. `counted` is a position and the
/// next offset of the queue there, `first` the first offset, if known.
pub fn cut_queue(
    queue: &ConsumeQueue,
    topic: &Topic,
    log: &Arc<Log>,
    (counted, first): (Option<(u64, u64)>, u64),
    positions: Range<u64>,
) -> Result<()> {
    let Range { start: min, end } = positions;
    let is_kept = |entry: Option<QueueEntry>| {
        entry.is_some_and(|entry| entry.is_message(end) || entry.is_filler())
    };
    let numbers = queue.min()..queue.max();
    if !numbers.is_empty() && !is_kept(queue.entry(numbers.end - 1)?) {
        // A power loss may have kept only some sectors of the file, so the entries before this one
        // may be those of an older log.
        let max = end_held(queue, topic, log, counted, (numbers, end))?;
        queue.truncate(max)?;
    }
    // Entries below the first offset in the inventory count only if they point to their records, as
    // they do if a deleted log file came back.
    let first = first.min(queue.max());
    let mut low = queue.first_in_log(min)?;
    while low < first && !is_home(log, topic, queue, low)? {
        low += 1;
    }
    queue.raise_min_to(low);
    queue.retire_files()
}

fn is_home(log: &Log, topic: &Topic, queue: &ConsumeQueue, number: u64) -> Result<bool> {
    match queue.entry(number)? {
        Some(entry) => leads_home(log, (topic, queue.id, number), entry),
        None => Ok(false),
    }
}

/// Sets the next offset of queues whose files hold no entries to that in the inventory. Only
/// deleted messages have used offsets then, and the inventory counts them. The start of an empty
/// file proves nothing, because the file may have outlived earlier ones.
fn restart_empty_queues(found: &Found, loaded: &Loaded, begin: &Begin) -> Result<()> {
    if found.state.epoch() == 0 {
        return Ok(());
    }
    let known = Counted::of(begin);
    for (topic, queue) in loaded.queues.all(&found.topics)? {
        let next = known
            .next(&topic.name, queue.id)
            .map_or(0, |(_, next)| next);
        restart_empty_queue(&queue, next)?;
    }
    Ok(())
}

/// [`restart_empty_queues`] for one queue, whose next offset in the inventory is `next`.
pub fn restart_empty_queue(queue: &ConsumeQueue, next: u64) -> Result<()> {
    let first = queue.first_on_disk().unwrap_or(0);
    match queue.max() == queue.min() && queue.max() <= first && first > next {
        true => queue.empty_at(next),
        false => Ok(()),
    }
}

/// Keeps offsets from being assigned twice if the last messages of a queue are lost with their
/// entries. Returns these offsets, except if the end of the log is missing: then they may be too
/// many to list.
fn keep_next_offsets(
    found: &Found,
    loaded: &Loaded,
    begin: &Begin,
    from: u64,
    end: u64,
) -> Result<Vec<Gap>> {
    let mut kept = Vec::new();
    let Some(inventory) = &begin.inventory else {
        return Ok(kept);
    };
    let end_is_gone = end < inventory.position;
    if from > found.min_position() && !end_is_gone {
        return Ok(kept);
    }
    for (name, id, min, next) in &inventory.queues {
        let topic = found.topics.get(name);
        let Some(topic) = topic else { continue };
        let Some(queue) = loaded.queues.get(&topic, *id)? else {
            continue;
        };
        let gap = keep_next_offset(&queue, &topic, &(*min..*next), end)?;
        kept.extend(gap.filter(|_| !end_is_gone));
    }
    Ok(kept)
}

/// [`keep_next_offsets`] for one queue, whose offsets were `known`, in a log that ends at `end`.
pub fn keep_next_offset(
    queue: &ConsumeQueue,
    topic: &Topic,
    known: &Range<u64>,
    end: u64,
) -> Result<Option<Gap>> {
    let offsets = queue.max().max(known.start)..known.end;
    let gap = match offsets.is_empty() {
        true => None,
        false => Some(Gap {
            topic: topic.name.clone(),
            queue: queue.id,
            offsets,
            after: queue.last_end_below(u64::MAX)?.unwrap_or_default(),
            before: end,
        }),
    };
    queue.bridge_to(known.end)?;
    Ok(gap)
}

/// Whether the last offset of some queue has no message below `end`, the end of the log, and is not
/// in the saved inventory either. An inventory of a longer log does not count.
fn ends_unshown(found: &Found, queues: &Queues, begin: &Begin, end: u64) -> Result<bool> {
    let known = Counted::of(begin);
    for (topic, queue) in queues.all(&found.topics)? {
        let max = queue.max();
        let Some(last) = max.checked_sub(1) else {
            continue;
        };
        let counted = known.next(&topic.name, queue.id);
        let is_known = counted.is_some_and(|(position, next)| position <= end && next >= max);
        let has_message = |entry: QueueEntry| entry.is_message(end);
        if !is_known && !queue.entry(last)?.is_some_and(has_message) {
            return Ok(true);
        }
        queues.limit_maps();
    }
    Ok(false)
}

/// Sets the number of queues of topics that the table lacks, because it is written a moment after a
/// topic is created. They get the queues that exist, and in a store of Forebay at least the initial
/// number.
pub fn count_queues(found: &Found, queues: &Queues) {
    let ours = found.state.epoch() > 0 && found.access == Access::ReadWrite;
    for topic in found.topics.all() {
        if found.table.knows(&topic.name) {
            continue;
        }
        let used = queues.ids(&topic).last().map_or(1, |id| id + 1);
        let given = match ours {
            true => initial_queues(&topic.name, found.options.default_queues()),
            false => 1,
        };
        let number = used.max(given);
        topic.configure(number, number, topic.permissions());
    }
}

/// Position and store time of the newest record: the last record of one of the queues.
fn newest_record(found: &Found, loaded: &Loaded) -> Result<(Option<u64>, i64)> {
    let (mut last, mut newest) = (None, 0);
    for (_, queue) in loaded.queues.all(&found.topics)? {
        let number = queue
            .max()
            .checked_sub(1)
            .filter(|last| *last >= queue.min());
        let Some(entry) = number.map(|it| queue.entry(it)).transpose()?.flatten() else {
            continue;
        };
        if let Some(message) = loaded.log.record_at(entry.position)?.record() {
            last = last.max(Some(entry.position));
            newest = newest.max(message.record().store_timestamp());
        }
    }
    Ok((last, newest))
}
