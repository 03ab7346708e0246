//! Short stories of commits that are interrupted: cases that random stories reach too seldom.

use super::commits::{Commits, QUERY};
use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{Breach, EPOCH_MS, ROOT, Story, hold};
use super::random::Random;
use super::steps::{new_disk, next, said};
use super::targets::Target;
use crate::disk::FileSystem;
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::engine::directory::names::{INTAKE, STAGES};
use crate::engine::directory::page::Word;
use crate::engine::partition_log::PartitionLog;
use crate::error::Error;
use crate::region::{Access, PAGE};
use crate::stages::commit::{Patience, state, wait, withdraw};
use crate::stages::place::StagePlace;
use crate::stages::words::Words;
use crate::stages::{CommitKind, CommitState};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

impl Commits {
    /// A committed batch can never be appended because its rows were damaged, or it is withdrawn.
    /// Once that is done, the batch never comes back.
    pub fn is_dealt_with(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::<CommitLog>::new(seed);
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
        let mut story = Commits::<CommitLog>::new(seed);
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
    /// have died while it created the store. What is left of the commit is taken up entirely or not
    /// at all, and repeating the batch succeeds.
    pub fn is_run_again(seed: u64) -> Result<(), Breach> {
        let mut story = Commits::<CommitLog>::new(seed);
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
        let mut story = Commits::<CommitLog>::new(seed);
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
        let mut story = Commits::<CommitLog>::new(seed);
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
            engine.make_noise(&mut story.world).map_err(said)?;
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
        let mut story = Commits::<CommitLog>::new(seed);
        story.retires = false;
        story.options.retention_bytes = None;
        let disk = new_disk(seed, Stop::Process);
        let engine = story.open(&disk).map_err(said)?;
        story.stage(&disk).map_err(said)?;
        for _ in 0..story.world.random.below(3) {
            engine.make_noise(&mut story.world).map_err(said)?;
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
        let mut story = Commits::<CommitLog>::new(seed);
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
}

impl Commits<PartitionLog> {
    /// A task makes the page for words while another one does, and the writer finds the page that
    /// is there first. All three use one page from then on.
    pub fn begun_at_once(seed: u64) -> Result<(), Breach> {
        let mut random = Random::new(seed);
        let disk = new_disk(seed, Stop::Process);
        let root = Path::new(ROOT);
        disk.create_directory(root)
            .map_err(|error| error.to_string())?;
        // What a power loss may have left of a page.
        if let Some(len) = random.pick(&[None, None, Some(0), Some(100), Some(PAGE)]) {
            let path = root.join(INTAKE);
            let written = disk.write_at(&path, 0, &vec![0; len]);
            written.map_err(|error| error.to_string())?;
        }
        let place = StagePlace::flat(root);
        let writer = Arc::new((Words::default(), OnceLock::new()));
        let meanwhile = {
            let (disk, place) = (Arc::downgrade(&disk), place.clone());
            let writer = Arc::clone(&writer);
            move || {
                let (words, told) = &*writer;
                let disk = disk.upgrade().unwrap();
                place.make(&*disk, "query-2").unwrap();
                assert!(words.find(&*disk, &place).unwrap());
                words.notify(Word::Taken);
                told.set(words.read(Word::Taken)).unwrap();
            }
        };
        disk.meanwhile
            .after_calls(random.below(10), Box::new(meanwhile));
        place.make(&*disk, QUERY).map_err(said)?;
        let (words, told) = &*writer;
        if let Some(told) = told.get() {
            let read = words.read(Word::Taken);
            hold!(read == *told, "a word changed from {told} to {read}");
        }
        let found = words.find(&*disk, &place).map_err(said)?;
        let page = place.page(&*disk, Access::ReadWrite).map_err(said)?;
        let Some(page) = page.filter(|_| found) else {
            return Err("there is no page".to_owned());
        };
        let seen = words.read(Word::Pending);
        page.notify(Word::Pending);
        hold!(
            words.read(Word::Pending) != seen,
            "a driver notifies another page than the writer sleeps on"
        );
        let left = disk.contents();
        let left = left
            .keys()
            .find(|path| path.to_string_lossy().ends_with(".tmp"));
        hold!(left.is_none(), "{left:?} is left");
        Ok(())
    }
}
