//! Retention: deletes log files that are too old or too many, then the files that point into them.
//!
//! The flush thread runs it in steps, at most one a second. After a crash between any two lines of
//! this order, the store opens with the same next offsets:
//!
//! ```text
//!   messages that a hold still needs appended again             ([`Hold`])
//!   --> log durable                                             or nothing is deleted
//!   --> first offsets of the queues --> minimum mark            readers search nothing below
//!   --> queues, index durable --> forebay.offsets durable       next offsets outlive messages
//!   --> unlink a log file, sync its directory, the next one     oldest first, so no gap can remain
//!   --> unlink queue files, index files                         after what they point to
//!   --> forebay.offsets                                         without what was deleted
//! ```
//!
//! Only whole files are deleted, and only if all of a file is dispatched and durable. The last
//! file, which is in use, is never deleted. If a step cannot finish, the next one does. After a
//! crash, opening finishes: the log begins with the first remaining file, and queues and index are
//! corrected accordingly.

mod archived;
mod consumed;
mod rules;

use super::parts::Parts;
use super::read::locate::first_kept;
use crate::engine::directory::page::Mark;
use crate::engine::service::hold::Hold;
use crate::engine::service::retention::{INTERVAL, Now, Times, jump};
use crate::engine::service::trusted_clock::TrustedClock;
use crate::engine::{Damage, DamageKind};
use crate::error::{Error, Result};
use crate::mapped::MappedFile;
use crate::options::Options;
use crate::plant::{Point, pass};
use crate::region::Region;
use crate::sync::{Mutex, MutexGuard};
use archived::Unarchived;
use consumed::Unconsumed;
use rules::{Ages, Rules};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The state of retention; it has no rules if no option asks for it.
#[derive(Debug)]
pub struct Retention {
    plan: Mutex<Arc<Plan>>,
    /// Holds that do not depend on the options.
    holds: Vec<Arc<dyn Hold>>,
    /// Where the steady clock begins.
    begin: Instant,
    progress: Mutex<State>,
    /// Maps of deleted files.
    retired: Mutex<Vec<Weak<Region>>>,
}

/// What the options ask for.
#[derive(Debug)]
struct Plan {
    rules: Option<Rules>,
    /// State what must not be deleted yet, even if it is due.
    holds: Vec<Arc<dyn Hold>>,
}

impl Plan {
    fn new(options: &Options, parts: &Arc<Parts>, holds: &[Arc<dyn Hold>]) -> Result<Plan> {
        let mut holds = holds.to_vec();
        if options.keep_unconsumed {
            let parts = Arc::clone(parts);
            holds.push(Arc::new(Unconsumed { parts }));
        }
        if options.keep_unarchived {
            let parts = Arc::clone(parts);
            holds.push(Arc::new(Unarchived { parts }));
        }
        let rules = Rules::new(options)?;
        Ok(Plan { rules, holds })
    }
}

/// No file is deleted while it lives.
#[derive(Debug)]
pub struct Pause<'a>(#[allow(dead_code)] MutexGuard<'a, State>);

#[derive(Debug, Default)]
struct State {
    /// When the next step is due.
    next: Option<Instant>,
    ages: Ages,
    clock: TrustedClock,
}

impl Retention {
    /// Retention with the rules of the options. It asks `holds`, and those that the options add.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for invalid hours.
    pub fn new(
        options: &Options,
        parts: &Arc<Parts>,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Retention> {
        let plan = Plan::new(options, parts, &holds)?;
        Ok(Retention {
            plan: Mutex::new(Arc::new(plan)),
            holds,
            begin: Instant::now(),
            progress: Mutex::default(),
            retired: Mutex::default(),
        })
    }

    /// Applies these options from the next step on.
    ///
    /// # Errors
    ///
    /// As [`Retention::new`].
    pub fn change(&self, options: &Options, parts: &Arc<Parts>) -> Result<()> {
        let plan = Plan::new(options, parts, &self.holds)?;
        *self.plan.lock() = Arc::new(plan);
        Ok(())
    }

    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.lock())
    }

    /// How long the thread that runs the steps may sleep, at most `longest`.
    pub fn rest(&self, longest: Duration) -> Duration {
        match self.plan().rules {
            Some(_) => longest.min(INTERVAL),
            None => longest,
        }
    }

    /// This moment, by the clocks of the store.
    pub fn now(&self, parts: &Parts) -> Now {
        Now::of(&*parts.clock, self.begin)
    }

    /// Deletes what is due, unless the last step was less than a second ago. A failure that is not
    /// temporary is reported. The next step tries again.
    pub fn step(&self, parts: &Parts, now: Now) {
        let plan = self.plan();
        let Some(rules) = &plan.rules else { return };
        let Some(mut progress) = self.progress.try_lock() else {
            return;
        };
        if progress.next.is_some_and(|next| now.at < next) || parts.health.check().is_err() {
            return;
        }
        let clock_ms = now.wall_ms;
        progress.next = Some(now.at + INTERVAL);
        let mapped = self.mapped_bytes();
        let reading = progress
            .clock
            .read(clock_ms, now.steady, || known_times(parts));
        if let Some(damage) = jump(&parts.root, clock_ms, reading) {
            parts.report.add(damage);
        }
        let times = Times {
            wall_ms: clock_ms,
            believed_ms: reading.time_ms,
        };
        let keep_from = || {
            let mut holds = plan.holds.iter();
            holds.try_fold(u64::MAX, |from, hold| Ok(from.min(hold.keep_from()?)))
        };
        let done = rules
            .due(parts, times, mapped, &mut progress.ages, keep_from)
            .and_then(|until| self.retire(parts, until));
        if let Err(error) = done
            && error.ends_writing()
            && !matches!(error, Error::Closed { .. })
        {
            parts.report.add(Damage {
                kind: DamageKind::Retention,
                path: parts.log.files.directory().to_path_buf(),
                position: parts.log.min_position(),
                length: 0,
                reason: format!("retention failed: {error}"),
                lost: Vec::new(),
            });
        }
    }

    /// Waits for the running step. No other begins until the result is dropped.
    pub fn pause(&self) -> Pause<'_> {
        Pause(self.progress.lock())
    }

    /// Bytes of deleted files that are still mapped.
    pub fn mapped_bytes(&self) -> u64 {
        let mut retired = self.retired.lock();
        retired.retain(|region| region.strong_count() > 0);
        let regions = retired.iter().filter_map(Weak::upgrade);
        regions.map(|region| region.len() as u64).sum()
    }

    /// Deletes the log files that end at or below `until`, except the last.
    pub(super) fn retire(&self, parts: &Parts, until: u64) -> Result<()> {
        let log = &parts.log;
        let first_end = log.files.first().map_or(u64::MAX, |first| first.end());
        if until < first_end {
            return Ok(());
        }
        for hold in &self.plan().holds {
            if !hold.let_go(until)? {
                return Ok(());
            }
        }
        let until = until.min(log.files.start_of(parts.dispatcher.dispatched()));
        if until < first_end {
            return Ok(());
        }
        // Done before readers can notice the deletion: if the sync fails, writing ends and the
        // files stay.
        parts.flush_to(until)?;
        raise_minimum(parts, until)?;
        // The table is durable before a file is deleted, so that an opening need not rely on queue
        // entries.
        let flushed = parts.flush_all()?;
        if let Err(error) = parts.save_inventory(flushed) {
            if error.ends_writing() {
                return Err(error);
            }
            // Saving the table would have synced the minimum mark. With an older one an opening
            // would report the file as missing.
            log.state.sync(&*parts.disk)?;
            // The last file of each queue is durable too and has the same offsets. So one log file
            // may be deleted without the table, to make room for it; the next step deletes the
            // rest. Until then queue files stay, because an opening makes the messages in the
            // remaining log files visible again.
            return self.retire_first(parts, first_end).map(drop);
        }
        while let Some(file) = self.retire_first(parts, until)? {
            drop(file);
            pass(Point::Retired);
        }
        for (_, queue) in parts.queues.all(&parts.topics)? {
            queue.retire_files()?;
        }
        if let Some(index) = &parts.index {
            index.retire_below(until)?;
        }
        let flushed = parts.flush_all()?;
        parts.save_inventory(flushed)
    }

    fn retire_first(&self, parts: &Parts, until: u64) -> Result<Option<Arc<MappedFile>>> {
        let mapped = parts.log.files.first().and_then(|file| file.mapped());
        let retired = parts.log.files.retire_first(until).inspect_err(|error| {
            // After a failed sync it is unknown whether the name is gone.
            if error.is_of_sync() {
                parts.fail(error);
            }
        })?;
        if let (Some(_), Some(region)) = (&retired, &mapped) {
            self.retired.lock().push(Arc::downgrade(region));
        }
        Ok(retired)
    }
}

/// Moves the beginning of the queues, then that of the log, to position `until`. If a queue cannot
/// be read, nothing moves.
fn raise_minimum(parts: &Parts, until: u64) -> Result<()> {
    let log = &parts.log;
    let mut firsts = Vec::new();
    for (topic, queue) in parts.queues.all(&parts.topics)? {
        firsts.push((first_kept(log, &topic, &queue, until)?, queue));
        parts.queues.limit_maps();
    }
    let _alone = parts.raising.lock();
    for (first, queue) in firsts {
        queue.raise_min_to(first);
    }
    log.state.set(Mark::Minimum, until.max(log.min_position()));
    Ok(())
}

/// The times in ms at which the store was opened for writing, and at which its last message was
/// stored.
fn known_times(parts: &Parts) -> Vec<i64> {
    let epochs = parts.log.state.epochs().known.into_iter();
    let began = epochs.map(|epoch| (epoch.began_ns / 1_000_000).cast_signed());
    let stored = parts.log.stored_ms.load(Ordering::Relaxed);
    began.chain([stored]).collect()
}
