//! Stories about commits: a driver stages the rows of one batch after another and commits them, a
//! writer takes the commits up, and either may die at any call of the disk.
//!
//! The driver does what `forebay.spark.sink` does. It may live in the process of the writer or
//! outlive it, and it stages and publishes even without a writer. After its own crash it repeats
//! the batch that was not acknowledged, as Spark does: with the same rows, but other stages. Now
//! and then another driver starts from an older checkpoint: it repeats a batch, or has other rows
//! under its number. A third party withdraws a commit, or damages, truncates or removes a file of
//! one.
//!
//! The law: a row is in the log at most once; acknowledged rows are there; of the rows of a part
//! all are there or none; refused rows are not there. A commit is refused or disappears only
//! after somebody has tampered with it or the power has failed, and the repeated batch succeeds.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, EPOCH_MS, ROOT, Story, World, hold};
use super::random::Random;
use super::rare::{new_disk, next, said};
use crate::clock::Clock;
use crate::disk::{FileSystem, Synced};
use crate::engine::commit_log::CommitLog;
use crate::engine::directory::names::STAGES;
use crate::engine::{Atomicity, Check, Durability, Engine, Rows};
use crate::error::{Error, Result as Done};
use crate::options::{Flush, Options};
use crate::record::Draft;
use crate::stages::commit::{Patience, publish_cut, state, wait, withdraw};
use crate::stages::{
    Commit, CommitKind, CommitState, Conflict, Contents, Published, Stage, Stager,
};
use crate::store::Opened;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUERY: &str = "query-1";
/// Topics of the rows.
const TOPICS: [&str; 3] = ["orders", "bills", "mail"];
/// Topic of messages that are not part of a commit.
const NOISE: &str = "noise";
/// Bytes of a part.
const PART_LEN: u64 = 900;
/// Numbers of rows that another driver commits under the same batch number begin here.
const FORKED: u64 = 1000;
/// Bytes of a slice.
const WRITE_LEN: usize = 300;

/// A store and its driver.
pub struct Commits {
    world: World,
    options: Options,
    /// The batch that is not acknowledged yet.
    batch: u64,
    /// Its stages, as far as the driver knows them.
    staged: Vec<Stage>,
    /// After publishing its own manifest: the manifest that the driver waits for.
    published: Option<Published>,
    /// Whether somebody has withdrawn a commit or damaged a file of one.
    meddled: bool,
    /// Whether the writer may have checked the stages and waits for space.
    checked: bool,
    /// Rows of each batch, acknowledged or not.
    rows: Vec<u64>,
    /// Positions at which rows were seen. A power loss removes those that were not durable.
    seen: BTreeMap<(u64, u64), u64>,
    retires: bool,
    /// A violation that a driver saw.
    wrong: Option<Breach>,
}

impl Story for Commits {
    /// No life keeps its store.
    type Store = ();

    fn new(seed: u64) -> Commits {
        let mut random = Random::new(seed);
        let retires = random.chance(40);
        let options = Options {
            flush: Some(random.pick(&[Flush::Sync, Flush::Async])),
            commitlog_file_size: Some(random.pick(&[4096, 8192])),
            queue_file_entries: Some(random.pick(&[4, 16])),
            index_slots: Some(random.pick(&[2, 8])),
            index_entries: Some(random.pick(&[6, 40])),
            index: Some(random.chance(80)),
            default_queues: Some(2),
            retention_bytes: retires.then_some(1 << 13),
            ..Options::default()
        };
        Commits {
            world: World::new(random),
            options,
            batch: 0,
            staged: Vec::new(),
            published: None,
            meddled: false,
            checked: false,
            rows: Vec::new(),
            seen: BTreeMap::new(),
            retires,
            wrong: None,
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn lives(&mut self) -> u64 {
        3 + self.world.random.below(5)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        let random = &mut self.world.random;
        Faults {
            stop: random.pick(&[Stop::Power, Stop::Device, Stop::Process, Stop::Moved]),
            dies_at: (ahead > 1).then(|| 1 + random.below(260)),
            failing_syncs: 0,
            full: 0,
            failing_calls: 0,
            failing_map: None,
            written_back: random.pick(&[0, 2]),
        }
    }

    fn live(&mut self, disk: &mut Arc<SimDisk>, is_last: bool) -> Result<Option<()>, Breach> {
        self.lived(disk, is_last)?;
        let lost = matches!(disk.faults().stop, Stop::Power | Stop::Device);
        if lost || self.world.random.chance(40) {
            self.forget();
        }
        Ok(None)
    }
}

impl Commits {
    /// The driver dies, or its attempt at the batch has failed.
    fn forget(&mut self) {
        self.staged.clear();
        self.published = None;
        self.meddled = false;
        self.checked = false;
    }

    fn lived(&mut self, disk: &Arc<SimDisk>, is_last: bool) -> Result<(), Breach> {
        if self.world.random.chance(30) {
            // No process writes the store.
            let done = self.stage(disk).and_then(|()| self.publish(disk));
            if disk.is_dead() {
                return Ok(());
            }
            done.map_err(|error| format!("without a writer: {error}"))?;
        }
        let engine = match self.open(disk) {
            Ok(engine) => engine,
            Err(_) if disk.is_dead() => return Ok(()),
            Err(error) => return Err(format!("opening failed: {error}")),
        };
        self.check_rows(&engine, disk, true)?;
        let mut time = Instant::now();
        for _ in 0..self.world.random.below(60) {
            time += Duration::from_secs(2);
            let done = self.work(&engine, disk, time);
            if disk.is_dead() {
                return Ok(());
            }
            done.map_err(|error| format!("a step failed: {error}"))?;
            self.check_rows(&engine, disk, false)?;
        }
        if is_last {
            let ended = self.end(&engine, disk);
            if !disk.is_dead() {
                ended?;
            }
        }
        Ok(())
    }

    /// One action of the driver, the writer or a third party.
    fn work(&mut self, engine: &Opened, disk: &Arc<SimDisk>, time: Instant) -> Done<()> {
        self.world.clock.advance(10);
        match self.world.random.below(100) {
            0..20 if self.published.is_none() => self.stage(disk)?,
            20..45 if self.published.is_none() && !self.staged.is_empty() => self.publish(disk)?,
            45..70 => {
                let full = self.world.random.pick(&[0, 0, 0, 300]);
                disk.fill(full);
                let stepped = engine.take_commits();
                disk.fill(0);
                self.checked |= stepped.is_err();
                stepped.or_else(|error| match full > 0 && !error.ends_writing() {
                    true => Ok(()),
                    false => Err(error),
                })?;
                // The driver learns the outcome, or dies first.
                if self.world.random.chance(60) {
                    self.hear(engine, disk)?;
                }
            }
            70..80 => self.make_noise(engine)?,
            80..85 => self.meddle(disk)?,
            85..88 if self.batch > 0 => self.go_back(engine, disk)?,
            88..95 => {
                engine.step_retention(self.world.clock.now_ms(), time);
            }
            _ => drop(engine.flush()?),
        }
        Ok(())
    }

    /// A committed batch can never be appended because its rows were damaged, or it is withdrawn.
    /// Once that is done, the batch never comes back.
    pub fn is_dealt_with(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        let withdrawn = story.world.random.chance(50);
        let disk = new_disk(seed, Stop::Power);
        let engine = story.open(&disk).map_err(said)?;
        story.stage(&disk).map_err(said)?;
        story.publish(&disk).map_err(said)?;
        let directory = Path::new(ROOT).join(STAGES).join(QUERY);
        if withdrawn {
            let done = withdraw(&*disk, Path::new(ROOT), QUERY, 0).map_err(said)?;
            hold!(done, "the batch could not be withdrawn");
        } else {
            disk.damage(&directory.join(&story.staged[0].name), 40, &[0xEE; 8]);
            if story.world.random.chance(50) {
                disk.end_within(1 + story.world.random.below(20));
            }
            let _ = engine.take_commits();
        }
        let ended = disk.is_dead();
        let before = state(&*disk, Path::new(ROOT), QUERY, 0);
        let disk = next(&disk, Stop::Power);
        drop(engine);
        let found = state(&*disk, Path::new(ROOT), QUERY, 0).map_err(said)?;
        if !ended {
            let before = before.map_err(said)?;
            let as_expected = match &before {
                CommitState::Gone => withdrawn,
                CommitState::Refused(_) => !withdrawn,
                _ => false,
            };
            hold!(as_expected, "withdrawn: {withdrawn}, state: {before:?}");
            // A power loss may remove the reason of the refusal.
            let waits = matches!(found, CommitState::Pending | CommitState::Begun);
            hold!(!waits, "the state changed from {before:?} to {found:?}");
        }
        let left = disk.list(&directory).unwrap_or_default();
        let names = left.iter().filter_map(|entry| entry.name.as_deref());
        let manifests = names.filter(|name| name.starts_with("commit-") && !name.ends_with(".tmp"));
        hold!(manifests.count() == 0 || ended, "the manifest came back");
        Ok(())
    }

    /// The writer dies during or just after the refusal of a batch whose rows were damaged. Once
    /// the driver has learned of the refusal, no power loss brings the manifest back.
    pub fn is_heard(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        let disk = new_disk(seed, Stop::Process);
        let engine = story.open(&disk).map_err(said)?;
        story.stage(&disk).map_err(said)?;
        story.publish(&disk).map_err(said)?;
        let root = Path::new(ROOT);
        let directory = root.join(STAGES).join(QUERY);
        disk.damage(&directory.join(&story.staged[0].name), 40, &[0xEE; 8]);
        disk.end_within(1 + story.world.random.below(40));
        let _ = engine.take_commits();
        let disk = next(&disk, Stop::Power);
        drop(engine);
        let mut patience = Patience::new(Duration::ZERO);
        let heard = wait(&*disk, root, (QUERY, 0), &mut patience, Duration::ZERO);
        let (heard, _) = heard.map_err(said)?;
        let disk = disk.restart(Faults::none(Stop::Power));
        let found = state(&disk, root, QUERY, 0).map_err(said)?;
        // A power loss may remove the reason of the refusal.
        let waits = matches!(found, CommitState::Pending | CommitState::Begun);
        let refused = matches!(heard, CommitState::Refused(_));
        hold!(
            !refused || !waits,
            "the state changed from {heard:?} to {found:?}"
        );
        Ok(())
    }

    /// The power fails during or just after the publication of a batch to a store whose writer may
    /// have died while it created the store. The rest of the commit is taken up entirely or not at
    /// all, and repeating the batch succeeds.
    pub fn is_run_again(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        let disk = new_disk(seed, Stop::Process);
        disk.end_within(1 + story.world.random.below(80));
        drop(story.open(&disk));
        let disk = next(&disk, Stop::Power);
        disk.end_within(1 + story.world.random.below(20));
        let _ = story.stage(&disk).and_then(|()| story.publish(&disk));
        let disk = next(&disk, Stop::Power);
        story.is_through(&disk)
    }

    /// The power fails while a batch is taken up. A batch that has begun cannot be withdrawn: some
    /// of its rows may be in the log.
    pub fn is_begun(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        let disk = new_disk(seed, Stop::Power);
        let engine = story.open(&disk).map_err(said)?;
        story.stage(&disk).map_err(said)?;
        story.publish(&disk).map_err(said)?;
        disk.end_within(1 + story.world.random.below(30));
        let _ = engine.take_commits();
        let disk = next(&disk, Stop::Power);
        drop(engine);
        let withdrawn = withdraw(&*disk, Path::new(ROOT), QUERY, 0).map_err(said)?;
        if !withdrawn {
            return story.is_through(&disk);
        }
        let engine = story.open(&disk).map_err(said)?;
        story.check_rows(&engine, &disk, true)?;
        let rows = story.seen.len();
        hold!(rows == 0, "{rows} rows of a withdrawn batch are in the log");
        Ok(())
    }

    /// The only batch of a query was taken up, and retention retires it. It is not taken up again
    /// after a power loss.
    pub fn is_over(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        story.options.retention_bytes = Some(1 << 13);
        let disk = new_disk(seed, Stop::Power);
        let engine = story.open(&disk).map_err(said)?;
        story.stage(&disk).map_err(said)?;
        story
            .publish_batch(CommitKind::Batch, &disk, story.batch, &story.staged)
            .map_err(said)?;
        engine.take_commits().map_err(said)?;
        let mut time = Instant::now();
        for _ in 0..20 {
            story.make_noise(&engine).map_err(said)?;
            time += Duration::from_secs(2);
            engine.step_retention(EPOCH_MS, time);
        }
        let disk = next(&disk, Stop::Power);
        drop(engine);
        let engine = story.open(&disk).map_err(said)?;
        let end = engine.stats().published;
        engine.take_commits().map_err(said)?;
        let now = engine.stats().published;
        hold!(now == end, "{} bytes were appended again", now - end);
        Ok(())
    }

    /// Repeats the first batch, which is in the log entirely or not at all: each row is there once.
    fn is_through(&mut self, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let engine = self.open(disk).map_err(said)?;
        if self.world.random.chance(50) {
            engine.take_commits().map_err(said)?;
            self.check_rows(&engine, disk, true)?;
        }
        let found = self.seen.len() as u64;
        let rows = self.rows.first().copied().unwrap_or_default();
        hold!(found == 0 || found == rows, "{found} of {rows} rows");
        self.end(&engine, disk)?;
        let (rows, found) = (self.rows[0], self.seen.len() as u64);
        hold!(found == rows, "{found} of {rows} rows after the repetition");
        Ok(())
    }

    /// A batch finds no space. While none of it is in the log it can be withdrawn, and then never
    /// appears; otherwise it completes once there is space.
    pub fn is_out_of_room(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        story.retires = false;
        story.options.retention_bytes = None;
        let disk = new_disk(seed, Stop::Process);
        let engine = story.open(&disk).map_err(said)?;
        story.stage(&disk).map_err(said)?;
        for _ in 0..story.world.random.below(3) {
            story.make_noise(&engine).map_err(said)?;
        }
        story.publish(&disk).map_err(said)?;
        disk.fill(story.world.random.pick(&[1000, 1000, 300]));
        let step = |disk: &SimDisk| {
            let stepped = engine.take_commits();
            let full = |error: &Error| !error.ends_writing() && disk.faults().full > 0;
            stepped.err().filter(|error| !full(error)).map(said)
        };
        let root = Path::new(ROOT);
        if let Some(error) = step(&disk) {
            return Err(format!("without space: {error}"));
        }
        story.check_rows(&engine, &disk, false)?;
        let (there, rows) = (story.seen.len() as u64, story.rows[0]);
        let withdrawn = withdraw(&*disk, root, QUERY, 0).map_err(said)?;
        hold!(
            withdrawn == (there == 0),
            "{there} of {rows} rows, withdrawn: {withdrawn}"
        );
        disk.fill(0);
        // The process may also have died; the next one then finds space.
        let engine = match story.world.random.chance(50) {
            true => engine,
            false => {
                let _ = engine.close();
                story.open(&disk).map_err(said)?
            }
        };
        engine.take_commits().map_err(said)?;
        story.check_rows(&engine, &disk, false)?;
        let (there, rows) = (story.seen.len() as u64, if withdrawn { 0 } else { rows });
        hold!(
            there == rows,
            "{there} of {rows} rows, withdrawn: {withdrawn}"
        );
        Ok(())
    }

    /// A driver dies while it publishes, its manifest is taken up nevertheless, and the power fails
    /// between two parts. The repeated batch can be completed.
    pub fn is_left_by_the_dead(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::new(seed);
        let disk = story.publish_and_die(seed, Stop::Process)?;
        let written_back = Faults {
            written_back: 4,
            ..Faults::none(Stop::Power)
        };
        let disk = Arc::new(disk.restart(written_back));
        let engine = story.open(&disk).map_err(said)?;
        disk.end_within(1 + story.world.random.below(60));
        if story.world.random.chance(20) {
            disk.fail_syncs(200);
        }
        let _ = engine.take_commits();
        disk.fail_syncs(0);
        let disk = next(&disk, Stop::Power);
        drop(engine);
        story.is_through(&disk)
    }

    fn open(&self, disk: &Arc<SimDisk>) -> Done<Opened> {
        let machine = self.world.machine(disk);
        Opened::open(&machine, Path::new(ROOT), &self.options)
    }

    /// Begins an attempt at the batch: stages its rows, randomly divided.
    fn stage(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
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
        rows: std::ops::Range<u64>,
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

    fn rows_of(&self, batch: u64, rows: std::ops::Range<u64>) -> RecordBatch {
        let body = |row: u64| {
            let padding = "x".repeat((row * 37 % 150) as usize);
            format!("{batch} {row} {padding}").into_bytes()
        };
        let bodies: Vec<Vec<u8>> = rows.clone().map(body).collect();
        let bodies = BinaryArray::from_iter_values(bodies.iter());
        let topics = rows.map(|row| TOPICS[row as usize % TOPICS.len()]);
        let topics = StringArray::from_iter_values(topics);
        let columns: [(&str, ArrayRef); 2] =
            [("value", Arc::new(bodies)), ("topic", Arc::new(topics))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn publish(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        let published = self.publish_batch(CommitKind::Stream, disk, self.batch, &self.staged)?;
        self.published = Some(published);
        if self.world.random.chance(30) {
            // The file system makes the names durable by itself.
            let top = Path::new(ROOT).join(STAGES);
            for path in [Path::new(ROOT), &top, &top.join(QUERY)] {
                let _ = disk.sync(Synced::Directory(path));
            }
        }
        Ok(())
    }

    /// Returns the disk of a driver that dies during or just after the publication of a batch.
    fn publish_and_die(&mut self, seed: u64, stop: Stop) -> Result<Arc<SimDisk>, Breach> {
        let disk = new_disk(seed, stop);
        drop(self.open(&disk).map_err(said)?);
        self.stage(&disk).map_err(said)?;
        disk.end_within(1 + self.world.random.below(8));
        let _ = self.publish(&disk);
        Ok(disk)
    }

    fn publish_batch(
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
    fn go_back(&mut self, engine: &Opened, disk: &Arc<SimDisk>) -> Done<()> {
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
    /// its own follows. A missing commit is complete if the log says so; otherwise it has failed.
    fn hear(&mut self, engine: &Opened, disk: &Arc<SimDisk>) -> Done<()> {
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
    fn meddle(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        if self.world.random.chance(30) {
            self.meddled = true;
            return withdraw(&**disk, Path::new(ROOT), QUERY, self.batch).map(drop);
        }
        if self.checked {
            return Ok(());
        }
        let directory = Path::new(ROOT).join(STAGES).join(QUERY);
        let begun = directory.join(format!("taken-{}", self.batch));
        let mut names = vec![format!("commit-{}", self.batch)];
        names.extend(self.staged.iter().map(|stage| stage.name.clone()));
        let path = directory.join(&names[self.world.random.below(names.len() as u64) as usize]);
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

    fn make_noise(&mut self, engine: &CommitLog) -> Done<()> {
        let topic = engine.topic_for_append(NOISE)?;
        for _ in 0..4 {
            let mut batch = engine.batch();
            let draft = Draft {
                body: &[7; 600],
                ..Draft::default()
            };
            batch.push(NOISE, 0, &draft, self.world.clock.now_ms())?;
            engine.append(
                &mut [(&topic, &mut batch)],
                Atomicity::Rows,
                Durability::Written,
            )?;
        }
        Ok(())
    }

    /// Completes the current batch and checks everything.
    fn end(&mut self, engine: &Opened, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let failed = |error| format!("the end failed: {error}");
        let batch = self.batch;
        self.stage(disk).map_err(failed)?;
        self.publish(disk).map_err(failed)?;
        // The manifest of an earlier attempt may be handled first.
        for _ in 0..2 {
            engine.take_commits().map_err(failed)?;
            self.hear(engine, disk).map_err(failed)?;
        }
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let published = self.published;
        hold!(
            self.batch > batch,
            "the last commit did not succeed: {published:?}"
        );
        self.check_rows(engine, disk, false)?;
        let directory = Path::new(ROOT).join(STAGES).join(QUERY);
        let left = disk.list(&directory).unwrap_or_default();
        let pending = left.iter().filter(|entry| {
            let name = entry.name.as_deref().unwrap_or_default();
            name.starts_with("commit-") && !name.ends_with(".tmp") || name.starts_with("taken-")
        });
        hold!(pending.count() == 0, "manifests are left: {left:?}");
        let verified = engine.verify(&mut |_, _| true);
        let damage = verified.map_err(|error| format!("verify: {error}"))?.damage;
        hold!(damage.is_empty(), "verify found {damage:?}");
        Ok(())
    }

    /// Compares the log with what was committed. With `opened`, rows seen before may be missing
    /// after a power loss, unless they were acknowledged.
    fn check_rows(
        &mut self,
        engine: &CommitLog,
        disk: &SimDisk,
        opened: bool,
    ) -> Result<(), Breach> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if opened {
            // Rows that are missing were never durable, or were retired.
            let (acknowledged, min) = (self.batch, engine.stats().min_position);
            self.seen
                .retain(|(batch, _), at| *batch < acknowledged || *at < min);
        }
        let Ok(mut cursor) = engine.log_cursor(Check::Full) else {
            return Ok(());
        };
        let mut rows = Rows::default();
        let mut now = BTreeMap::new();
        loop {
            rows.clear();
            match cursor.next(64, &mut rows) {
                Err(error) if !disk.is_dead() => return Err(format!("unreadable: {error}")),
                _ => {}
            }
            if rows.rows.is_empty() {
                break;
            }
            for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
                if !TOPICS
                    .iter()
                    .any(|topic| topic.as_bytes() == record.topic())
                {
                    continue;
                }
                let text = String::from_utf8_lossy(record.stored_body()).into_owned();
                let mut words = text.split(' ').map_while(|word| word.parse::<u64>().ok());
                let id = (words.next().unwrap(), words.next().unwrap());
                hold!(id.1 < FORKED, "refused row {id:?} is in the log");
                let position = record.position() as u64;
                hold!(
                    now.insert(id, position).is_none(),
                    "row {id:?} is in the log twice"
                );
            }
        }
        if disk.is_dead() {
            return Ok(());
        }
        for (id, position) in &now {
            let before = *self.seen.entry(*id).or_insert(*position);
            hold!(
                before == *position,
                "row {id:?} moved from {before} to {position}"
            );
        }
        let min = engine.stats().min_position;
        let acknowledged = self.rows.iter().zip(0..self.batch);
        for (count, batch) in acknowledged {
            for row in 0..*count {
                let retired = || self.seen.get(&(batch, row)).is_some_and(|at| *at < min);
                hold!(
                    now.contains_key(&(batch, row)) || self.retires && retired(),
                    "acknowledged row {row} of batch {batch} is missing"
                );
            }
        }
        Ok(())
    }
}
