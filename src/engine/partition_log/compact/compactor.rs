//! The compactor of a store, and the right to compact.
//!
//! As in retention, a wall clock that jumps is not trusted for an hour: a clock that was set
//! forward would expire tombstones and producers too early.

use super::rules::CompactRules;
use super::stop::{Done, Stop};
use super::work::Work;
use crate::damage::{Damage, DamageKind};
use crate::engine::partition_log::write::parts::Parts;
use crate::engine::service::shutdown::Shutdown;
use crate::error::{Awaited, Error, Result};
use crate::sync::{Mutex, TimedMutex, TimedMutexGuard};
use crate::warning::{Warning, Warnings};
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// A thread that waits for another compaction checks this often whether to wait on.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Compacts the partitions of a store.
#[derive(Debug)]
pub struct Compactor {
    pub(super) rules: CompactRules,
    /// Where the steady clock begins.
    pub(super) begin: Instant,
    warnings: Arc<Warnings>,
    pub(super) shutdown: Shutdown,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Held while partitions are compacted.
    pub(super) work: TimedMutex<Work>,
    /// The thread that holds it.
    pub(super) holder: Mutex<Option<ThreadId>>,
}

/// The right to compact.
pub(super) struct Held<'a> {
    pub(super) work: TimedMutexGuard<'a, Work>,
    pub(super) holder: &'a Mutex<Option<ThreadId>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.holder.lock() = None;
    }
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

    /// Waits for the right to compact. `goes_on` is asked repeatedly whether to continue waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] for the callback of a compaction; [`Stop::Asked`] if the wait ends.
    pub(super) fn hold(&self, mut goes_on: impl FnMut() -> bool) -> Done<Held<'_>> {
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

    pub(super) fn hold_for(&self, parts: &Parts) -> Result<Held<'_>> {
        match self.hold(|| !self.shutdown.has_begun()) {
            Ok(held) => Ok(held),
            Err(Stop::Asked) => Err(Error::closed(&parts.root)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// The wall clock as far as it is trusted.
    pub(super) fn trusted_ms(&self, parts: &Parts, work: &mut Work) -> i64 {
        let steady_ms = parts.clock.steady_ms().unsigned_abs();
        let now = self.begin + Duration::from_millis(steady_ms);
        let reading = work.clock.read(parts.clock.now_ms(), now, Vec::new);
        reading.time_ms
    }

    /// Handles an error of the background.
    pub fn take_error(&self, parts: &Parts, error: &Error) {
        if let Error::Corrupt {
            path,
            position,
            reason,
        } = error
        {
            let place = *position..*position;
            let damage = Damage::new(DamageKind::Log, path, place, reason);
            self.warnings.add(Warning::Damage(damage));
        } else if let Error::Unsupported { what } = error {
            let reason = what.clone();
            self.warnings.add(Warning::NotCompacted { reason });
        } else if !matches!(error, Error::Closed { .. }) && error.ends_writing() {
            parts.fail(error);
        }
    }
}
