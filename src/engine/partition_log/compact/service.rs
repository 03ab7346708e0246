//! Runs compaction: in the background, where enough is dirty, and on demand.
//!
//! One partition is compacted at a time. Before its segments are replaced, the recovery point is
//! moved past them: above it, recovery takes some gaps between segments for the end of the log, as
//! a power loss leaves them.

use super::candidate::{Candidate, When};
use super::cleanable::DirtySegments;
use super::compactor::Compactor;
use super::pace::Pace;
use super::pass::Pass;
use super::stop::{Done, Stop};
use super::work::{Known, Work, is_of_partition};
use crate::engine::partition_log::write::files::{self, FIRST_DIRTY};
use crate::engine::partition_log::write::parts::Parts;
use crate::engine::service::durability::Durable;
use crate::engine::{Compacted, Keyless};
use crate::error::{Error, Result};
use crate::plant::{Bug, planted};
use crate::region::guard;
use std::sync::Arc;

/// Bytes between two reports of progress.
const TELL_EVERY: u64 = 1 << 20;

impl Compactor {
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
        // If the callback of a compaction closes the store, this does not wait: no segment is being
        // replaced during a callback.
        let _ = self.hold(|| true);
    }

    fn run_service(&self, parts: &Parts) {
        while !self.shutdown.has_begun() {
            self.shutdown.sleep(self.rules.backoff);
            while !self.shutdown.has_begun() && self.step(parts) {}
        }
    }

    /// Compacts the partition with the highest dirty ratio among those that are overdue, or else
    /// among those that are due. Returns whether there may be another one.
    pub fn step(&self, parts: &Parts) -> bool {
        guard::renew();
        let Ok(mut held) = self.hold(|| !self.shutdown.has_begun()) else {
            return false;
        };
        let work = &mut *held.work;
        let due = match self.find(parts, work, None, When::Due) {
            Ok(found) => found.candidates.into_iter().max_by(|one, other| {
                let order = one.is_overdue.cmp(&other.is_overdue);
                order.then(one.ratio.total_cmp(&other.ratio))
            }),
            Err(error) => {
                self.take_error(parts, &error);
                return false;
            }
        };
        let Some(candidate) = due else {
            return false;
        };
        let key = candidate.key.clone();
        let mut pace = Pace::new(&self.shutdown, self.rules.bytes_per_second);
        let mut pace = |bytes| pace.spend(bytes);
        match self.compact_one(parts, work, candidate, Keyless::Drop, &mut pace) {
            Ok(_) => true,
            Err(Stop::Asked) => false,
            Err(Stop::Failed(error)) => {
                self.take_error(parts, &error);
                // Otherwise the next step would try the same partition again at once.
                let known = work.known.get(&key);
                known.is_some_and(|known| known.why_given_up().is_some())
            }
        }
    }

    /// Compacts all topics that are compacted, or one of them, as far as anything can be dropped.
    /// `progress` gets the bytes done and the total; if it returns `false`, compaction ends after
    /// the groups that it has replaced.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the topic, or every topic, is not compacted; [`Error::Busy`] for
    /// a call from `progress`; [`Error::Closed`] if the store is closed meanwhile; errors of the
    /// disk. After the other partitions were compacted: [`Error::Corrupt`] for the first damaged
    /// segment, the error because of which an earlier pass has given a partition up, and
    /// [`Error::InvalidOption`] for a message without a key that is refused.
    pub fn compact(
        &self,
        parts: &Parts,
        keyless: Keyless,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        parts.health.check()?;
        self.check_policy(topic)?;
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
        let (found, mut outcome) = (found.candidates, found.outcome);
        let total = found.iter().map(|it| {
            let dirty = it.complete.bytes_from(it.first_dirty);
            dirty + it.complete.bytes_from(0)
        });
        let total = total.sum();
        let (mut done, mut told) = (0, 0);
        let mut goes_on = progress(0, total);
        let mut compacted = Compacted::default();
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
            match self.compact_one(parts, work, candidate, keyless, &mut pace) {
                Ok(counts) => compacted.add(&counts),
                Err(Stop::Asked) if !goes_on => {}
                Err(Stop::Asked) => return Err(Error::closed(&parts.root)),
                Err(Stop::Failed(error)) if is_of_partition(&error) => {
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

    /// Checks that the topic, or any topic, is compacted.
    fn check_policy(&self, topic: Option<&str>) -> Result<()> {
        let policy = &self.rules.policy;
        let (name, value, what) = match topic {
            Some(topic) if policy.compacts(topic) => return Ok(()),
            Some(topic) => ("topic", format!("{topic:?}"), "the topic is not compacted"),
            None if policy.compacts_any() => return Ok(()),
            None => {
                let none = "no topic is compacted";
                ("cleanup_policy", format!("{:?}", policy.words()), none)
            }
        };
        let reason = format!("{what}: open the store with cleanup_policy=\"compact\"");
        Err(Error::option(name, value, reason))
    }

    /// Compacts a partition, in as many passes as its keys need.
    fn compact_one(
        &self,
        parts: &Parts,
        work: &mut Work,
        mut candidate: Candidate,
        keyless: Keyless,
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
                keyless,
                now_ms,
                pace,
                is_swapping: false,
            };
            let done = pass.run(candidate.first_dirty);
            let is_swapping = pass.is_swapping;
            let known = work.known.entry(candidate.key.clone()).or_default();
            known.dirty_segments = DirtySegments::default();
            if let Err(Stop::Failed(error)) = &done {
                match is_swapping {
                    true => *known = Known::given_up(error),
                    false => known.take(error),
                }
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
            Err(error) => held.work.known.insert(key, Known::given_up(error)),
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

    fn save(&self, parts: &Parts, work: &Work) -> Result<()> {
        let lines = work.first_dirty.iter().flatten();
        let lines: Vec<_> = lines
            .map(|((topic, queue), at)| (&**topic, *queue, *at))
            .collect();
        files::save_checkpoint(&*parts.disk, &parts.root, FIRST_DIRTY, &lines)
    }
}
