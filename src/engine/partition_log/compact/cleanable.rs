//! Which part of a partition can be compacted, and when.
//!
//! A pass ends before the first segment that is still written, that has messages of an open
//! transaction, or that has messages younger than `min_compaction_lag_ms`.

use super::rules::CompactRules;
use super::source::{Complete, Source, is_transactional_data};
use crate::disk::Disk;
use crate::engine::partition_log::segments::walk::FoundBatch;
use crate::error::Result;
use std::collections::BTreeMap;

/// What the headers of a segment say.
#[derive(Clone, Copy, Debug)]
struct Facts {
    base: u64,
    /// The largest time, or when the file was last modified if its messages have none.
    largest_ms: i64,
    /// The largest time of the first batch.
    first_ms: Option<i64>,
}

/// The facts about the dirty segments of a partition. Complete segments do not change, so each is
/// read once.
#[derive(Debug, Default)]
pub struct DirtySegments {
    facts: Vec<Facts>,
    /// First offsets of the transactions that are open, by producer.
    open: BTreeMap<i64, u64>,
}

impl DirtySegments {
    /// Whether it knows a segment before this offset.
    pub fn begins_before(&self, offset: u64) -> bool {
        self.facts.first().is_some_and(|facts| facts.base < offset)
    }

    /// Reads the headers of the complete segments that are not known yet, from the one with the
    /// first dirty offset on.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`crate::Error::Corrupt`] for a segment that is damaged.
    pub fn update(&mut self, disk: &dyn Disk, complete: &Complete, first_dirty: u64) -> Result<()> {
        let known = self.facts.last().map(|facts| facts.base);
        for (number, segment) in complete.segments.iter().enumerate() {
            if complete.limit(number) <= first_dirty || known.is_some_and(|it| segment.base <= it) {
                continue;
            }
            let Some(mut source) = complete.source(disk, number, 0)? else {
                break;
            };
            // A segment that cannot be read is read again next time.
            let mut open = self.open.clone();
            let (mut largest, mut first_ms) = (-1, None);
            while let Some(found) = source.next(disk)? {
                let header = &found.header;
                largest = header.max_timestamp.max(largest);
                first_ms.get_or_insert(header.max_timestamp);
                if is_transactional_data(header) {
                    open.entry(header.producer_id)
                        .or_insert(header.first_offset());
                }
                close(&source, &found, &mut open)?;
            }
            let modified = || disk.modified_ms(source.path());
            let largest_ms = match largest {
                -1 => modified()?.unwrap_or(-1),
                largest => largest,
            };
            self.facts.push(Facts {
                base: segment.base,
                largest_ms,
                first_ms,
            });
            self.open = open;
        }
        Ok(())
    }

    /// Cuts `complete` before the first segment that cannot be compacted. `all` are all segments.
    ///
    /// # Errors
    ///
    /// As [`DirtySegments::update`].
    pub fn cut(
        &self,
        disk: &dyn Disk,
        complete: &mut Complete,
        all: &Complete,
        (rules, now_ms): (&CompactRules, i64),
    ) -> Result<()> {
        let open = self.open_at_end(disk, complete.end, all)?;
        if let Some(first) = open.values().min() {
            let number = complete.number_of(*first);
            if let Some(segment) = complete.segments.get(number) {
                complete.cut(segment.base);
            }
        }
        let min_lag = i64::try_from(rules.min_lag_ms).unwrap_or(i64::MAX);
        let latest = now_ms.saturating_sub(min_lag);
        let mut young = self.facts.iter().filter(|it| it.largest_ms > latest);
        if let Some(facts) = young.next().filter(|_| min_lag > 0) {
            complete.cut(facts.base);
        }
        Ok(())
    }

    /// The transactions of the complete segments that end neither in these nor in later segments.
    fn open_at_end(&self, disk: &dyn Disk, end: u64, all: &Complete) -> Result<BTreeMap<i64, u64>> {
        let mut open = self.open.clone();
        for number in 0..all.segments.len() {
            if open.is_empty() {
                break;
            }
            if all.limit(number) <= end {
                continue;
            }
            let Some(mut source) = all.source(disk, number, 0)? else {
                break;
            };
            while let Some(found) = source.next(disk)? {
                close(&source, &found, &mut open)?;
            }
        }
        Ok(open)
    }

    /// Whether a dirty message below `end` has waited for longer than `max_compaction_lag_ms`.
    pub fn is_overdue(&self, end: u64, rules: &CompactRules, now_ms: i64) -> bool {
        let max_lag = i64::try_from(rules.max_lag_ms).unwrap_or(i64::MAX);
        let below = self.facts.iter().filter(|facts| facts.base < end);
        let firsts = below.filter_map(|facts| facts.first_ms);
        let first = firsts.filter(|first| *first >= 0).min();
        first.is_some_and(|first| now_ms.saturating_sub(first) > max_lag)
    }
}

/// Closes the transaction that ends with a batch.
fn close(source: &Source, found: &FoundBatch, open: &mut BTreeMap<i64, u64>) -> Result<()> {
    let header = &found.header;
    if header.is_control() && open.contains_key(&header.producer_id) {
        let mut batch = source.open_batch(found, source.bytes(found)?)?;
        let marker = batch.marker().map_err(|flaw| source.flawed(found, flaw))?;
        if marker.is_some() {
            open.remove(&header.producer_id);
        }
    }
    Ok(())
}

/// The dirty part of what can be compacted, from 0 to 1; `None` if nothing is dirty.
pub fn dirty_ratio(complete: &Complete, first_dirty: u64) -> Option<f64> {
    let dirty = complete.bytes_from(first_dirty);
    let all = complete.bytes_from(0);
    (dirty > 0).then(|| as_float(dirty) / as_float(all.max(1)))
}

/// Whether a tombstone or a marker can go: the delete horizon of its batch has passed.
///
/// # Errors
///
/// As [`DirtySegments::update`].
pub fn has_passed_horizon(disk: &dyn Disk, complete: &Complete, now_ms: i64) -> Result<bool> {
    for number in 0..complete.segments.len() {
        let Some(mut source) = complete.source(disk, number, 0)? else {
            break;
        };
        while let Some(found) = source.next(disk)? {
            let horizon = found.header.delete_horizon();
            if horizon.is_none_or(|horizon| horizon > now_ms) {
                continue;
            }
            let mut batch = source.open_batch(&found, source.bytes(&found)?)?;
            while let Some(entry) = batch.next().map_err(|flaw| source.flawed(&found, flaw))? {
                if entry.value.is_none() || found.header.is_control() {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Bytes of files, which a float represents well enough for a ratio.
#[allow(clippy::cast_precision_loss)]
fn as_float(bytes: u64) -> f64 {
    bytes as f64
}
