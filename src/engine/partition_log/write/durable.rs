//! Durability of a partition log: syncs, full passes, and what a clean stop leaves.
//!
//! A *full pass* writes the entries that the index files lack, and then the durable end of each
//! partition to the checkpoint. After a crash, opening checks batches from there.

use super::files::{self, RECOVERY_POINT};
use super::intent;
use super::parts::Parts;
use super::producers;
use super::tables;
use super::unsynced::{self, Unsynced};
use super::writing::Unsaved;
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::service::durability::Durable;
use crate::error::Result;
use crate::plant::{Bug, planted};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Durable for Parts {
    fn published(&self) -> u64 {
        match &self.shared {
            Some(shared) => shared.published(),
            None => self.published.load(Ordering::Acquire),
        }
    }

    fn durable(&self) -> u64 {
        match &self.shared {
            Some(shared) => shared.durable(),
            None => self.durable.load(Ordering::Acquire),
        }
    }

    /// Makes all partitions durable up to `position`; concurrent callers share syncs. A failure is
    /// final: the kernel may have marked the pages clean, and a second sync would report success
    /// although bytes are missing.
    fn flush_to(&self, position: u64) -> Result<()> {
        if self.durable() >= position {
            return Ok(());
        }
        if let Some(shared) = &self.shared {
            return self.flush_shared_to(shared, position);
        }
        let mut list = self.unsynced.lock();
        match self.durable() >= position {
            true => Ok(()),
            false => self.sync_pending(&mut list),
        }
    }

    fn count_wait(&self, waited: Duration) {
        self.meter.waited(waited);
    }

    fn full_pass(&self) -> Result<()> {
        self.health.check()?;
        self.flush_to(self.published())?;
        let passed = match &self.shared {
            Some(shared) if shared.lead.is_held() => self.pass_shared(shared),
            Some(_) => Ok(()),
            None => self.pass(),
        };
        if let Err(error) = &passed
            && error.ends_writing()
        {
            self.fail(error);
        }
        passed
    }

    fn tidy(&self) {}

    fn unmap_unused(&self) {
        self.tail.lock().unmap_unused();
    }
}

impl Parts {
    /// Syncs what is in the list, and what was appended since it was filled.
    pub(super) fn sync_pending(&self, list: &mut Vec<Unsynced>) -> Result<()> {
        self.health.check_appended()?;
        let durable = self.durable();
        let (taken, end) = self.tail.lock().take_unsynced();
        list.extend(taken);
        if list.is_empty() && end <= durable {
            return Ok(());
        }
        let began = Instant::now();
        if planted(Bug::ProgressAhead) {
            self.durable.store(end, Ordering::Release);
        }
        let synced = unsynced::sync_each(&*self.disk, &self.root, &self.folders, list);
        self.meter
            .flushed(end.saturating_sub(durable), began.elapsed());
        if let Err(error) = synced {
            return Err(match error.ends_writing() {
                true => self.fail_appended(&error),
                false => error,
            });
        }
        self.durable.store(end, Ordering::Release);
        if self.rules.sync {
            self.tell();
        }
        Ok(())
    }

    /// Saves the durable end of each partition as the point from which it is checked after a crash.
    /// Durable on return.
    pub fn save_points(&self, points: &[((Arc<str>, u32), u64)]) -> Result<()> {
        let lines = self.lines_of(points);
        files::save_checkpoint(&*self.disk, &self.root, RECOVERY_POINT, &lines)
    }

    /// The lines of a checkpoint with these points, and those of partitions whose folders are gone.
    pub(super) fn lines_of<'a>(
        &'a self,
        points: &'a [((Arc<str>, u32), u64)],
    ) -> Vec<files::Line<'a>> {
        let mut lines = Vec::with_capacity(points.len());
        lines.extend(points.iter().map(|(key, at)| (&*key.0, key.1, *at)));
        self.gone.add_to(&mut lines);
        lines
    }

    /// Makes a full pass, even if nothing was appended since the last one.
    ///
    /// # Errors
    ///
    /// As [`Durable::full_pass`].
    pub fn pass_again(&self) -> Result<()> {
        self.unsaved.lock().passed = 0;
        self.full_pass()
    }

    /// Makes full passes skip the indexes of these segments, which are about to be removed: the
    /// first offset after them is durable. Waits for a full pass that is in progress.
    pub fn forget(&self, gone: &[Arc<Segment>]) {
        let gone: HashSet<&Path> = gone.iter().map(|segment| &*segment.path).collect();
        let mut passes = self.unsaved.lock();
        passes.left.extend(self.tail.lock().take_unsaved());
        for unsaved in &mut passes.left {
            unsaved.forget(&gone);
        }
    }

    /// Writes the index files of complete segments.
    fn save_sealed(&self, unsaved: &Unsaved) -> Result<()> {
        let disk = &*self.disk;
        for (log, indexes) in &unsaved.sealed {
            indexes.save(disk, log)?;
        }
        match unsaved.sealed.first().and_then(|(log, _)| log.parent()) {
            Some(folder) => disk.sync_directory(folder),
            None => Ok(()),
        }
    }

    /// Writes what the index files of last segments lack.
    fn save_pieces(&self, unsaved: &Unsaved) -> Result<()> {
        let Some((log, pieces)) = &unsaved.pieces else {
            return Ok(());
        };
        for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            let path = beside(log, piece.ending);
            self.disk.write_at(&path, piece.start, &piece.bytes)?;
        }
        Ok(())
    }

    /// Removes the intent of the last atomic batch once the batch is durable. The removal becomes
    /// durable with the next checkpoint.
    fn forget_intent(&self) -> Result<()> {
        let Some(mut whole) = self.whole.try_lock() else {
            return Ok(());
        };
        if whole.is_some_and(|end| end <= self.durable()) {
            intent::remove(&*self.disk, &self.root)?;
            *whole = None;
        }
        Ok(())
    }

    fn pass(&self) -> Result<()> {
        self.sync_folders()?;
        let mut passes = self.unsaved.lock();
        let durable = self.durable();
        if durable <= passes.passed && passes.left.is_empty() {
            return Ok(());
        }
        // Read first, so that the list has the indexes of all segments below these ends.
        let points = self.next_offsets(true);
        {
            let mut tail = self.tail.lock();
            tail.remove_strays(&*self.disk)?;
            passes.left.extend(tail.take_unsaved());
        }
        save_each(&mut passes.left, |unsaved| {
            self.save_sealed(unsaved)?;
            self.save_pieces(unsaved)
        })?;
        self.forget_intent()?;
        self.save_points(&points)?;
        passes.passed = durable;
        Ok(())
    }

    /// Writes the small files of partitions without messages: a broker takes a folder without them
    /// for one of a topic that was deleted. Durable on return.
    pub(super) fn prepare_unused(&self) -> Result<()> {
        let disk = &*self.disk;
        let mut made = Vec::new();
        let mut whole: (&str, u32) = ("", 0);
        let all = self.all.lock();
        for ((topic, queue), ends) in &*all {
            if *whole.0 != **topic {
                whole = (topic, 0);
            }
            // While a topic lacks partitions before an empty folder, readers take it for
            // unfinished. So folders after a missing one stay empty.
            if *queue != whole.1 {
                continue;
            }
            whole.1 += 1;
            if ends.has_segments() {
                continue;
            }
            let at = (ends.start()..ends.next_offset(false), self.seed);
            if tables::prepare(disk, &ends.folder, topic, at)?.1 {
                made.push(Arc::clone(ends));
            }
        }
        drop(all);
        if made.is_empty() {
            return Ok(());
        }
        self.folders.sync(disk, &self.root)?;
        unsynced::sync_small(disk, &self.folders, &made)
    }

    /// Writes the producer snapshot at the end of each partition, for a broker. Durable on return.
    pub(super) fn keep_producers(&self) -> Result<()> {
        let all = self.all.lock();
        let mut all = all.values();
        all.try_for_each(|ends| producers::keep(&*self.disk, ends, ends.next_offset(false)))
    }

    /// Writes what a clean stop leaves. The store is closed, so nothing is appended meanwhile; see
    /// [`Parts::finish_shared`] for one that processes share.
    pub fn finish(&self) -> Result<()> {
        self.health.check()?;
        self.sync_pending(&mut self.unsynced.lock())?;
        let mut passes = self.unsaved.lock();
        let last = {
            let mut tail = self.tail.lock();
            tail.remove_strays(&*self.disk)?;
            passes.left.extend(tail.take_unsaved());
            tail.seal_all()
        };
        // The indexes of the last segments are written whole.
        save_each(&mut passes.left, |unsaved| self.save_sealed(unsaved))?;
        unsynced::complete(&*self.disk, &self.folders, &last)?;
        self.keep_producers()?;
        self.prepare_unused()?;
        self.forget_intent()?;
        let points = self.next_offsets(false);
        files::save_clean_stop(&*self.disk, &self.root, &self.lines_of(&points))
    }
}

/// Writes everything in the list. What is left in it after an error is written again.
fn save_each(list: &mut Vec<Unsaved>, save: impl Fn(&Unsaved) -> Result<()>) -> Result<()> {
    // From the oldest: an index must not get later entries without those before them.
    list.reverse();
    let mut outcome = Ok(());
    while let Some(unsaved) = list.last() {
        outcome = save(unsaved);
        if outcome.is_err() {
            break;
        }
        list.pop();
    }
    list.reverse();
    outcome
}
