//! Stories about commits to stores of both engines: a driver stages the rows of one batch after
//! another and commits them, a writer takes the commits up, and either may die at any call of the
//! disk.
//!
//! The driver does what `forebay.spark.sink` does. It may live in the process of the writer or
//! outlive it, and it stages and publishes even without a writer. After its own crash it repeats
//! the batch that was not acknowledged, as Spark does: with the same rows, but other stages. Now
//! and then another driver starts from an older checkpoint: it repeats a batch, or has other rows
//! under its number. A third party withdraws a commit, or damages, truncates or removes a file of
//! one.
//!
//! The law: a row is in the log at most once; acknowledged rows are there; all rows of a part are
//! there or none; refused rows are not there. A commit is refused or disappears only after somebody
//! has tampered with it or the power has failed, and the repeated batch succeeds.

use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, Story, World, hold, verified};
use super::random::Random;
use super::targets::{Place, Target};
use crate::clock::Clock;
use crate::engine::commit_log::CommitLog;
use crate::error::{Error, Result as Done};
use crate::options::Options;
use crate::stages::place::QueryPlace;
use crate::stages::{Published, Stage};
use crate::store::Opened;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const QUERY: &str = "query-1";
/// Bytes of a part.
pub(super) const PART_LEN: u64 = 900;
/// Numbers of rows that another driver commits under the same batch number begin here.
pub(super) const FORKED: u64 = 1000;
/// Bytes of a slice.
pub(super) const WRITE_LEN: usize = 300;

/// The files of the driver's query.
pub(super) fn query<E: Target>() -> QueryPlace {
    E::stages().query(QUERY).unwrap()
}

/// A store and its driver.
pub struct Commits<E = CommitLog> {
    pub(super) world: World,
    pub(super) options: Options,
    /// The batch that is not acknowledged yet.
    pub(super) batch: u64,
    /// Its stages, as far as the driver knows them.
    pub(super) staged: Vec<Stage>,
    /// After publishing its own manifest: the manifest that the driver waits for.
    pub(super) published: Option<Published>,
    /// Whether somebody has withdrawn a commit or damaged a file of one.
    pub(super) meddled: bool,
    /// Whether the writer may have checked the stages and waits for space.
    pub(super) checked: bool,
    /// Rows of each batch, acknowledged or not.
    pub(super) rows: Vec<u64>,
    /// Where rows were seen. A power loss removes those that were not durable.
    pub(super) seen: BTreeMap<(u64, u64), Place>,
    pub(super) retires: bool,
    /// A violation that a driver saw.
    pub(super) wrong: Option<Breach>,
    engine: PhantomData<E>,
}

impl<E: Target> Story for Commits<E> {
    /// No store outlives its life.
    type Store = ();

    fn new(seed: u64) -> Commits<E> {
        let mut random = Random::new(seed);
        let options = E::draw(&mut random);
        Commits {
            world: World::new(random),
            retires: options.retention_bytes.is_some(),
            options,
            batch: 0,
            staged: Vec::new(),
            published: None,
            meddled: false,
            checked: false,
            rows: Vec::new(),
            seen: BTreeMap::new(),
            wrong: None,
            engine: PhantomData,
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
            failing_call: None,
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

impl<E: Target> Commits<E> {
    /// The driver dies, or its attempt at the batch has failed.
    pub(super) fn forget(&mut self) {
        self.staged.clear();
        self.published = None;
        self.meddled = false;
        self.checked = false;
    }

    fn lived(&mut self, disk: &Arc<SimDisk>, is_last: bool) -> Result<(), Breach> {
        if self.world.random.chance(30) && E::is_known(disk) {
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

    pub(super) fn open(&self, disk: &Arc<SimDisk>) -> Done<Opened<E>> {
        let machine = self.world.machine(disk);
        Opened::open(&machine, Path::new(ROOT), &self.options)
    }

    /// One action of the driver, the writer or a third party.
    fn work(&mut self, engine: &Opened<E>, disk: &Arc<SimDisk>, time: Instant) -> Done<()> {
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
            70..80 => engine.make_noise(&mut self.world)?,
            80..85 => self.meddle(disk)?,
            85..88 if self.batch > 0 => self.go_back(engine, disk)?,
            88..95 => engine.retain(self.world.clock.now_ms(), time)?,
            _ => drop(engine.flush(&mut || true)?),
        }
        Ok(())
    }

    /// Completes the current batch and checks everything.
    pub(super) fn end(&mut self, engine: &Opened<E>, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let failed = |error: Error| format!("the end failed: {error}");
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
        let left = query::<E>().list(&**disk).map_err(failed)?;
        let is_pending = |name: &&String| {
            name.starts_with("commit-") && !name.ends_with(".tmp") || name.starts_with("taken-")
        };
        hold!(
            left.iter().find(is_pending).is_none(),
            "manifests are left: {left:?}"
        );
        verified(&*engine.engine).map(drop)
    }

    /// Compares the log with what was committed. With `opened`, rows seen before may be missing
    /// after a power loss, unless they were acknowledged.
    pub(super) fn check_rows(
        &mut self,
        engine: &E,
        disk: &SimDisk,
        opened: bool,
    ) -> Result<(), Breach> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let Some(found) = engine.rows(disk)? else {
            return Ok(());
        };
        if opened {
            // Rows that are missing were never durable, or were retired.
            let acknowledged = self.batch;
            self.seen
                .retain(|(batch, _), at| *batch < acknowledged || found.is_retired(*at));
        }
        if disk.is_dead() {
            return Ok(());
        }
        for (id, place) in &found.rows {
            hold!(id.1 < FORKED, "refused row {id:?} is in the log");
            let before = *self.seen.entry(*id).or_insert(*place);
            hold!(
                before == *place,
                "row {id:?} moved from {before:?} to {place:?}"
            );
        }
        let acknowledged = self.rows.iter().zip(0..self.batch);
        for (count, batch) in acknowledged {
            for row in 0..*count {
                let retired = || {
                    self.seen
                        .get(&(batch, row))
                        .is_some_and(|at| found.is_retired(*at))
                };
                hold!(
                    found.rows.contains_key(&(batch, row)) || self.retires && retired(),
                    "acknowledged row {row} of batch {batch} is missing"
                );
            }
        }
        Ok(())
    }
}
