//! The actions of the driver, and of third parties that tamper with its commits.

use super::commits::{Commits, FORKED, PART_LEN, QUERY, WRITE_LEN, query};
use super::disk::{SimDisk, shared};
use super::faults::Stop;
use super::frame::{Breach, ROOT};
use super::steps::{new_disk, said};
use super::targets::{TOPICS, Target};
use crate::disk::{FileSystem, Synced};
use crate::error::Result as Done;
use crate::stages::commit::{publish_cut, state, withdraw};
use crate::stages::{
    Commit, CommitKind, CommitState, Conflict, Contents, Published, Stage, Stager,
};
use crate::store::Opened;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl<E: Target> Commits<E> {
    /// Begins an attempt at the batch: stages its rows, randomly divided.
    pub(super) fn stage(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        self.forget();
        if self.rows.len() as u64 <= self.batch {
            // Commits of one part are as likely as those of several.
            let most = self.world.random.pick(&[4, 24]);
            self.rows.push(1 + self.world.random.below(most));
        }
        self.staged = self.stage_rows(disk, self.batch, 0..self.rows[self.batch as usize])?;
        Ok(())
    }

    fn stage_rows(
        &mut self,
        disk: &Arc<SimDisk>,
        batch: u64,
        rows: Range<u64>,
    ) -> Done<Vec<Stage>> {
        let count = rows.end - rows.start;
        let mut stages = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let end = (row + 1 + self.world.random.below(count)).min(rows.end);
            let disk = shared(disk);
            let stager = Stager::new(disk, Path::new(ROOT), QUERY, None)?;
            let mut stager = stager.cut_at(WRITE_LEN);
            stager.write(&self.rows_of(batch, row..end))?;
            stages.extend(stager.finish()?);
            row = end;
        }
        Ok(stages)
    }

    fn rows_of(&self, batch: u64, rows: Range<u64>) -> RecordBatch {
        let body = |row: u64| {
            let padding = "x".repeat((row * 37 % 150) as usize);
            format!("{batch} {row} {padding}").into_bytes()
        };
        let bodies: Vec<Vec<u8>> = rows.clone().map(body).collect();
        let bodies = BinaryArray::from_iter_values(bodies.iter());
        let keys = rows.clone().map(|row| format!("key{}", row % 5));
        let keys = StringArray::from_iter_values(keys);
        let topics = rows.map(|row| TOPICS[row as usize % TOPICS.len()]);
        let topics = StringArray::from_iter_values(topics);
        let columns: [(&str, ArrayRef); 3] = [
            ("value", Arc::new(bodies)),
            ("key", Arc::new(keys)),
            ("topic", Arc::new(topics)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    pub(super) fn publish(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        let published = self.publish_batch(CommitKind::Stream, disk, self.batch, &self.staged)?;
        self.published = Some(published);
        if self.world.random.chance(30) {
            // The file system makes the names durable by itself.
            let place = query::<E>();
            for path in [Path::new(ROOT)].into_iter().chain(place.folders()) {
                let _ = disk.sync(Synced::Directory(path));
            }
        }
        Ok(())
    }

    /// Returns the disk of a driver that dies during or just after the publication of a batch.
    pub(super) fn publish_and_die(
        &mut self,
        seed: u64,
        stop: Stop,
    ) -> Result<Arc<SimDisk>, Breach> {
        let disk = new_disk(seed, stop);
        drop(self.open(&disk).map_err(said)?);
        self.stage(&disk).map_err(said)?;
        disk.end_within(1 + self.world.random.below(8));
        let _ = self.publish(&disk);
        Ok(disk)
    }

    pub(super) fn publish_batch(
        &self,
        kind: CommitKind,
        disk: &Arc<SimDisk>,
        batch: u64,
        stages: &[Stage],
    ) -> Done<Published> {
        let commit = Commit {
            query: QUERY,
            batch,
            kind,
            conflict: Conflict::Fail,
            stages,
        };
        publish_cut(&**disk, Path::new(ROOT), &commit, PART_LEN)
    }

    /// A driver with an older checkpoint commits an acknowledged batch again: with the same rows,
    /// which are skipped, or with other rows, which are refused. If retention has retired the
    /// marker, both are possible.
    pub(super) fn go_back(&mut self, engine: &Opened<E>, disk: &Arc<SimDisk>) -> Done<()> {
        let batch = self.world.random.below(self.batch);
        let repeats = self.world.random.chance(50);
        let begin = if repeats { 0 } else { FORKED };
        let rows = begin..begin + self.rows[batch as usize];
        let staged = self.stage_rows(disk, batch, rows)?;
        // The remains of the batch from a dead driver are handled first.
        while self.publish_batch(CommitKind::Stream, disk, batch, &staged)? == Published::Earlier {
            engine.take_commits()?;
        }
        engine.take_commits()?;
        let state = state(&**disk, Path::new(ROOT), QUERY, batch)?;
        let good = match state {
            CommitState::Gone => repeats,
            CommitState::Refused(_) => !repeats || self.retires,
            _ => false,
        };
        if !good && !disk.is_dead() && self.wrong.is_none() {
            self.wrong = Some(format!("batch {batch}, repeated: {repeats}, is {state:?}"));
        }
        Ok(())
    }

    /// The driver checks the manifest that it waits for. If that was an earlier one of the batch,
    /// its own follows. A missing commit is complete if the log holds it; otherwise it has failed.
    pub(super) fn hear(&mut self, engine: &Opened<E>, disk: &Arc<SimDisk>) -> Done<()> {
        let Some(published) = self.published else {
            return Ok(());
        };
        let state = state(&**disk, Path::new(ROOT), QUERY, self.batch)?;
        let gone = match &state {
            CommitState::Pending | CommitState::Begun => return Ok(()),
            CommitState::Gone => true,
            CommitState::Refused(_) => false,
        };
        let own = published == Published::Own;
        let is_cut = matches!(&state, CommitState::Refused(refusal) if refusal.appended);
        if !own && !is_cut {
            return self.publish(disk);
        }
        let mut contents = Contents::default();
        self.staged.iter().for_each(|it| contents.add(it.contents));
        let batch = (QUERY, self.batch);
        if gone && engine.holds_commit(batch, contents, false)? {
            self.batch += 1;
        } else if (is_cut || !self.meddled) && !disk.is_dead() && self.wrong.is_none() {
            let batch = self.batch;
            self.wrong = Some(format!("batch {batch} did not succeed: {state:?}"));
        }
        self.forget();
        Ok(())
    }

    /// Withdraws the commit, or damages, truncates or removes a file of one that has not begun.
    pub(super) fn meddle(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        if self.world.random.chance(30) {
            self.meddled = true;
            return withdraw(&**disk, Path::new(ROOT), QUERY, self.batch).map(drop);
        }
        if self.checked {
            return Ok(());
        }
        let place = query::<E>();
        let begun = place.path(&format!("taken-{}", self.batch));
        let mut names = vec![format!("commit-{}", self.batch)];
        names.extend(self.staged.iter().map(|stage| stage.name.clone()));
        let path = place.path(&names[self.world.random.below(names.len() as u64) as usize]);
        let stat = |path: &Path| disk.stat(path).unwrap_or_default();
        let Some(entry) = stat(&path).filter(|it| it.len > 8 && stat(&begun).is_none()) else {
            return Ok(());
        };
        let at = self.world.random.below(entry.len - 8) as usize;
        self.meddled = true;
        match self.world.random.below(3) {
            0 => disk.damage(&path, at, &[0xEE; 8]),
            1 => disk.cut(&path, at),
            _ => drop(disk.unlink(&path)),
        }
        Ok(())
    }
}
