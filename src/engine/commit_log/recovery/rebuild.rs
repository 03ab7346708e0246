//! Recovery: queues and index are loaded, the log is walked, and what they lack is put into them.

use super::begin::Begin;
use super::geometry;
use super::opening::Opening;
use super::place::{Bridge, Placer};
use super::reindex::IndexPlan;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walk::{Outcome, walk};
use crate::engine::commit_log::queues::queue::{
    ConsumeQueue, QueueEntry, list_queues, list_topics,
};
use crate::engine::commit_log::read::meant::leads_home;
use crate::engine::directory::names;
use crate::engine::topic::initial_queues;
use crate::engine::{Damage, Topic};
use crate::error::{Error, Op, Result};
use crate::record::Record;
use crate::record::properties::Known;
use crate::region::Access;
use std::collections::HashMap;
use std::sync::Arc;

impl Opening<'_> {
    /// Walks the log and brings queues and index up to it.
    pub fn recover(&mut self, mut begin: Begin) -> Result<Outcome> {
        let log = Log::of_files(
            &self.disk,
            self.root,
            &self.files,
            self.geometry.log_file_len,
        )?;
        let log = Arc::new(log);
        let min = self.min_position();
        let stale = self.load_queues(&log, &begin)?;
        self.confirm(&log, &mut begin)?;
        let mut from = begin.from;
        if !self.queues_are_complete(&log, &begin)? {
            from = min;
        }
        let mut plan = self.plan_index(&begin, from)?;
        let (mut outcome, mut bridges, gap) = self.walk_from(&log, from, &begin, &mut plan)?;
        if gap {
            // A queue lacks entries below the place where the walk began.
            self.forget_overlays(&log, &begin)?;
            from = min;
            (outcome, bridges, _) = self.walk_from(&log, from, &begin, &mut plan)?;
        }
        self.recovery.clean = begin.clean;
        self.recovery.walked_from = from;
        let closed_at = (begin.clean && begin.marked).then_some(begin.from);
        self.untouched_since_close = closed_at == Some(from) && closed_at == Some(outcome.end);
        self.cut_queues(&log, &begin, outcome.end, &stale)?;
        self.restart_empty_queues(&begin)?;
        self.complete_index(&log, &begin, &plan, &outcome)?;
        bridges.extend(self.keep_next_offsets(&begin, from, &outcome)?);
        self.count_queues();
        self.name_losses(&mut outcome, &bridges)?;
        outcome
            .damage
            .extend(missing_end(&log, begin.promised, outcome.end));
        for damage in &outcome.damage {
            self.report.add(damage.clone());
        }
        self.durable = match begin.clean {
            true => outcome.end,
            false => begin.durable,
        };
        self.last_store_ms = outcome.last_store_ms;
        if self.last_store_ms == 0 && outcome.end > min {
            self.last_store_ms = self.newest_store_ms(&log)?;
        }
        self.recovery.records_checked += outcome.records;
        self.recovery.stale_checksums = outcome.stale_checksums;
        self.recovery.end = outcome.end;
        Ok(outcome)
    }

    /// Store time of the newest record: store times never decrease, so it is that of the last
    /// record of one of the queues.
    fn newest_store_ms(&self, log: &Log) -> Result<i64> {
        let mut newest = 0;
        for (_, queue) in self.queues.all(&self.topics) {
            let last = queue
                .max()
                .checked_sub(1)
                .filter(|last| *last >= queue.min());
            let Some(entry) = last.map(|last| queue.entry(last)).transpose()?.flatten() else {
                continue;
            };
            if let Some(message) = log.record_at(entry.position)?.record() {
                newest = newest.max(message.record().store_timestamp());
            }
        }
        Ok(newest)
    }

    fn walk_from(
        &mut self,
        log: &Arc<Log>,
        from: u64,
        begin: &Begin,
        plan: &mut IndexPlan,
    ) -> Result<(Outcome, Vec<Bridge>, bool)> {
        let mut placer = Placer::new(self, log, from);
        let mut visit = |record: &Record<'_>, position: u64, holes: u64| -> Result<()> {
            let known = Known::read(record.raw_properties());
            placer.place(record, &known, position, holes)?;
            plan.meet(record, &known, position)
        };
        let outcome = walk(log, from, begin.belief(), &mut visit)?;
        let (rebuilt, bridges, gap) = placer.finish()?;
        self.recovery.queue_entries_rebuilt += rebuilt;
        Ok((outcome, bridges, gap))
    }

    /// Opens every queue that has a directory and finds its bounds. Returns those whose files hold
    /// entries after them.
    fn load_queues(&self, log: &Arc<Log>, begin: &Begin) -> Result<Vec<Arc<ConsumeQueue>>> {
        let mut stale = Vec::new();
        let known = Counted::of(begin);
        let directory = &self.queues.store.directory;
        let topics = match geometry::has_foreign_queues(&*self.disk, self.root)? {
            true => Vec::new(),
            false => list_topics(&*self.disk, directory)?,
        };
        for name in topics {
            for id in list_queues(&*self.disk, &directory.join(&name))? {
                let (topic, _) = self.topics.get_or_add(&name, id + 1);
                let queue = Arc::new(ConsumeQueue::open(&self.queues.store, &name, id)?);
                if find_bounds(&queue, log, known.next(&name, id))? {
                    stale.push(Arc::clone(&queue));
                }
                self.queues.add(&topic, queue);
                self.queues.limit_maps();
            }
        }
        for (name, id, min, next) in begin.inventory.iter().flat_map(|known| &known.queues) {
            let (topic, _) = self.topics.get_or_add(name, id + 1);
            let queue = self.queues.get_or_add(&topic, *id);
            if min == next && queue.is_untouched()? {
                queue.load_bounds(*next, *next);
            }
        }
        Ok(stale)
    }

    /// Whether every queue that is known of is there to its end, as far as a look at the corners of
    /// its files shows.
    fn queues_are_complete(&self, log: &Arc<Log>, begin: &Begin) -> Result<bool> {
        if begin.from <= self.min_position() {
            return Ok(true);
        }
        let queues = self.queues.all(&self.topics);
        let min_position = log.min_position();
        match &begin.inventory {
            // Without one, something has to be there; a mark says that Forebay wrote the store, and
            // has flushed nothing as a whole yet.
            None if begin.marked && !begin.clean => return Ok(false),
            None if queues.iter().all(|(_, queue)| queue.max() == 0) => return Ok(false),
            None => {}
            Some(inventory) => {
                for (name, id, min, next) in &inventory.queues {
                    let topic = self.topics.get(name);
                    let queue = topic.and_then(|topic| self.queues.get(&topic, *id));
                    let Some(queue) = queue.filter(|it| it.max() >= *next && it.covers(*min))
                    else {
                        return Ok(false);
                    };
                    // Entries alone do not tell that more is retired: they may be damaged.
                    if !queue.is_filled(*min..queue.first_from(min_position)?)? {
                        return Ok(false);
                    }
                    self.queues.limit_maps();
                }
            }
        }
        for (topic, queue) in queues {
            for number in queue.corners() {
                let sound = match queue.entry(number)? {
                    None => false,
                    Some(entry) => {
                        entry.is_filler()
                            || entry.end() <= min_position
                            || leads_home(log, (&topic, queue.id, number), entry)?
                    }
                };
                if !sound {
                    return Ok(false);
                }
            }
            self.queues.limit_maps();
        }
        Ok(true)
    }

    /// Gives topics that the table does not know the queues that they have, and in a store of ours
    /// those that they had before they were used: the table is written a moment behind the topics.
    fn count_queues(&self) {
        let ours = self.state.epoch() > 0 && self.access == Access::ReadWrite;
        for topic in self.topics.all() {
            if self.table.knows(&topic.name) {
                continue;
            }
            let ids = self.queues.of(&topic).into_iter().map(|queue| queue.id);
            let used = ids.max().map_or(1, |id| id + 1);
            let given = match ours {
                true => initial_queues(&topic.name, self.options.default_queues()),
                false => 1,
            };
            let queues = used.max(given);
            topic.configure(queues, queues, topic.permissions());
        }
    }

    /// Lets go of entries that were put into memory, for a walk from the first record on.
    fn forget_overlays(&self, log: &Arc<Log>, begin: &Begin) -> Result<()> {
        if self.access == Access::Read {
            let known = Counted::of(begin);
            for (topic, queue) in self.queues.all(&self.topics) {
                if queue.forget_overlay() {
                    find_bounds(&queue, log, known.next(&topic.name, queue.id))?;
                }
            }
        }
        Ok(())
    }

    /// Entries after the end of the log lead nowhere, and those before its begin are gone. Those
    /// of messages that a crash took lie after the end of a queue: another log could grow under
    /// them, and then they would count.
    fn cut_queues(
        &self,
        log: &Arc<Log>,
        begin: &Begin,
        end: u64,
        stale: &[Arc<ConsumeQueue>],
    ) -> Result<()> {
        let min = self.min_position();
        let known = Counted::of(begin);
        if self.access == Access::ReadWrite && min > 0 && !self.untouched_since_close {
            // Removals of log files become durable first: a file that came back after a power loss
            // would lack its queue entries.
            let directory = self.root.join(names::COMMIT_LOG);
            let synced = self.disk.sync_directory(&directory);
            synced.map_err(|e| Error::io(Op::Sync, &directory, e))?;
        }
        for queue in stale {
            queue.truncate(queue.max())?;
        }
        for (topic, queue) in self.queues.all(&self.topics) {
            let mut max = queue.max();
            while max > queue.min() {
                match queue.entry(max - 1)? {
                    Some(entry) if entry.is_message(end) || entry.is_filler() => break,
                    _ => max -= 1,
                }
            }
            if max < queue.max() {
                queue.truncate(max)?;
            }
            // Entries below what the table tells count where a log file came back: then they lead
            // to their records.
            let first = known.first(&topic.name, queue.id).min(queue.max());
            let mut low = queue.first_in_log(min)?;
            while low < first && !self.is_home(log, &topic, &queue, low)? {
                low += 1;
            }
            queue.raise_min_to(low);
            queue.retire_files()?;
            self.queues.limit_maps();
        }
        match &self.index {
            Some(index) if self.access == Access::ReadWrite => index.retire_below(min),
            _ => Ok(()),
        }
    }

    fn is_home(&self, log: &Log, topic: &Topic, queue: &ConsumeQueue, number: u64) -> Result<bool> {
        match queue.entry(number)? {
            Some(entry) => leads_home(log, (topic, queue.id, number), entry),
            None => Ok(false),
        }
    }

    /// Sets the next offset of queues whose files hold no entry. Only what was retired has used
    /// offsets up, and the inventory tells of that; a file that outlived those before it does not.
    fn restart_empty_queues(&self, begin: &Begin) -> Result<()> {
        if self.state.epoch() == 0 {
            return Ok(());
        }
        let known = Counted::of(begin);
        for (topic, queue) in self.queues.all(&self.topics) {
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

    /// Keeps offsets from being given twice where the last messages of a queue are lost with their
    /// entries. Returns those that were kept, where the log goes on behind them; where its end is
    /// gone they may be more than can be told one by one.
    fn keep_next_offsets(
        &self,
        begin: &Begin,
        from: u64,
        outcome: &Outcome,
    ) -> Result<Vec<Bridge>> {
        let mut kept = Vec::new();
        let Some(inventory) = &begin.inventory else {
            return Ok(kept);
        };
        let end_is_gone = outcome.end < inventory.position;
        if from > self.min_position() && !end_is_gone {
            return Ok(kept);
        }
        for (name, id, min, next) in &inventory.queues {
            let topic = self.topics.get(name);
            let Some(queue) = topic.and_then(|topic| self.queues.get(&topic, *id)) else {
                continue;
            };
            let offsets = queue.max().max(*min)..*next;
            if !offsets.is_empty() && !end_is_gone {
                kept.push(Bridge {
                    topic: name.as_str().into(),
                    queue: *id,
                    offsets,
                    after: queue.last_end_below(u64::MAX)?.unwrap_or_default(),
                    before: outcome.end,
                });
            }
            queue.bridge_to(*next)?;
        }
        Ok(kept)
    }

    /// Finds the queue entries that lead into holes, and the offsets that no record was met for:
    /// the messages that are lost. Where the store may be written they become fillers.
    fn name_losses(&self, outcome: &mut Outcome, bridges: &[Bridge]) -> Result<()> {
        for damage in &mut outcome.damage {
            let hole = damage.position..damage.position + damage.length;
            for (topic, queue) in self.queues.all(&self.topics) {
                for number in queue.entries_in(&hole)? {
                    damage.lost.push((topic.name.to_string(), queue.id, number));
                    if self.access == Access::ReadWrite {
                        queue.put(number, QueueEntry::FILLER)?;
                    }
                }
            }
        }
        for bridge in bridges {
            let between = bridge.after..bridge.before;
            let hole = outcome
                .damage
                .iter_mut()
                .find(|d| between.contains(&d.position));
            if let Some(damage) = hole {
                let named = |number| (bridge.topic.to_string(), bridge.queue, number);
                damage.lost.extend(bridge.offsets.clone().map(named));
            }
        }
        Ok(())
    }
}

/// What is missing of a log that has to go to `promised`: a file that was removed or cut at the end
/// leaves no trace in it.
fn missing_end(log: &Log, promised: u64, end: u64) -> Option<Damage> {
    let reason = "the log ends here, and went on when it was last open";
    (end < promised).then(|| log.damage(end..promised, reason))
}

/// The bounds of each queue at one position of the log, as the inventory tells them.
struct Counted<'a> {
    position: Option<u64>,
    bounds: HashMap<(&'a str, u32), (u64, u64)>,
}

impl Counted<'_> {
    fn of(begin: &Begin) -> Counted<'_> {
        let queues = begin.inventory.iter().flat_map(|known| &known.queues);
        Counted {
            position: begin.inventory.as_ref().map(|known| known.position),
            bounds: queues
                .map(|(name, id, min, next)| ((name.as_str(), *id), (*min, *next)))
                .collect(),
        }
    }

    fn bounds(&self, topic: &str, queue: u32) -> (u64, u64) {
        let bounds = self.bounds.get(&(topic, queue));
        bounds.copied().unwrap_or_default()
    }

    /// First offset of the queue; 0 where nothing tells.
    fn first(&self, topic: &str, queue: u32) -> u64 {
        self.bounds(topic, queue).0
    }

    /// A position and the next offset of the queue there; `None` where nothing tells.
    fn next(&self, topic: &str, queue: u32) -> Option<(u64, u64)> {
        Some((self.position?, self.bounds(topic, queue).1))
    }
}

/// Finds the bounds of a queue from its files: up to the last entry that leads to its own record,
/// or to one that is retired. `counted` is a position and the next offset of the queue there: an
/// entry that leads below the one must be below the other, or a crash has taken its message.
/// Returns whether the files hold entries after the bounds.
fn find_bounds(queue: &ConsumeQueue, log: &Arc<Log>, counted: Option<(u64, u64)>) -> Result<bool> {
    let first = queue.first_on_disk().unwrap_or(0);
    let last = queue.last_on_disk()?;
    let mut max = last;
    while max > first {
        let taken = |entry: &QueueEntry| {
            let below = |at| !entry.is_filler() && entry.position < at;
            counted.is_some_and(|(position, next)| below(position) && max > next)
        };
        if let Some(entry) = queue.entry(max - 1)?.filter(|entry| !taken(entry))
            && holds(queue, log, max - 1, entry)?
        {
            break;
        }
        max -= 1;
    }
    queue.load_bounds(first, max);
    Ok(max < last)
}

/// Whether an entry says that its offset has been used: it leads to a record that claims it, or to
/// one that is retired, or no message has it.
fn holds(queue: &ConsumeQueue, log: &Log, number: u64, entry: QueueEntry) -> Result<bool> {
    if entry.is_filler() || entry.end() <= log.min_position() {
        return Ok(true);
    }
    let Some(message) = log.record_at(entry.position)?.record() else {
        return Ok(false);
    };
    let record = message.record();
    Ok(record.queue_offset() == number.cast_signed()
        && record.queue_id() == queue.id.cast_signed()
        && record.layout().total_len == entry.size)
}
