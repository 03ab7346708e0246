//! Combines the ranges: checks that the offsets of each queue continue from range to range, writes
//! fillers where they do not, and decides which keys go to which index file.

use super::keys::{IndexKeys, each_key};
use super::rows::Files;
use super::{Laid, LaidRun, Quarry};
use crate::engine::commit_log::queues::queue::GAP_MAX;
use crate::engine::commit_log::queues::queue::entry::QueueEntry;
use crate::error::{Error, Result};
use crate::record::rocketmq::layout::RECORD_LEN_MIN;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// The combined result of all ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Position after the last record.
    pub end: u64,
    /// Records.
    pub records: u64,
    /// Queues.
    pub queues: u64,
    /// Queue entries, without fillers.
    pub queue_entries: u64,
    /// Fillers.
    pub fillers: u64,
    /// Damage that was skipped.
    pub holes: Vec<Range<u64>>,
    /// The index files.
    pub index: Vec<IndexKeys>,
}

impl Quarry {
    /// Checks and completes the queues of all ranges, which are given in log order.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if an offset repeats or goes back, or leaves a gap that neither retention
    /// nor damage explains. Also for damage in the log of another system, because remnants of an
    /// earlier use of the file may follow it.
    pub fn merge(&self, target: &Path, laid: &[Laid]) -> Result<Merged> {
        let mut merged = Merged::default();
        for part in laid {
            merged.records += part.records;
            merged.end = merged.end.max(part.end);
            // A hole that reaches into this range was already found in the range where it begins.
            let holes = part.holes.iter().filter(|hole| {
                let before: Option<&Range<u64>> = merged.holes.last();
                before.is_none_or(|before| hole.start >= before.end)
            });
            let holes: Vec<_> = holes.cloned().collect();
            merged.holes.extend(holes);
        }
        if let Some(hole) = merged.holes.first()
            && !self.ours
        {
            let reason = "the log is damaged: open the store, which decides what follows";
            return Err(self.corrupt(hole.start, reason));
        }
        let mut lost: Vec<Range<u64>> = merged.holes.clone();
        lost.extend(laid.iter().flat_map(|part| part.bridges.iter().cloned()));
        lost.sort_by_key(|range| range.start);
        let mut files = Files::new(&self.disk, target, self.geometry.queue_file_entries);
        let mut next: HashMap<(&str, u32), u64> = HashMap::new();
        for run in laid.iter().flat_map(|part| &part.runs) {
            let met = next.insert((&run.topic, run.queue), run.offsets.end);
            let fillers = self.gap(run, met, &lost)?;
            let bytes: Vec<u8> = fillers
                .clone()
                .flat_map(|_| QueueEntry::FILLER.to_bytes())
                .collect();
            files.store(&run.topic, run.queue, fillers.start, &bytes)?;
            merged.fillers += fillers.end - fillers.start;
            merged.queue_entries += run.offsets.end - run.offsets.start;
        }
        merged.queues = next.len() as u64;
        merged.index = self.plan_index(target, laid)?;
        self.sync(target)?;
        Ok(merged)
    }

    /// The fillers before a run. `met`: the end of the runs before it.
    fn gap(&self, run: &LaidRun, met: Option<u64>, lost: &[Range<u64>]) -> Result<Range<u64>> {
        let (first, max) = (run.offsets.start, met.unwrap_or(0));
        if first < max {
            let reason = format!(
                "queue offset {first} of queue {} of {} comes after {max}: open the store, \
                 which decides between the records",
                run.queue, run.topic
            );
            return Err(self.corrupt(run.position, reason));
        }
        let before = lost.iter().take_while(|range| range.start < run.position);
        let holes: u64 = before.map(|range| range.end - range.start).sum();
        let swallowed = (first - max) <= holes / RECORD_LEN_MIN as u64;
        let retired = met.is_none() && self.files.first().is_some_and(|file| file.start > 0);
        let believed = swallowed || retired;
        if !believed || (met.is_some() && first - max > GAP_MAX) {
            let reason = format!(
                "queue offset {first} of queue {} of {} follows {max}, and the gap has no \
                 known cause: open the store, which decides whether it is valid",
                run.queue, run.topic
            );
            return Err(self.corrupt(run.position, reason));
        }
        let file = first - first % self.geometry.queue_file_entries;
        // The first file of a queue is that of its first entry.
        Ok(met.unwrap_or(file)..first)
    }

    fn plan_index(&self, target: &Path, laid: &[Laid]) -> Result<Vec<IndexKeys>> {
        let keys: u64 = laid.iter().map(|part| part.keys).sum();
        // Entry 0 is never used.
        let room = u64::from(self.geometry.index_entries.saturating_sub(1).max(1));
        let staged = staged(laid);
        let mut plans: Vec<IndexKeys> = Vec::new();
        for file in 0..keys.div_ceil(room) {
            let first = file * room;
            let mut time = 0;
            each_key(&self.disk, target, &staged, (first, 1), &mut |key| {
                time = key.time;
                Ok(())
            })?;
            let least = plans.last().map_or(1, |plan| plan.name + 1);
            plans.push(IndexKeys {
                name: name_of(time).max(least),
                first,
                count: room.min(keys - first),
            });
        }
        Ok(plans)
    }

    fn corrupt(&self, position: u64, reason: impl Into<String>) -> Error {
        let files = &self.log.files;
        Error::corrupt(files.path_of(files.start_of(position)), position, reason)
    }
}

/// Start and number of keys of each range.
fn staged(laid: &[Laid]) -> Vec<(u64, u64)> {
    laid.iter().map(|part| (part.start, part.keys)).collect()
}

/// The name of a file created at this time.
fn name_of(time_ms: i64) -> u64 {
    chrono::DateTime::from_timestamp_millis(time_ms)
        .map(|time| time.with_timezone(&chrono::Local))
        .and_then(|time| time.format("%Y%m%d%H%M%S%3f").to_string().parse().ok())
        .unwrap_or(0)
}
