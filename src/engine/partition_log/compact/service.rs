//! Runs compaction: in the background, where enough is dirty, and on demand.
//!
//! One partition is compacted at a time. Before its segments are replaced, the recovery point is
//! moved past them: above it, recovery takes some gaps between segments for the end of the log, as
//! a power loss leaves them.
//!
//! As for retention, a wall clock that jumps is not trusted for an hour: set forward, it would end
//! the time for which tombstones are kept, and the producers that are known.

use super::cleanable::{DirtySegments, dirty_ratio, has_passed_horizon};
use super::pace::Pace;
use super::pass::Pass;
use super::rules::CompactRules;
use super::source::Complete;
use super::stop::{Done, Stop};
use crate::damage::{Damage, DamageKind};
use crate::engine::Compacted;
use crate::engine::partition_log::write::ends::Ends;
use crate::engine::partition_log::write::files::{self, FIRST_DIRTY};
use crate::engine::partition_log::write::parts::Parts;
use crate::engine::service::durability::Durable;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::service::trusted_clock::TrustedClock;
use crate::error::{Awaited, Error, Result};
use crate::plant::{Bug, planted};
use crate::region::guard;
use crate::sync::{Mutex, TimedMutex, TimedMutexGuard};
use crate::warning::{Warning, Warnings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// A thread that waits for another compaction checks this often whether to wait on.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Bytes between two reports of progress.
const TELL_EVERY: u64 = 1 << 20;

/// Compacts the partitions of a store.
#[derive(Debug)]
pub struct Compactor {
    rules: CompactRules,
    /// Where the steady clock begins.
    begin: Instant,
    warnings: Arc<Warnings>,
    shutdown: Shutdown,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held while partitions are compacted.
    work: TimedMutex<Work>,
    /// The thread that holds it.
    holder: Mutex<Option<ThreadId>>,
}

/// The right to compact.
struct Held<'a> {
    work: TimedMutexGuard<'a, Work>,
    holder: &'a Mutex<Option<ThreadId>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.holder.lock() = None;
    }
}

type Key = (Arc<str>, u32);

/// What is known of the partitions.
#[derive(Debug, Default)]
struct Work {
    /// `None` before the checkpoint was read.
    first_dirty: Option<BTreeMap<(String, u32), u64>>,
    known: BTreeMap<Key, Known>,
    clock: TrustedClock,
}

#[derive(Debug, Default)]
struct Known {
    dirty_segments: DirtySegments,
    /// Nothing is compacted until the store is opened again: a segment is damaged, or a replacement
    /// is not complete.
    is_given_up: bool,
}

/// A partition that can be compacted.
struct Candidate {
    key: Key,
    ends: Arc<Ends>,
    complete: Complete,
    /// All segments, including the one that is written.
    ahead: Complete,
    first_dirty: u64,
    /// The dirty part of it.
    ratio: f64,
    is_overdue: bool,
}

impl Candidate {
    /// Updates the candidate to the current segments below `bound`.
    fn renew(&mut self, parts: &Parts, bound: u64) {
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
enum When {
    /// When the dirty part is large enough.
    Due,
    /// When any message can be dropped.
    Asked,
}

impl Compactor {
    /// Compaction by these rules. No thread runs yet.
    pub fn new(rules: CompactRules, warnings: &Arc<Warnings>) -> Compactor {
        Compactor {
            rules,
            begin: Instant::now(),
            warnings: Arc::clone(warnings),
            shutdown: Shutdown::default(),
            thread: Mutex::default(),
            work: TimedMutex::new(Work::default()),
            holder: Mutex::default(),
        }
    }

    /// Whether a topic is compacted.
    pub fn compacts(&self, topic: &str) -> bool {
        self.rules.policy.compacts_any() && self.rules.policy.compacts(topic)
    }

    /// Starts the thread, if any topic is compacted.
    pub fn start(self: &Arc<Compactor>, parts: &Arc<Parts>) -> std::io::Result<()> {
        if !self.rules.policy.compacts_any() {
            return Ok(());
        }
        let (compactor, parts) = (Arc::clone(self), Arc::clone(parts));
        let thread = std::thread::Builder::new().name("forebay-compact".to_owned());
        let started = thread.spawn(move || compactor.run_service(&parts))?;
        *self.thread.lock() = Some(started);
        Ok(())
    }

    /// Ends the thread, and waits until no segment is being replaced.
    pub fn end(&self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        // The callback of a compaction that closes the store is called between replacements.
        let _ = self.hold(|| true);
    }

    /// Waits for the right to compact. `goes_on` is asked repeatedly whether to wait on.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] for the callback of a compaction; [`Stop::Asked`] if the wait ends.
    fn hold(&self, mut goes_on: impl FnMut() -> bool) -> Done<Held<'_>> {
        let own = std::thread::current().id();
        if *self.holder.lock() == Some(own) {
            return Err(Error::Busy {
                what: Awaited::Compaction,
                waited_ms: 0,
            }
            .into());
        }
        loop {
            if let Some(work) = self.work.try_lock_for(ASK_EVERY) {
                *self.holder.lock() = Some(own);
                let holder = &self.holder;
                return Ok(Held { work, holder });
            }
            if !goes_on() {
                return Err(Stop::Asked);
            }
        }
    }

    fn run_service(&self, parts: &Parts) {
        while !self.shutdown.has_begun() {
            self.shutdown.sleep(self.rules.backoff);
            while !self.shutdown.has_begun() && self.step(parts) {}
        }
    }

    /// Compacts the partition with the highest dirty ratio, if that is high enough. Returns whether
    /// there may be another one.
    pub fn step(&self, parts: &Parts) -> bool {
        guard::renew();
        let Ok(mut held) = self.hold(|| !self.shutdown.has_begun()) else {
            return false;
        };
        let work = &mut *held.work;
        let due = match self.find(parts, work, None, When::Due) {
            Ok(found) => found.into_iter().max_by(|one, other| {
                let order = one.is_overdue.cmp(&other.is_overdue);
                order.then(one.ratio.total_cmp(&other.ratio))
            }),
            Err(error) => return self.take_error(parts, &error),
        };
        let Some(candidate) = due else {
            return false;
        };
        let mut pace = Pace::new(&self.shutdown, self.rules.bytes_per_second);
        let mut pace = |bytes| pace.spend(bytes);
        match self.compact_one(parts, work, candidate, &mut pace) {
            Ok(_) => true,
            Err(Stop::Asked) => false,
            Err(Stop::Failed(error)) => self.take_error(parts, &error),
        }
    }

    /// Handles an error of the background. Returns whether another partition may be compacted.
    fn take_error(&self, parts: &Parts, error: &Error) -> bool {
        if let Error::Corrupt {
            path,
            position,
            reason,
        } = error
        {
            let place = *position..*position;
            let damage = Damage::new(DamageKind::Log, path, place, reason);
            self.warnings.add(Warning::Damage(damage));
            return true;
        }
        if !matches!(error, Error::Closed { .. } | Error::Unsupported { .. })
            && error.ends_writing()
        {
            parts.fail(error);
        }
        false
    }

    /// Compacts all topics that are compacted, or one of them, as far as anything can be dropped.
    /// `progress` gets the bytes done and the total; if it returns `false`, compaction ends after
    /// the groups that it has replaced.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a topic that is not compacted; [`Error::Busy`] for a call from
    /// `progress`; [`Error::Corrupt`] for the first damaged segment, after the other partitions
    /// were compacted; [`Error::Closed`] if the store is closed meanwhile; errors of the disk.
    pub fn compact(
        &self,
        parts: &Parts,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        parts.health.check()?;
        if let Some(topic) = topic.filter(|topic| !self.rules.policy.compacts(topic)) {
            let reason =
                "the topic is not compacted: open the store with cleanup_policy=\"compact\"";
            return Err(Error::option("topic", format!("{topic:?}"), reason));
        }
        let mut held = match self.hold(|| !self.shutdown.has_begun() && progress(0, 0)) {
            Ok(held) => held,
            Err(Stop::Asked) if self.shutdown.has_begun() => {
                return Err(Error::closed(&parts.root));
            }
            Err(Stop::Asked) => return Ok(Compacted::default()),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let work = &mut *held.work;
        let found = self.find(parts, work, topic, When::Asked)?;
        let total = found.iter().map(|it| {
            let dirty = it.complete.bytes_from(it.first_dirty);
            dirty + it.complete.bytes_from(0)
        });
        let total = total.sum();
        let (mut done, mut told) = (0, 0);
        let mut goes_on = progress(0, total);
        let mut compacted = Compacted::default();
        let mut outcome = Ok(());
        for candidate in found {
            if !goes_on {
                break;
            }
            let mut pace = |bytes| {
                if self.shutdown.has_begun() {
                    return Err(Stop::Asked);
                }
                done += bytes;
                if done - told >= TELL_EVERY {
                    told = done;
                    goes_on = progress(u64::min(done, total), total);
                }
                match goes_on {
                    true => Ok(()),
                    false => Err(Stop::Asked),
                }
            };
            match self.compact_one(parts, work, candidate, &mut pace) {
                Ok(counts) => compacted.add(&counts),
                Err(Stop::Asked) if !goes_on => {}
                Err(Stop::Asked) => return Err(Error::closed(&parts.root)),
                Err(Stop::Failed(error @ Error::Corrupt { .. })) => {
                    outcome = outcome.and(Err(error));
                }
                Err(Stop::Failed(error)) => {
                    self.take_error(parts, &error);
                    return Err(error);
                }
            }
        }
        outcome?;
        compacted.is_complete = goes_on;
        Ok(compacted)
    }

    /// The partitions that can be compacted.
    fn find(
        &self,
        parts: &Parts,
        work: &mut Work,
        topic: Option<&str>,
        when: When,
    ) -> Result<Vec<Candidate>> {
        let all = parts.all_ends()?;
        if work.first_dirty.is_none() {
            let path = parts.root.join(FIRST_DIRTY);
            let lines = files::read_checkpoint(&*parts.disk, &path)?.into_iter();
            let known = lines.map(|(topic, queue, at)| ((topic, queue), at));
            work.first_dirty = Some(known.collect());
        }
        let now_ms = self.trusted_ms(parts, work);
        let mut found = Vec::new();
        for (topic_name, queue, ends) in all {
            let is_meant = topic.is_none_or(|topic| *topic == *topic_name);
            if !is_meant || !self.rules.policy.compacts(&topic_name) {
                continue;
            }
            let key = (topic_name, queue);
            let candidate = self.candidate(parts, work, (key, ends), when, now_ms);
            match candidate {
                Ok(candidate) => found.extend(candidate),
                // Reported when it is asked for, and once in the background.
                Err(error @ Error::Corrupt { .. }) if when == When::Due => {
                    self.take_error(parts, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The wall clock as far as it is trusted.
    fn trusted_ms(&self, parts: &Parts, work: &mut Work) -> i64 {
        let steady_ms = parts.clock.steady_ms().unsigned_abs();
        let now = self.begin + Duration::from_millis(steady_ms);
        let reading = work.clock.read(parts.clock.now_ms(), now, Vec::new);
        reading.time_ms
    }

    /// Whether a partition can be compacted, and how much of it is dirty.
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
        if known.is_given_up {
            return Ok(None);
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
        let surveyed = known.dirty_segments.update(disk, &complete, first_dirty);
        surveyed.inspect_err(|error| known.take(error))?;
        let ahead = all(&ends);
        let cut = known
            .dirty_segments
            .cut(disk, &mut complete, &ahead, (rules, now_ms));
        cut.inspect_err(|error| known.take(error))?;
        let is_overdue = known.dirty_segments.is_overdue(complete.end, rules, now_ms);
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

    /// Compacts a partition, in as many passes as its keys need.
    fn compact_one(
        &self,
        parts: &Parts,
        work: &mut Work,
        mut candidate: Candidate,
        pace: &mut dyn FnMut(u64) -> Done<()>,
    ) -> Done<Compacted> {
        if !planted(Bug::CompactUnsaved) {
            parts.flush_completed()?;
            parts.full_pass()?;
        }
        let mut counts = Compacted {
            partitions: 1,
            ..Compacted::default()
        };
        let bound = candidate.complete.end;
        let changing = Arc::clone(&candidate.ends);
        let _changing = changing.change();
        // Retention may have removed segments since the candidate was found.
        candidate.renew(parts, bound);
        while !candidate.complete.segments.is_empty() {
            let now_ms = self.trusted_ms(parts, work);
            let mut pass = Pass {
                disk: &*parts.disk,
                rules: &parts.rules,
                compact: &self.rules,
                ends: &candidate.ends,
                complete: &candidate.complete,
                ahead: &candidate.ahead,
                now_ms,
                pace,
                is_swapping: false,
            };
            let done = pass.run(candidate.first_dirty);
            let is_swapping = pass.is_swapping;
            let known = work.known.entry(candidate.key.clone()).or_default();
            known.dirty_segments = DirtySegments::default();
            known.is_given_up |= is_swapping;
            if let Err(Stop::Failed(error)) = &done {
                known.take(error);
            }
            let (end, own) = done?;
            counts.add(&own);
            work.set_first_dirty(&candidate.key, end);
            self.save(parts, work)?;
            if end >= bound {
                return Ok(counts);
            }
            candidate.first_dirty = end;
            candidate.renew(parts, bound);
        }
        Ok(counts)
    }

    /// Does work on the segments of a partition, while nothing is compacted. The partition can be
    /// compacted afterwards, even if that was given up because of damage.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] for the callback of a compaction; [`Error::Closed`]; those of the work.
    pub fn pause<T>(
        &self,
        parts: &Parts,
        (topic, queue): (&Arc<str>, u32),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut held = self.hold_for(parts)?;
        let key = (Arc::clone(topic), queue);
        let done = work();
        match &done {
            Ok(_) => held.work.known.remove(&key),
            // A replacement may not be complete.
            Err(_) => {
                let known = Known {
                    is_given_up: true,
                    ..Known::default()
                };
                held.work.known.insert(key, known)
            }
        };
        done
    }

    /// Writes the table of the first dirty offsets again, as far as they are known: other
    /// partitions are compacted from their beginning.
    ///
    /// # Errors
    ///
    /// As [`Compactor::pause`]; those of the disk.
    pub fn save_again(&self, parts: &Parts) -> Result<()> {
        let held = self.hold_for(parts)?;
        self.save(parts, &held.work)
    }

    fn hold_for(&self, parts: &Parts) -> Result<Held<'_>> {
        match self.hold(|| !self.shutdown.has_begun()) {
            Ok(held) => Ok(held),
            Err(Stop::Asked) => Err(Error::closed(&parts.root)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    fn save(&self, parts: &Parts, work: &Work) -> Result<()> {
        let lines = work.first_dirty.iter().flatten();
        let lines: Vec<_> = lines
            .map(|((topic, queue), at)| (&**topic, *queue, *at))
            .collect();
        files::save_checkpoint(&*parts.disk, &parts.root, FIRST_DIRTY, &lines)
    }
}

/// The complete segments of a partition. Everything appended to them was published.
fn complete(parts: &Parts, ends: &Ends) -> Complete {
    // A segment is completed under the append lock, in the append that publishes more.
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

impl Work {
    fn first_dirty(&self, (topic, queue): &Key) -> Option<u64> {
        let known = self.first_dirty.as_ref()?;
        known.get(&(topic.to_string(), *queue)).copied()
    }

    fn set_first_dirty(&mut self, (topic, queue): &Key, at: u64) {
        let known = self.first_dirty.get_or_insert_default();
        known.insert((topic.to_string(), *queue), at);
    }
}

impl Known {
    /// What an error of reading or replacing segments means for later passes.
    fn take(&mut self, error: &Error) {
        self.is_given_up |= matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
    }
}
