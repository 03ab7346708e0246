//! Partitions that can be compacted, and how much of them is dirty.

use super::cleanable::{DirtySegments, dirty_ratio, has_passed_horizon};
use super::compactor::Compactor;
use super::source::Complete;
use super::work::{Key, Work};
use crate::engine::partition_log::write::ends::Ends;
use crate::engine::partition_log::write::files::{self, FIRST_DIRTY};
use crate::engine::partition_log::write::parts::Parts;
use crate::error::Result;
use std::sync::Arc;

/// A partition that can be compacted.
pub(super) struct Candidate {
    pub(super) key: Key,
    pub(super) ends: Arc<Ends>,
    pub(super) complete: Complete,
    /// All segments, including the one that is written.
    pub(super) ahead: Complete,
    pub(super) first_dirty: u64,
    /// The dirty part of it.
    pub(super) ratio: f64,
    pub(super) is_overdue: bool,
}

impl Candidate {
    /// Updates the candidate to the current segments below `bound`.
    pub(super) fn renew(&mut self, parts: &Parts, bound: u64) {
        self.ahead = all(&self.ends);
        self.complete = complete(parts, &self.ends);
        self.complete.cut(bound);
        let first = self.complete.segments.first();
        let first = first.map_or(bound, |first| first.base);
        self.first_dirty = self.first_dirty.max(first);
    }
}

/// When a partition is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// When the dirty part is large enough.
    Due,
    /// When any message can be dropped.
    Asked,
}

/// What a search for partitions to compact finds.
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    /// The first error because of which a partition is not among them, for a caller that asked.
    pub(super) outcome: Result<()>,
}

impl Compactor {
    /// The partitions that can be compacted.
    pub(super) fn find(
        &self,
        parts: &Parts,
        work: &mut Work,
        topic: Option<&str>,
        when: When,
    ) -> Result<Found> {
        let all = parts.all_ends()?;
        if work.first_dirty.is_none() {
            let path = parts.root.join(FIRST_DIRTY);
            let lines = files::read_checkpoint(&*parts.disk, &path)?.into_iter();
            let known = lines.map(|(topic, queue, at)| ((topic, queue), at));
            work.first_dirty = Some(known.collect());
        }
        let now_ms = self.trusted_ms(parts, work);
        let mut candidates = Vec::new();
        let mut outcome = Ok(());
        for (topic_name, queue, ends) in all {
            let is_meant = topic.is_none_or(|topic| *topic == *topic_name);
            if !is_meant || !self.rules.policy.compacts(&topic_name) {
                continue;
            }
            let key = (topic_name, queue);
            let candidate = self.candidate(parts, work, (key.clone(), ends), when, now_ms);
            let Err(error) = candidate.map(|candidate| candidates.extend(candidate)) else {
                continue;
            };
            let known = work.known.entry(key).or_default();
            known.take(&error);
            match when {
                _ if known.why_given_up().is_none() => return Err(error),
                // It is reported once.
                When::Due => self.take_error(parts, &error),
                When::Asked => outcome = outcome.and(Err(error)),
            }
        }
        Ok(Found {
            candidates,
            outcome,
        })
    }

    /// Whether a partition can be compacted, and how much of it is dirty.
    ///
    /// # Errors
    ///
    /// For a caller that asked: why the partition was given up. Errors of reading its segments.
    fn candidate(
        &self,
        parts: &Parts,
        work: &mut Work,
        (key, ends): (Key, Arc<Ends>),
        when: When,
        now_ms: i64,
    ) -> Result<Option<Candidate>> {
        let disk = &*parts.disk;
        // No segment may be removed while it is read.
        let changing = Arc::clone(&ends);
        let _changing = changing.change();
        let mut complete = complete(parts, &ends);
        let start = complete.segments.first().map_or(0, |first| first.base);
        let next_offset = ends.next_offset(false);
        let first_dirty = work.first_dirty(&key);
        let first_dirty = first_dirty.filter(|it| (start..=next_offset).contains(it));
        let first_dirty = first_dirty.unwrap_or(start);
        let known = work.known.entry(key.clone()).or_default();
        if let Some(error) = known.why_given_up() {
            return match when {
                When::Due => Ok(None),
                When::Asked => Err(error),
            };
        }
        if known.dirty_segments.begins_before(start) {
            known.dirty_segments = DirtySegments::default();
        }
        let rules = &self.rules;
        // Headers are read only where that can change the answer.
        let is_due = |ratio: Option<f64>| ratio.is_some_and(|it| it > rules.dirty_ratio);
        let ages = rules.max_lag_ms < i64::MAX as u64;
        if when == When::Due && !ages && !is_due(dirty_ratio(&complete, first_dirty)) {
            return Ok(None);
        }
        let dirty_segments = &mut known.dirty_segments;
        dirty_segments.update(disk, &complete, first_dirty)?;
        let ahead = all(&ends);
        dirty_segments.cut(disk, &mut complete, &ahead, (rules, now_ms))?;
        let is_overdue = dirty_segments.is_overdue(complete.end, rules, now_ms);
        let ratio = dirty_ratio(&complete, first_dirty);
        let is_wanted = match when {
            When::Due => is_due(ratio) || ratio.is_some() && is_overdue,
            When::Asked => ratio.is_some() || has_passed_horizon(disk, &complete, now_ms)?,
        };
        Ok(is_wanted.then_some(Candidate {
            key,
            ends,
            complete,
            ahead,
            first_dirty,
            ratio: ratio.unwrap_or_default(),
            is_overdue,
        }))
    }
}

/// The complete segments of a partition. Everything appended to them was published.
fn complete(parts: &Parts, ends: &Ends) -> Complete {
    // A segment is completed under the append lock, by the append that then publishes more.
    let _tail = parts.tail.lock();
    let (segments, end) = ends.complete();
    Complete { segments, end }
}

/// All segments of a partition.
fn all(ends: &Ends) -> Complete {
    let (segments, _) = ends.seen();
    Complete {
        segments: segments.to_vec(),
        end: u64::MAX,
    }
}
