//! Walks the log and adds what queues and index lack.

use super::begin::Begin;
use super::confirm::confirm;
use super::find::Found;
use super::load::{Counted, Loaded, end_held, forget_overlays, load, queues_are_complete};
use super::place::{Gap, Placed, Placer};
use super::reindex::{KeyPlan, complete_index, plan_index};
use crate::engine::commit_log::index::Index;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walk::{self, WalkResult};
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::{ConsumeQueue, QueueEntry};
use crate::engine::commit_log::read::meant::leads_home;
use crate::engine::directory::names;
use crate::engine::topic::initial_queues;
use crate::engine::{Damage, Recovery, Topic};
use crate::error::Result;
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
    /// Where the log ended when Forebay closed it, if the marks tell.
    pub closed_at: Option<u64>,
    /// Whether nothing was written to the log since then.
    pub untouched_since_close: bool,
    /// Position up to which the log was durable before it was opened.
    pub durable: u64,
    /// Store time of the newest record.
    pub last_store_ms: i64,
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
    cut_queues(found, &loaded, &begin, end)?;
    restart_empty_queues(found, &loaded, &begin)?;
    let reindexed = complete_index(found, &loaded, &begin, &plan, end)?;
    placed
        .gaps
        .extend(keep_next_offsets(found, &loaded, &begin, from, end)?);
    count_queues(found, &loaded.queues);
    name_losses(found, &loaded, &mut outcome.damage, &placed.gaps)?;
    outcome
        .damage
        .extend(missing_end(&loaded.log, begin.promised, end));
    for damage in &outcome.damage {
        found.report.add(damage.clone());
    }
    if outcome.last_store_ms == 0 && end > min {
        outcome.last_store_ms = newest_store_ms(found, &loaded)?;
    }
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
    let mut placer = Placer::new(found, loaded, from);
    let mut visit = |record: &Record<'_>, position: u64, holes: u64| -> Result<()> {
        let known = Known::read(record.raw_properties());
        placer.place(record, &known, position, holes)?;
        plan.meet(record, &known, position)
    };
    let outcome = walk::walk(&loaded.log, from, begin.belief(), &mut visit)?;
    Ok((outcome, placer.finish()?))
}

/// Makes removals of log files durable before the entries of their records go: a file that came
/// back after a power loss would lack its queue entries.
fn sync_removals(found: &Found) -> Result<()> {
    if found.access == Access::ReadWrite && found.min_position() > 0 {
        let directory = found.root.join(names::COMMIT_LOG);
        found.disk().sync_directory(&directory)?;
    }
    Ok(())
}

/// Removes queue entries after the end of the log and before its beginning. Entries of messages
/// that a crash took are after the end of a queue. If they stayed, they would become valid when the
/// log grows past their positions again.
fn cut_queues(found: &Found, loaded: &Loaded, begin: &Begin, end: u64) -> Result<()> {
    let min = found.min_position();
    let known = Counted::of(begin);
    let is_kept = |entry: Option<QueueEntry>| {
        entry.is_some_and(|entry| entry.is_message(end) || entry.is_filler())
    };
    for queue in &loaded.stale {
        queue.truncate(queue.max())?;
    }
    for (topic, queue) in loaded.queues.all(&found.topics) {
        let numbers = queue.min()..queue.max();
        if !numbers.is_empty() && !is_kept(queue.entry(numbers.end - 1)?) {
            // A power loss may have kept some sectors of the file and not others, so those before
            // it may be of an older log.
            let counted = known.next(&topic.name, queue.id);
            let max = end_held(&queue, &topic, &loaded.log, counted, (numbers, end))?;
            queue.truncate(max)?;
        }
        // Entries below the first offset in the inventory count only if a log file came back: then
        // they point to their records.
        let first = known.first(&topic.name, queue.id).min(queue.max());
        let mut low = queue.first_in_log(min)?;
        while low < first && !is_home(&loaded.log, &topic, &queue, low)? {
            low += 1;
        }
        queue.raise_min_to(low);
        queue.retire_files()?;
        loaded.queues.limit_maps();
    }
    match &loaded.index {
        Some(index) if found.access == Access::ReadWrite => index.retire_below(min),
        _ => Ok(()),
    }
}

fn is_home(log: &Log, topic: &Topic, queue: &ConsumeQueue, number: u64) -> Result<bool> {
    match queue.entry(number)? {
        Some(entry) => leads_home(log, (topic, queue.id, number), entry),
        None => Ok(false),
    }
}

/// Sets the next offset of queues whose files hold no entries. Only deleted messages have used
/// offsets then, and the inventory knows them; a file that outlived earlier files proves nothing.
fn restart_empty_queues(found: &Found, loaded: &Loaded, begin: &Begin) -> Result<()> {
    if found.state.epoch() == 0 {
        return Ok(());
    }
    let known = Counted::of(begin);
    for (topic, queue) in loaded.queues.all(&found.topics) {
        let next = known
            .next(&topic.name, queue.id)
            .map_or(0, |(_, next)| next);
        let first = queue.first_on_disk().unwrap_or(0);
        if queue.max() == queue.min() && queue.max() <= first && first > next {
            queue.empty_at(next)?;
        }
    }
    Ok(())
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
        let Some(queue) = topic.and_then(|topic| loaded.queues.get(&topic, *id)) else {
            continue;
        };
        let offsets = queue.max().max(*min)..*next;
        if !offsets.is_empty() && !end_is_gone {
            kept.push(Gap {
                topic: name.as_str().into(),
                queue: *id,
                offsets,
                after: queue.last_end_below(u64::MAX)?.unwrap_or_default(),
                before: end,
            });
        }
        queue.bridge_to(*next)?;
    }
    Ok(kept)
}

/// Finds the lost messages: queue entries that point into holes, and offsets without a record. In a
/// writable store their entries become fillers.
fn name_losses(found: &Found, loaded: &Loaded, holes: &mut [Damage], gaps: &[Gap]) -> Result<()> {
    for damage in &mut *holes {
        let hole = damage.position..damage.position + damage.length;
        for (topic, queue) in loaded.queues.all(&found.topics) {
            for number in queue.entries_in(&hole)? {
                damage.lost.push((topic.name.to_string(), queue.id, number));
                if found.access == Access::ReadWrite {
                    queue.put(number, QueueEntry::FILLER)?;
                }
            }
        }
    }
    for gap in gaps {
        let between = gap.after..gap.before;
        let hole = holes.iter_mut().find(|d| between.contains(&d.position));
        if let Some(damage) = hole {
            let named = |number| (gap.topic.to_string(), gap.queue, number);
            damage.lost.extend(gap.offsets.clone().map(named));
        }
    }
    Ok(())
}

/// Describes the missing end of a log that must reach `promised`. A file that was removed or
/// truncated at the end leaves no other trace.
fn missing_end(log: &Log, promised: u64, end: u64) -> Option<Damage> {
    let reason = "the log ends here, but was longer when it was last open";
    (end < promised).then(|| log.damage(end..promised, reason))
}

/// Sets the number of queues of topics that are missing in the table, because it is written a
/// moment after a topic is created. They get the queues that exist, and in a store of Forebay at
/// least the initial number.
fn count_queues(found: &Found, queues: &Queues) {
    let ours = found.state.epoch() > 0 && found.access == Access::ReadWrite;
    for topic in found.topics.all() {
        if found.table.knows(&topic.name) {
            continue;
        }
        let ids = queues.of(&topic).into_iter().map(|queue| queue.id);
        let used = ids.max().map_or(1, |id| id + 1);
        let given = match ours {
            true => initial_queues(&topic.name, found.options.default_queues()),
            false => 1,
        };
        let number = used.max(given);
        topic.configure(number, number, topic.permissions());
    }
}

/// Store time of the newest record. Store times never decrease, so it is the last record of one of
/// the queues.
fn newest_store_ms(found: &Found, loaded: &Loaded) -> Result<i64> {
    let mut newest = 0;
    for (_, queue) in loaded.queues.all(&found.topics) {
        let last = queue
            .max()
            .checked_sub(1)
            .filter(|last| *last >= queue.min());
        let Some(entry) = last.map(|last| queue.entry(last)).transpose()?.flatten() else {
            continue;
        };
        if let Some(message) = loaded.log.record_at(entry.position)?.record() {
            newest = newest.max(message.record().store_timestamp());
        }
    }
    Ok(newest)
}
