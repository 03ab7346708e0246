//! Bringing queues and index up to the log: what is missing is added, what is wrong corrected, and
//! what leads behind the end is cut.

use super::consume_queue::{ConsumeQueue, FILLER_SIZE, QueueEntry, list_queues};
use super::dispatch::{Finder, is_directory_name};
use super::index::{Index, IndexFile};
use super::layout;
use super::log::Log;
use super::open::{Begin, Opening};
use super::recover::{Outcome, Trust, walk};
use super::state::{Mark, StatePage};
use crate::disk::Kind;
use crate::engine::Damage;
use crate::error::{Error, Result};
use crate::mapped::{Access, Extent, MappedFileQueue};
use crate::record::Record;
use crate::record::properties::{Known, index_hash};
use std::sync::Arc;

impl Opening<'_> {
    /// The log as it lies on disk, every byte readable, for the walk alone.
    fn whole_log(&self) -> Result<Arc<Log>> {
        let directory = self.root.join("commitlog");
        let files = MappedFileQueue::new(&self.disk, directory, self.geometry.log_file_len);
        files.load(&self.files, Access::Read, |_| Extent::Full);
        let state = Arc::new(StatePage::in_memory()?);
        state.set(Mark::Published, u64::MAX);
        Ok(Arc::new(Log {
            files,
            state,
            sync: false,
        }))
    }

    /// Walks the log and brings queues and index up to it.
    pub(super) fn recover(&mut self, begin: Begin) -> Result<Outcome> {
        let log = self.whole_log()?;
        let min = self.files.first().map_or(0, |file| file.start);
        self.load_queues(&log, &begin)?;
        let mut from = begin.from;
        if !self.queues_are_complete(&begin) {
            from = min;
        }
        self.recovery.clean = begin.clean;
        self.recovery.walked_from = from;
        let index_complete = self.load_index(&begin)?;
        let index_from = if index_complete {
            self.index_end()
        } else {
            None
        };
        let trust = begin.trust;
        let mut outcome = self.walk_from(&log, from, trust, index_from)?;
        if from > min && self.has_gap() {
            // A queue lacks entries below the place where the walk began.
            outcome = self.walk_from(&log, min, trust, index_from)?;
            self.recovery.walked_from = min;
            from = min;
        }
        self.cut_queues(outcome.end)?;
        self.complete_index(&log, index_complete, from, &outcome)?;
        self.name_losses(&mut outcome)?;
        for damage in &outcome.damage {
            self.report.add(damage.clone());
        }
        self.last_store_ms = outcome.last_store_ms;
        if self.last_store_ms == 0 && outcome.end > min {
            self.last_store_ms = last_store_ms(&log, outcome.end)?;
        }
        self.recovery.records_checked = outcome.records;
        self.recovery.stale_checksums = outcome.stale_checksums;
        self.recovery.end = outcome.end;
        Ok(outcome)
    }

    fn walk_from(
        &mut self,
        log: &Arc<Log>,
        from: u64,
        trust: Trust,
        index_from: Option<u64>,
    ) -> Result<Outcome> {
        let (topics, queues) = (Arc::clone(&self.topics), Arc::clone(&self.queues));
        let index = self
            .index
            .clone()
            .filter(|_| self.access == Access::ReadWrite);
        let report = Arc::clone(&self.report);
        let mut finder = Finder::default();
        let mut rebuilt = 0;
        let mut indexed = 0;
        let mut unindexed: Option<u64> = None;
        let can_index = index_from.is_some() || self.index_end().is_none();
        let mut visit = |record: &Record<'_>, position: u64| -> Result<()> {
            let known = Known::read(record.raw_properties());
            if let Some((queue, offset, entry)) =
                finder.find(&topics, &queues, record, &known, position)
            {
                match queue.put(offset, entry) {
                    Ok(stored) => rebuilt += u64::from(stored),
                    Err(Error::Corrupt {
                        path,
                        position,
                        reason,
                    }) => {
                        let lost = Vec::new();
                        report.add(Damage {
                            path,
                            position,
                            length: 0,
                            reason,
                            lost,
                        });
                    }
                    Err(error) => return Err(error),
                }
            }
            let after = index_from.is_none_or(|end| position >= end);
            if after && known.index_keys().next().is_some() {
                match &index {
                    Some(index) if can_index => {
                        indexed += put_keys(index, record, &known, position)?;
                    }
                    _ => {
                        unindexed.get_or_insert(position);
                    }
                }
            }
            Ok(())
        };
        let outcome = walk(log, from, trust, &mut visit)?;
        self.recovery.queue_entries_rebuilt += rebuilt;
        self.recovery.index_entries_rebuilt += indexed;
        if let Some(start) = unindexed.filter(|start| Some(*start) != index_from) {
            self.unindexed = start..outcome.end;
        }
        Ok(outcome)
    }

    /// Opens every queue that has a directory and finds its bounds.
    fn load_queues(&self, log: &Log, begin: &Begin) -> Result<()> {
        let directory = &self.queues.store.directory;
        let io = |error| Error::io("list", directory, error);
        let foreign = layout::has_foreign_queues(&*self.disk, self.root)?;
        if !foreign && self.disk.look(directory).map_err(io)?.is_some() {
            for entry in self.disk.list(directory).map_err(io)? {
                let Some(name) = entry.name.filter(|name| is_directory_name(name)) else {
                    continue;
                };
                if entry.kind != Kind::Directory {
                    continue;
                }
                for id in list_queues(&*self.disk, &directory.join(&name))? {
                    let (topic, _) = self.topics.get_or_add(&name, id + 1);
                    if topic.write_queues() <= id && !self.table.knows(&name) {
                        topic.configure(id + 1, id + 1, topic.permissions());
                    }
                    let queue = ConsumeQueue::open(&self.queues.store, &name, id)?;
                    find_bounds(&queue, log)?;
                    self.queues.add(&topic, Arc::new(queue));
                }
            }
        }
        for (name, id, min, next) in begin.inventory.iter().flat_map(|known| &known.queues) {
            let (topic, _) = self.topics.get_or_add(name, id + 1);
            let queue = self.queues.get_or_add(&topic, *id);
            if queue.max() == 0 && queue.first_on_disk().is_none() && min == next {
                queue.set_bounds(*next, *next);
            }
        }
        Ok(())
    }

    /// Whether every queue that the last close knew of is there to its end.
    fn queues_are_complete(&self, begin: &Begin) -> bool {
        let Some(inventory) = &begin.inventory else {
            // Without one: queues are there, or nothing was ever stored.
            return self
                .queues
                .all(&self.topics)
                .iter()
                .any(|(_, queue)| queue.max() > 0)
                || begin.from == self.files.first().map_or(0, |file| file.start);
        };
        inventory.queues.iter().all(|(name, id, min, next)| {
            let queue = self
                .topics
                .get(name)
                .and_then(|topic| self.queues.get(&topic, *id));
            queue.is_some_and(|queue| queue.max() >= *next && queue.covers(*min))
        })
    }

    /// Whether fillers were put into a queue because the walk began behind its missing entries.
    fn has_gap(&self) -> bool {
        self.queues
            .all(&self.topics)
            .iter()
            .any(|(_, queue)| queue.was_bridged())
    }

    fn load_index(&self, begin: &Begin) -> Result<bool> {
        let Some(index) = &self.index else {
            return Ok(true);
        };
        let end = self.files.last().map_or(0, |file| file.start + file.len);
        let sound = index.load(end)?;
        let files = index.files();
        let known = begin
            .inventory
            .iter()
            .flat_map(|inventory| &inventory.index);
        let all_there = known.clone().all(|(name, count)| {
            let same = |file: &&Arc<IndexFile>| {
                file.path()
                    .file_name()
                    .is_some_and(|found| found.to_string_lossy() == *name)
            };
            files
                .iter()
                .find(same)
                .is_some_and(|file| file.count() >= *count)
        });
        Ok(sound && all_there && (known.count() > 0 || !files.is_empty()))
    }

    fn index_end(&self) -> Option<u64> {
        self.index.as_ref().and_then(|index| index.end_position())
    }

    /// Puts what the walk could not: keys of records before it, or of a whole index that is lost.
    fn complete_index(
        &mut self,
        log: &Arc<Log>,
        complete: bool,
        from: u64,
        outcome: &Outcome,
    ) -> Result<()> {
        let Some(index) = self.index.clone() else {
            return Ok(());
        };
        let min = self.files.first().map_or(0, |file| file.start);
        if self.access == Access::Read {
            if !complete || self.index_end().is_some_and(|end| end >= outcome.end) {
                self.unindexed = min..outcome.end;
            }
            return Ok(());
        }
        let again = if complete {
            index.cut(outcome.end)?
        } else if index.files().is_empty() && from == min {
            // Nothing was there, and the walk has put everything.
            None
        } else {
            index.clear()?;
            Some(min)
        };
        let Some(start) = again else { return Ok(()) };
        let mut rebuilt = 0;
        let mut visit = |record: &Record<'_>, position: u64| -> Result<()> {
            let known = Known::read(record.raw_properties());
            if position < outcome.end {
                rebuilt += put_keys(&index, record, &known, position)?;
            }
            Ok(())
        };
        walk(log, start, Trust::Below(outcome.end), &mut visit)?;
        self.recovery.index_entries_rebuilt += rebuilt;
        Ok(())
    }

    /// Entries behind the end of the log lead nowhere.
    fn cut_queues(&self, end: u64) -> Result<()> {
        let min = self.files.first().map_or(0, |file| file.start);
        for (_, queue) in self.queues.all(&self.topics) {
            let mut max = queue.max();
            while max > queue.min() {
                match queue.entry(max - 1)? {
                    Some(entry) if entry.is_message(end) => break,
                    Some(entry) if entry.size == FILLER_SIZE => break,
                    _ => max -= 1,
                }
            }
            if max < queue.max() {
                queue.truncate(max)?;
            }
            queue.correct_min(min)?;
        }
        match &self.index {
            Some(index) if self.access == Access::ReadWrite => index.retire_below(min),
            _ => Ok(()),
        }
    }

    /// Finds the queue entries that lead into holes: the messages that are lost. Where the store
    /// may be written they become fillers.
    fn name_losses(&self, outcome: &mut Outcome) -> Result<()> {
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
        Ok(())
    }
}

/// Puts the entries of a record's keys, unless they are there; returns how many were put.
fn put_keys(index: &Index, record: &Record<'_>, known: &Known<'_>, position: u64) -> Result<u64> {
    let mut put = 0;
    let last = index.end_position();
    for key in known.index_keys() {
        let hash = index_hash(record.topic(), key);
        // A process that died between two keys of a record leaves the first in the index.
        let there = last == Some(position)
            && index
                .files()
                .iter()
                .rev()
                .take(2)
                .any(|file| file.contains(hash, position));
        if !there && last.is_none_or(|last| position >= last) {
            index.put(hash, position, record.store_timestamp())?;
            put += 1;
        }
    }
    Ok(put)
}

/// Finds the bounds of a queue from its files: up to the last entry that leads to its own record.
fn find_bounds(queue: &ConsumeQueue, log: &Log) -> Result<()> {
    let first = queue.first_on_disk().unwrap_or(0);
    let mut max = queue.last_on_disk()?;
    while max > first {
        let entry = queue.entry(max - 1)?;
        let sound = entry.is_some_and(|entry| {
            entry.size != FILLER_SIZE
                && log.record_at(entry.position).is_ok_and(|message| {
                    let record = message.record();
                    record.queue_offset() == (max - 1) as i64
                        && record.queue_id() == queue.id as i32
                        && record.layout().total_len == entry.size
                })
        });
        let expired = entry.is_some_and(|entry| {
            entry.size != FILLER_SIZE
                && entry.position + u64::from(entry.size) <= log.min_position()
        });
        if sound || expired {
            break;
        }
        max -= 1;
    }
    queue.set_bounds(first, max);
    Ok(())
}

fn last_store_ms(log: &Arc<Log>, end: u64) -> Result<i64> {
    let start = log.files.find(end - 1).map_or(end, |file| file.start());
    let mut last = 0;
    let mut visit = |record: &Record<'_>, _: u64| {
        last = record.store_timestamp();
        Ok(())
    };
    walk(log, start, Trust::Below(end), &mut visit)?;
    Ok(last)
}
