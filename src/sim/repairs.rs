//! Stories of repairs: a part of a store is damaged, the process that repairs it dies at any call
//! of the disk, and the next one completes the repair.
//!
//! The law: the store opens; no message outside the damage is lost, and none that was acknowledged
//! after the repair; damaged bytes of the log are saved before they are overwritten; a second
//! repair finds nothing to do; and the result of a repair is durable.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, hold};
use super::random::Random;
use super::reported::outlives_power;
use super::steps::{new_disk, next, open, said};
use crate::disk::Disk;
use crate::engine::commit_log::CommitLog;
use crate::engine::commit_log::offline::{Quarry, StoreLock};
use crate::engine::{Appended, Atomicity, Durability, Engine, Files};
use crate::record::Draft;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TOPIC: &str = "orders";
/// Length of a log file.
const FILE_LEN: u64 = 4096;

/// The damaged part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Record,
    Entry,
    Index,
    Checkpoint,
}

/// A damaged store.
struct Story {
    random: Random,
    /// Positions of the records.
    records: Vec<Range<u64>>,
    /// The message lost by the damage, and the damaged bytes of its record.
    lost: Option<(usize, Vec<u8>)>,
}

fn body(number: usize) -> Vec<u8> {
    format!("{number} {}", "x".repeat(number * 7 % 150)).into_bytes()
}

fn log_file(position: u64) -> PathBuf {
    let start = position / FILE_LEN * FILE_LEN;
    Path::new(ROOT)
        .join("commitlog")
        .join(format!("{start:020}"))
}

fn ended(error: crate::error::Error) -> Breach {
    error.to_string()
}

impl Story {
    fn append(&mut self, engine: &CommitLog) -> crate::error::Result<Appended> {
        let topic = engine.topic_for_append(TOPIC)?;
        let number = self.records.len();
        let (key, body) = (format!("key-{number}"), body(number));
        let draft = Draft {
            keys: &[&*key],
            body: &body,
            ..Draft::default()
        };
        let mut batch = engine.form().batch();
        batch.push(TOPIC, 0, &draft, 1_700_000_000_000)?;
        engine.append(
            &mut [(&topic, &mut batch)],
            Atomicity::Rows,
            Durability::Written,
        )
    }

    fn send(&mut self, engine: &CommitLog) -> crate::error::Result<()> {
        let appended = self.append(engine)?;
        self.records.push(appended.rows[0].position..appended.end);
        Ok(())
    }

    /// A cleanly closed store on whose disk something then changes.
    fn begin(seed: u64, part: Option<Part>) -> Result<(Story, Arc<SimDisk>), Breach> {
        let disk = new_disk(seed, Stop::Process);
        let engine = open(&disk)?;
        let mut random = Random::new(seed);
        let mut story = Story {
            records: Vec::new(),
            lost: None,
            random: random.clone(),
        };
        for _ in 0..20 + random.below(80) {
            story.send(&engine).map_err(said)?;
        }
        engine.close().map_err(said)?;
        drop(engine);
        let dying = Faults {
            stop: random.pick(&[Stop::Power, Stop::Power, Stop::Process]),
            dies_at: random.chance(80).then(|| 10 + random.below(110)),
            written_back: random.pick(&[0, 2]),
            ..Faults::none(Stop::Power)
        };
        let disk = Arc::new(disk.restart(dying));
        if let Some(part) = part {
            story.damage(&disk, part)?;
        }
        story.random = random;
        Ok((story, disk))
    }

    fn damage(&mut self, disk: &SimDisk, part: Part) -> Result<(), Breach> {
        let number = self.random.below(self.records.len() as u64) as usize;
        let root = Path::new(ROOT);
        match part {
            Part::Record => {
                // Earlier records show that this was a record.
                let number = number.clamp(1, self.records.len() - 2);
                let record = self.records[number].clone();
                let at = (record.start % FILE_LEN) as usize + 30;
                disk.damage(&log_file(record.start), at, &[0xEE; 16]);
                let bytes = read(disk, &log_file(record.start), &record)?;
                self.lost = Some((number, bytes));
            }
            Part::Entry => {
                let queue = root.join("consumequeue").join(TOPIC).join("0");
                let file = queue.join(format!("{:020}", number / 64 * 64 * 20));
                disk.damage(&file, number % 64 * 20, &[0, 0, 0, 0, 0, 0, 7, 7]);
            }
            Part::Index => {
                let index = root.join("index");
                let files = disk.list(&index).map_err(ended)?;
                let name = files.into_iter().filter_map(|file| file.name).max();
                let file = index.join(name.unwrap_or_default());
                // Opening checks only the first and the last entry.
                let in_file = match (self.records.len() - 1) % 69 {
                    0..3 => 1,
                    last => 1 + self.random.below(last as u64) as usize,
                };
                disk.damage(&file, 40 + 8 * 4 + 20 * in_file, &[0xEE; 20]);
            }
            Part::Checkpoint => disk.damage(&root.join("checkpoint"), 0, &[0x7F; 24]),
        }
        Ok(())
    }

    /// Checks that no message outside the damage is lost, and that the damaged bytes are saved.
    fn check(&self, disk: &SimDisk, engine: &CommitLog) -> Result<(), Breach> {
        let topic = engine.topics().get(TOPIC).ok_or("the topic is missing")?;
        let lost = self.lost.as_ref().map(|(number, _)| *number);
        for number in (0..self.records.len()).filter(|number| Some(*number) != lost) {
            let found = engine.get(&topic, 0, number as u64);
            let found = found.map_err(|error| format!("message {number}: {error}"))?;
            let found = found.ok_or_else(|| format!("message {number} is missing"))?;
            let stored = found.body().map_err(said)?;
            hold!(
                stored == body(number),
                "message {number} has the wrong body"
            );
        }
        let Some((number, damaged)) = &self.lost else {
            return Ok(());
        };
        let record = &self.records[*number];
        let there = read(disk, &log_file(record.start), record)?;
        let has = |bytes: &Vec<u8>| bytes.windows(damaged.len()).any(|part| part == damaged);
        let image = disk.contents();
        let mut saved = image.iter().filter(|(path, _)| {
            path.starts_with("/store/damaged")
                && path.extension().is_none_or(|end| end != "repaired")
        });
        let is_saved = saved.any(|(_, bytes)| bytes.as_ref().is_some_and(has));
        hold!(
            there == *damaged || is_saved,
            "the damaged bytes are neither in the log nor saved"
        );
        Ok(())
    }
}

fn read(disk: &SimDisk, path: &Path, record: &Range<u64>) -> Result<Vec<u8>, Breach> {
    let mut bytes = vec![0; (record.end - record.start) as usize];
    let start = record.start % FILE_LEN;
    disk.read_at(path, start, &mut bytes).map_err(ended)?;
    Ok(bytes)
}

/// An interrupted repair, then another.
fn repair(seed: u64, part: Part) -> Result<(), Breach> {
    let (mut story, disk) = Story::begin(seed, Some(part))?;
    if let Ok(engine) = open(&disk)
        && engine.repair(&mut |_, _| true).is_ok()
        && let Ok(appended) = story.append(&engine)
        && engine.flush(&mut || true).is_ok()
    {
        story.records.push(appended.rows[0].position..appended.end);
        hold!(
            disk.is_dead() || story.check(&disk, &engine).is_ok(),
            "the first repair: {:?}",
            story.check(&disk, &engine)
        );
    }
    let sane = next(&disk, Stop::Power);
    let engine = open(&sane)?;
    story.check(&sane, &engine)?;
    let repaired = engine.repair(&mut |_, _| true);
    let repaired = repaired.map_err(|error| format!("the second repair: {error}"))?;
    let left = repaired.left;
    hold!(left.is_empty(), "the second repair left {left:?}");
    story.check(&sane, &engine)?;
    drop(engine);
    // If nothing was left to repair, the files that opening rebuilt become durable at the next full
    // pass.
    let did = !repaired.steps.is_empty();
    let truth = |path: &Path| {
        ["commitlog", "damaged"]
            .iter()
            .any(|it| path.starts_with(Path::new(ROOT).join(it)))
    };
    let sane = outlives_power(&sane, |path| did || truth(path))?;
    let engine = open(&sane)?;
    story.check(&sane, &engine)?;
    let damage = engine.verify(&mut |_, _| true).map_err(said)?.damage;
    hold!(damage.is_empty(), "verify found {damage:?}");
    Ok(())
}

/// A record in the middle of the log is damaged.
pub fn of_a_record(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Record)
}

/// An entry of a queue is damaged.
pub fn of_a_queue(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Entry)
}

/// The index is damaged.
pub fn of_the_index(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Index)
}

/// The checkpoint is damaged.
pub fn of_the_checkpoint(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Checkpoint)
}

/// Queues and index are built outside a store, and then replace its own.
pub fn by_parts(seed: u64) -> Result<(), Breach> {
    let (mut story, disk) = Story::begin(seed, None)?;
    let dynamic = shared(&disk);
    let (root, built) = (Path::new(ROOT), Path::new("/store/rebuilt"));
    let listed = story.random.chance(70);
    if !listed {
        // As in a store that another system has closed.
        disk.unlink(&root.join("forebay.offsets")).map_err(ended)?;
    }
    let done = install(&mut story, &dynamic, built);
    let sane = match (done, disk.is_dead()) {
        (Err(error), false) => return Err(format!("the parts: {error}")),
        (Ok(()), false) => {
            let put = |path: &Path| {
                ["index", "consumequeue"]
                    .iter()
                    .any(|it| path.starts_with(root.join(it)))
            };
            let is_table = |path: &Path| path == root.join("forebay.offsets");
            let sane = outlives_power(&disk, |path| put(path) || is_table(path))?;
            let engine = open(&sane)?;
            let rebuilt = engine.report().recovery().queue_entries_rebuilt;
            hold!(rebuilt == 0 || !listed, "{rebuilt} entries were rebuilt");
            sane
        }
        (_, true) => next(&disk, Stop::Power),
    };
    let engine = open(&sane)?;
    story.check(&sane, &engine)?;
    let found = engine.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.damage.is_empty(), "verify found {:?}", found.damage);
    let count = story.records.len() as u64;
    hold!(
        (found.queue_entries, found.index_entries) == (count, count),
        "{} queue entries and {} index entries for {count} messages",
        found.queue_entries,
        found.index_entries
    );
    Ok(())
}

fn install(story: &mut Story, disk: &Arc<dyn Disk>, built: &Path) -> crate::error::Result<()> {
    let root = Path::new(ROOT);
    let quarry = Quarry::open(disk, root)?;
    let mut laid = Vec::new();
    for range in quarry.ranges() {
        laid.push(quarry.lay(built, range, true, "one")?);
        if story.random.chance(50) {
            quarry.sync(built)?;
        }
    }
    let merged = quarry.merge(built, &laid)?;
    let staged: Vec<_> = laid.iter().map(|part| (part.start, part.keys)).collect();
    for plan in &merged.index {
        quarry.index(built, &staged, plan, "one")?;
    }
    let lock = StoreLock::take(disk, root, false)?;
    lock.install(built, &built.join("replaced"), &merged.index)
}
