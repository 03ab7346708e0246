//! Which log files are due: by age, by their total size, by the free space on the disk.

use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::search::next_record;
use crate::engine::commit_log::log::sound::{Depth, Sound, SoundWalk};
use crate::engine::commit_log::parts::Parts;
use crate::engine::directory::page::Mark;
use crate::engine::service::retention::{Limits, Times};
use crate::error::Result;
use crate::mapped::MappedFile;
use crate::options::Options;
use std::sync::Arc;

/// Bytes at the end of a file that are first searched for its last record; four times as many each
/// time none is found.
const LAST_RECORD_REACH: u64 = 64 << 10;

/// The rules from the options.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    limits: Limits,
    /// Bytes of the disk that must stay free.
    reserve: u64,
    /// Maximum fraction of the disk that may be used.
    ratio: f64,
}

/// Start of the file that was checked last, and the store time of its last record. Each step checks
/// the same file until it is due.
#[derive(Debug, Default)]
pub(super) struct Ages {
    known: Option<(u64, Option<i64>)>,
}

impl Rules {
    /// The rules; `None` if the options ask for no deletion.
    pub(super) fn new(options: &Options) -> Result<Option<Rules>> {
        Ok(Limits::new(options)?.map(|limits| Rules {
            limits,
            reserve: options.disk_reserve(),
            ratio: options.disk_warning_ratio.unwrap_or(1.0),
        }))
    }

    /// The position below which all files are due. `mapped`: bytes that the disk gets back when
    /// readers release them. `keep_from`: the position from which everything must stay; called
    /// once, if a file is due.
    pub(super) fn due(
        &self,
        parts: &Parts,
        times: Times,
        mapped: u64,
        ages: &mut Ages,
        keep_from: impl Fn() -> Result<u64>,
    ) -> Result<u64> {
        let files = parts.log.files.all();
        let Some((_, old)) = files.split_last() else {
            return Ok(0);
        };
        // A deletion that a step has begun is completed, whatever the rules say.
        let begun = parts.log.state.get(Mark::Minimum);
        let mut until = begun;
        let dispatched = parts.dispatcher.dispatched();
        let mut total: u64 = files.iter().map(|file| file.len()).sum();
        let mut wanted = self.wanted(parts).saturating_sub(mapped);
        let in_time = self.limits.is_in_time(times.wall_ms);
        let mut held = None;
        for (at, file) in old.iter().enumerate() {
            if file.end() > until {
                let too_long = self.limits.bytes.is_some_and(|bytes| total > bytes);
                let due = wanted > 0
                    || in_time
                        && (too_long
                            || match self.is_old(parts, &files, at, times.believed_ms, ages) {
                                // The age of this file is unknown; the files before it are still
                                // due.
                                Err(_) if until > begun => false,
                                old => old?,
                            });
                if !due || file.end() > dispatched {
                    break;
                }
                let from = match held {
                    Some(from) => from,
                    None => keep_from()?,
                };
                held = Some(from);
                if file.end() > from {
                    break;
                }
                until = file.end();
            }
            total -= file.len();
            wanted = wanted.saturating_sub(file.len());
        }
        Ok(until)
    }

    /// Bytes that must be freed.
    fn wanted(&self, parts: &Parts) -> u64 {
        let directory = parts.log.files.directory();
        // If the disk does not say how full it is, it does not count as full.
        let free = parts.disk.free_space(directory).unwrap_or(u64::MAX);
        let used = parts.disk.used_space(directory).unwrap_or(0);
        missing(free, used, self.reserve, self.ratio)
    }

    fn is_old(
        &self,
        parts: &Parts,
        files: &[Arc<MappedFile>],
        at: usize,
        time_ms: i64,
        ages: &mut Ages,
    ) -> Result<bool> {
        let Some(age) = self.limits.age_ms else {
            return Ok(false);
        };
        // A file without a readable record is as old as the next one.
        for file in files.get(at..).unwrap_or_default() {
            if let Some(stored) = ages.last_stored(&parts.log, file)? {
                return Ok(stored.saturating_add(age) <= time_ms);
            }
        }
        Ok(false)
    }
}

/// Bytes that must be freed, so that `reserve` bytes are free and at most `ratio` of the disk is
/// used.
fn missing(free: u64, used: u64, reserve: u64, ratio: f64) -> u64 {
    let allowed = (used.saturating_add(free) as f64 * ratio).ceil();
    #[allow(clippy::cast_possible_truncation)]
    let above = used.saturating_sub(allowed as u64);
    reserve.saturating_sub(free).max(above)
}

impl Ages {
    fn last_stored(&mut self, log: &Arc<Log>, file: &MappedFile) -> Result<Option<i64>> {
        if let Some((start, time)) = self.known
            && start == file.start()
        {
            return Ok(time);
        }
        let was_mapped = file.is_mapped();
        let time = last_stored(log, file);
        if !was_mapped {
            file.unmap();
        }
        let time = time?;
        self.known = Some((file.start(), time));
        Ok(time)
    }
}

/// Store time of the last record of a file; `None` if it has no readable record.
fn last_stored(log: &Arc<Log>, file: &MappedFile) -> Result<Option<i64>> {
    let mut reach = LAST_RECORD_REACH;
    loop {
        let from = file.end().saturating_sub(reach).max(file.start());
        if let Some(newest) = newest_stored(log, from, file.end())? {
            return Ok(Some(newest));
        }
        if from == file.start() {
            return Ok(None);
        }
        reach *= 4;
    }
}

/// Newest store time from the first sound record in `from..end` on.
fn newest_stored(log: &Arc<Log>, from: u64, end: u64) -> Result<Option<i64>> {
    // `from` may be within a record whose bytes look like a record.
    let Some(first) = next_record(log, from, end)? else {
        return Ok(None);
    };
    let mut walk = SoundWalk::new(log, first..end, Depth::Structure);
    let mut newest = None;
    while let Some(met) = walk.next()? {
        if let Sound::Record(record, _) = met {
            newest = newest.max(Some(record.store_timestamp()));
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn the_disk_has_to_give_what_is_missing_by_either_bound() {
        let used = |bytes: u64| missing(100, bytes, 150, 0.5);
        assert_eq!(used(100), 50);
        assert_eq!(used(300), 100);
    }
}
