//! Removes segments: in a thread, and on request.

use super::archived::unarchived;
use super::due::{Known, Quiet, due, is_last_due};
use crate::cleanup::CleanupPolicy;
use crate::damage::{Damage, DamageKind};
use crate::disk::Disk;
use crate::engine::Topic;
use crate::engine::directory::agreed::Agreed;
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::snapshot::SNAPSHOT;
use crate::engine::partition_log::write::files;
use crate::engine::partition_log::write::parts::{One, Parts};
use crate::engine::report::Report;
use crate::engine::service::hold::{Hold, Kept};
use crate::engine::service::retention::{INTERVAL, Limits, Now, Times, jump};
use crate::engine::service::shutdown::Shutdown;
use crate::engine::service::trusted_clock::TrustedClock;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::plant::{Bug, planted};
use crate::region::guard;
use crate::sync::Mutex;
use crate::table::archives;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Segments that are removed in one piece. A signal waits for it, and it needs two syncs.
pub const PIECE: usize = if cfg!(test) { 4 } else { 64 };

type Key = (Arc<str>, u32);

/// Removes segments of a store.
#[derive(Debug)]
pub struct Retention {
    /// `None` if no option asks for retention.
    limits: Mutex<Option<Arc<Limits>>>,
    /// The options in effect when the store was opened.
    options: Options,
    policy: CleanupPolicy,
    /// What may still need messages.
    holds: Vec<Arc<dyn Hold>>,
    /// Whether messages stay until they are in every archive.
    keeps_unarchived: AtomicBool,
    report: Arc<Report>,
    /// Where the steady clock begins.
    begin: Instant,
    shutdown: Shutdown,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held while first offsets are raised, and while segments are removed.
    progress: Mutex<State>,
}

/// A partition, and the durable offset before which everything goes.
type Raise<'a> = (&'a One, u64);

#[derive(Debug, Default)]
struct State {
    clock: TrustedClock,
    /// Times in ms at which the store was opened and written before.
    known_times: Vec<i64>,
    ages: BTreeMap<Key, Known>,
    /// Last segments of partitions whose other segments are all due.
    quiet: BTreeMap<Key, Quiet>,
    /// When the next step is due.
    next: Option<Instant>,
    /// Whether compaction has kept segments that end before the first offset of their partition.
    is_held: bool,
    /// Segments that readers no longer see, whose files may still exist.
    left: Vec<(One, Vec<Arc<Segment>>)>,
}

impl Retention {
    /// Retention as the options ask for it. No thread runs yet. `known_times`: times in ms at which
    /// the store was opened and written before.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for invalid hours.
    pub fn new(
        options: &Options,
        report: &Arc<Report>,
        known_times: Vec<i64>,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Retention> {
        Ok(Retention {
            holds,
            keeps_unarchived: AtomicBool::new(options.keep_unarchived),
            report: Arc::clone(report),
            begin: Instant::now(),
            limits: Mutex::new(Limits::new(options)?.map(Arc::new)),
            options: options.clone(),
            policy: options.compaction.cleanup_policy.clone(),
            shutdown: Shutdown::default(),
            thread: Mutex::default(),
            progress: Mutex::new(State {
                known_times,
                ..State::default()
            }),
        })
    }

    /// Starts the thread, if it may have anything to do.
    pub fn start(self: &Arc<Retention>, parts: &Arc<Parts>) -> std::io::Result<()> {
        let is_idle = self.limits.lock().is_none() && !self.policy.compacts_any();
        // The options of others that share the store may ask for it later.
        if is_idle && parts.shared.is_none() {
            return Ok(());
        }
        let (retention, parts) = (Arc::clone(self), Arc::clone(parts));
        let thread = std::thread::Builder::new().name("forebay-retain".to_owned());
        let started = thread.spawn(move || retention.run(&parts))?;
        *self.thread.lock() = Some(started);
        Ok(())
    }

    fn run(&self, parts: &Parts) {
        let (mut agreed, mut is_complete) = (None, parts.shared.is_none());
        while !self.shutdown.has_begun() {
            self.shutdown.sleep(INTERVAL);
            if self.shutdown.has_begun() || !parts.is_on_duty() {
                continue;
            }
            guard::renew();
            if let Some(shared) = &parts.shared
                && agreed != Some(shared.page().agreed_number())
            {
                agreed = Some(shared.page().agreed_number());
                // If the page has no valid options, the current ones stay.
                let _ = shared
                    .page()
                    .agreed()
                    .and_then(|agreed| self.renew(&agreed));
            }
            if !is_complete {
                // Removes what the previous process with this duty was about to remove.
                is_complete = self.complete(parts).is_ok();
            }
            self.step(parts, self.now(parts));
        }
    }

    /// Applies the options on which the processes that share the store have agreed.
    fn renew(&self, agreed: &Agreed) -> Result<()> {
        let mut options = self.options.clone();
        agreed.apply(&mut options);
        *self.limits.lock() = Limits::new(&options)?.map(Arc::new);
        let keeps = options.keep_unarchived;
        self.keeps_unarchived.store(keeps, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the thread, and waits until nothing is being removed.
    pub fn end(&self) {
        self.shutdown.begin();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        // A caller of `delete_before` may be removing segments, with or without a thread.
        drop(self.progress.lock());
    }

    /// This moment, by the clocks of the store.
    pub fn now(&self, parts: &Parts) -> Now {
        Now::of(&*parts.clock, self.begin)
    }

    /// Removes what is due, unless the last step was less than a second ago. A failure is reported,
    /// and the next step tries again.
    pub fn step(&self, parts: &Parts, now: Now) {
        let Some(mut progress) = self.progress.try_lock() else {
            return;
        };
        let is_early = progress.next.is_some_and(|next| now.at < next);
        if is_early || parts.health.is_closed() || parts.health.check().is_err() {
            return;
        }
        let wall_ms = now.wall_ms;
        progress.next = Some(now.at + INTERVAL);
        let known = std::mem::take(&mut progress.known_times);
        let reading = progress.clock.read(wall_ms, now.steady, || known);
        if let Some(damage) = jump(&parts.root, wall_ms, reading) {
            self.report.add(damage);
        }
        let times = Times {
            wall_ms,
            believed_ms: reading.time_ms,
        };
        let done = self.remove_due(parts, &mut progress, times);
        if let Err(error) = done
            && error.ends_writing()
            && !matches!(error, Error::Closed { .. })
        {
            let reason = format!("retention failed: {error}");
            let damage = Damage::new(DamageKind::Retention, &parts.root, 0..0, reason);
            self.report.add(damage);
        }
    }

    fn remove_due(&self, parts: &Parts, progress: &mut State, times: Times) -> Result<()> {
        let all = parts.all_ends()?;
        let (mut raised, mut finished) = (Vec::new(), Vec::new());
        // An error in one partition must not keep the segments of the others.
        let mut outcome = Ok(());
        let limits = self.limits.lock().clone();
        if let Some(limits) = limits.as_deref()
            && let Some(kept) = self.kept(parts, &all)
        {
            for one in all.iter().filter(|one| self.policy.deletes(&one.0)) {
                let (topic, queue, ends) = one;
                let key = (Arc::clone(topic), *queue);
                let Some(_changing) = ends.try_change() else {
                    continue;
                };
                let past = ends.past();
                let mut known = progress.ages.remove(&key);
                let keep = kept.get(&((&**topic).into(), *queue));
                let keep = keep.copied().unwrap_or(u64::MAX);
                let mut quiet = progress.quiet.remove(&key);
                let disk = &*parts.disk;
                let found = due(disk, limits, times, &past, keep, &mut known);
                let found = found.and_then(|until| {
                    if until > past.start {
                        raised.push((one, until));
                    }
                    match ends.last().filter(|(last, _)| last.base <= until) {
                        Some(last) => is_last_due(disk, limits, times, last, keep, &mut quiet),
                        None => Ok(false),
                    }
                });
                match found {
                    Ok(true) => finished.push(Arc::clone(ends)),
                    Ok(false) => {}
                    Err(error) => outcome = outcome.and(Err(error)),
                }
                progress.quiet.extend(quiet.map(|it| (key.clone(), it)));
                progress.ages.extend(known.map(|known| (key, known)));
            }
        }
        // Once complete, they are removed in the next step.
        if !finished.is_empty() {
            outcome = outcome.and(parts.roll_some(&finished).map(drop));
        }
        if !raised.is_empty() {
            self.raise(parts, progress, &all, &raised)?;
        }
        if !raised.is_empty() || progress.is_held || !progress.left.is_empty() {
            let mut go_on = || !self.shutdown.has_begun();
            self.remove(parts, progress, &all, &mut go_on)?;
        }
        outcome
    }

    /// What must stay; `None` if that is not known, so nothing may be removed.
    fn kept(&self, parts: &Parts, queues: &[One]) -> Option<Kept> {
        let mut all = Kept::new();
        let held = self.holds.iter().map(|hold| hold.kept_offsets());
        let archived =
            self.keeps_unarchived.load(Ordering::Relaxed) && !planted(Bug::ForgetArchives);
        let archived = archived.then(|| self.unarchived(parts, queues));
        for kept in held.chain(archived) {
            let kept = kept.unwrap_or_else(|error| {
                let reason = format!("retention waits: cannot read what it must keep: {error}");
                let damage = Damage::new(DamageKind::Retention, &parts.root, 0..0, reason);
                self.report.add(damage);
                None
            });
            for (queue, offset) in kept? {
                let low = all.entry(queue).or_insert(offset);
                *low = offset.min(*low);
            }
        }
        Some(all)
    }

    /// What is not in every archive.
    fn unarchived(&self, parts: &Parts, queues: &[One]) -> Result<Option<Kept>> {
        let names = queues.iter().map(|one| (&*one.0, one.1));
        let kept = unarchived(&*parts.disk, &parts.root, names)?;
        if kept.is_none() {
            let path = parts.root.join(archives::FILE_NAME);
            let reason = "not a table of archives: retention keeps all messages";
            let damage = Damage::new(DamageKind::Table, path, 0..0, reason);
            self.report.add(damage);
        }
        Ok(kept)
    }

    /// Raises the first offsets of partitions, and removes the segments that end before them.
    /// Durable on return, except that a compaction may keep segments for a while. Once `go_on`
    /// returns false, the removal ends. The next one, or the next opening, completes it.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownQueue`], [`Error::Closed`]; errors of the disk.
    pub fn delete_before(
        &self,
        parts: &Parts,
        topic: &Topic,
        starts: &[(u32, u64)],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let mut progress = self.progress.lock();
        if self.shutdown.has_begun() || parts.health.is_closed() {
            return Err(Error::closed(&parts.root));
        }
        parts.health.check()?;
        let all = parts.all_ends()?;
        let mut raised = Vec::with_capacity(starts.len());
        for (queue, until) in starts {
            let is_meant = |one: &&One| *one.0 == *topic.name && one.1 == *queue;
            let one = all.iter().find(is_meant);
            raised.push((one.ok_or_else(|| topic.unknown_queue(*queue))?, *until));
        }
        self.raise(parts, &progress, &all, &raised)?;
        self.remove(parts, &mut progress, &all, go_on)
    }

    /// Writes the table of first offsets again. Durable on return.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn save_again(&self, parts: &Parts) -> Result<()> {
        let progress = self.progress.lock();
        self.raise(parts, &progress, &parts.all_ends()?, &[])
    }

    /// Removes the segments that an earlier process was about to remove.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn complete(&self, parts: &Parts) -> Result<()> {
        let all = parts.all_ends()?;
        self.remove(parts, &mut self.progress.lock(), &all, &mut || true)
    }

    fn raise(
        &self,
        parts: &Parts,
        progress: &State,
        all: &[One],
        raised: &[Raise<'_>],
    ) -> Result<()> {
        // A first offset must not become durable before the messages up to it, and no pending sync
        // may need their files.
        parts.flush_completed()?;
        let mut starts: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        let unfinished = all.iter().filter(|one| one.2.start() > one.2.first_base());
        for (topic, queue, ends) in unfinished.chain(progress.left.iter().map(|it| &it.0)) {
            starts.insert((topic, *queue), ends.start());
        }
        for ((topic, queue, ends), until) in raised {
            starts.insert((topic, *queue), ends.start().max(*until));
        }
        // A first offset is believed only as far as the table of epochs confirms it.
        for ((_, _, ends), until) in raised {
            let start = ends.start().max(*until);
            let begun = files::begin_epochs(&*parts.disk, &ends.folder, start);
            begun.inspect_err(|error| fail_of(parts, error))?;
        }
        let starts = starts.iter();
        let lines: Vec<_> = starts.map(|(key, start)| (key.0, key.1, *start)).collect();
        if !planted(Bug::StartUnsaved) {
            let saved = files::save_starts(&*parts.disk, &parts.root, &lines);
            saved.inspect_err(|error| fail_of(parts, error))?;
        }
        for ((_, _, ends), until) in raised {
            ends.raise_start(*until);
        }
        Ok(())
    }

    /// Removes the segments that end before the first offset of their partition, until `go_on`
    /// returns false.
    fn remove(
        &self,
        parts: &Parts,
        progress: &mut State,
        all: &[One],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        progress.is_held = false;
        for one in all.iter().filter(|one| one.2.start() > one.2.first_base()) {
            match one.2.try_change() {
                Some(changing) => {
                    let gone = one.2.retire(&changing);
                    if !gone.is_empty() {
                        // No full pass may write an index of a removed segment.
                        parts.forget(&gone);
                        progress.left.push((one.clone(), gone));
                    }
                }
                None => progress.is_held = true,
            }
        }
        while let Some(((_, _, ends), gone)) = progress.left.last_mut() {
            // The oldest first, so that a process that dies leaves no gaps.
            let count = gone.len().min(PIECE);
            let removed = unlink(
                &*parts.disk,
                &ends.folder,
                gone.get(..count).unwrap_or(gone),
            );
            removed.inspect_err(|error| fail_of(parts, error))?;
            ends.tell_removed();
            gone.drain(..count);
            if gone.is_empty() {
                progress.left.pop();
            }
            if !go_on() {
                break;
            }
        }
        Ok(())
    }
}

/// Ends writing after a failed sync: it is unknown what is on the disk.
fn fail_of(parts: &Parts, error: &Error) {
    if error.is_of_sync() {
        parts.fail(error);
    }
}

/// Unlinks the files of segments, the log files last. Durable on return.
fn unlink(disk: &dyn Disk, folder: &Path, gone: &[Arc<Segment>]) -> Result<()> {
    let others = [".index", ".timeindex", ".txnindex", SNAPSHOT];
    for endings in [&others[..], &[".log"]] {
        for segment in gone {
            for ending in endings {
                match disk.unlink(&beside(&segment.path, ending)) {
                    Err(error) if error.is_not_found() => {}
                    done => done?,
                }
            }
        }
        disk.sync_directory(folder)?;
    }
    Ok(())
}
