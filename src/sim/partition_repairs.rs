//! Stories of repairs of a partition log, like those of [`super::repairs`]: a part of the store is
//! damaged, the process that repairs it dies at any call of the disk, and the next one completes
//! the repair.
//!
//! The law: no message outside the damage is lost, and no deleted one comes back; damaged bytes are
//! saved before they are replaced; the second repair leaves no damage, and its result is durable.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, hold};
use super::random::Random;
use super::reported::outlives_power;
use super::steps::{new_disk, next, said};
use crate::disk::Disk;
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Atomicity, Check, Durability, Engine, Filter, QueueLogs, Rows};
use crate::machine::Machine;
use crate::options::Options;
use crate::record::Draft;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TOPIC: &str = "orders";

/// The damaged part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Batch,
    Index,
    Table,
}

/// A damaged store.
struct Story {
    random: Random,
    /// Positions of the batches, each of one message.
    batches: Vec<Range<u64>>,
    /// The first offset.
    start: u64,
    /// The message lost by the damage.
    lost: Option<u64>,
    /// The damaged bytes, and their file.
    damaged: (PathBuf, Vec<u8>),
}

fn body(number: usize) -> Vec<u8> {
    format!("{number} {}", "x".repeat(20 + number * 7 % 150)).into_bytes()
}

fn open(disk: &Arc<SimDisk>) -> Result<PartitionLog, Breach> {
    let options = Options {
        segment_bytes: Some(4096),
        index_interval_bytes: Some(300),
        default_queues: Some(1),
        ..Options::default()
    };
    let engine = PartitionLog::open(&Machine::stepped(shared(disk)), Path::new(ROOT), &options);
    engine.map_err(|error| format!("opening failed: {error}"))
}

fn folder() -> PathBuf {
    Path::new(ROOT).join(format!("{TOPIC}-0"))
}

/// The names in the folder with an ending, in order.
fn names(disk: &SimDisk, ending: &str) -> Result<Vec<String>, Breach> {
    let dynamic: &dyn Disk = disk;
    let entries = dynamic.list(&folder()).map_err(said)?.into_iter();
    let names: BTreeSet<String> = entries.filter_map(|entry| entry.name).collect();
    Ok(names
        .into_iter()
        .filter(|it| it.ends_with(ending))
        .collect())
}

impl Story {
    fn send(&mut self, engine: &PartitionLog) -> crate::error::Result<u64> {
        let topic = engine.topic_for_append(TOPIC)?;
        let body = body(self.batches.len());
        let draft = Draft {
            body: &body,
            ..Draft::default()
        };
        let mut batch = engine.form().batch();
        batch.push(TOPIC, 0, &draft, 1_700_000_000_000)?;
        let batches = &mut [(&*topic, &mut batch)];
        let before = engine.readable_position();
        let sent = engine.append(batches, Atomicity::Rows, Durability::Written)?;
        let row = &sent.rows[0];
        self.batches
            .push(row.position..row.position + sent.end - before);
        Ok(row.offset)
    }

    /// A store that was closed, on whose disk something then changes.
    fn begin(seed: u64, part: Part) -> Result<(Story, Arc<SimDisk>), Breach> {
        let disk = new_disk(seed, Stop::Process);
        let engine = open(&disk)?;
        let mut random = Random::new(seed);
        let mut story = Story {
            batches: Vec::new(),
            start: 0,
            lost: None,
            damaged: Default::default(),
            random: random.clone(),
        };
        for _ in 0..30 + random.below(80) {
            story.send(&engine).map_err(said)?;
        }
        if random.chance(50) {
            story.start = 1 + random.below(5);
            let topic = engine.topics().get(TOPIC).ok_or("the topic is missing")?;
            let starts = [(0, story.start)];
            let deleted = engine.delete_before(&topic, &starts, &mut || true);
            deleted.map_err(said)?;
        }
        engine.close().map_err(said)?;
        drop(engine);
        let dying = Faults {
            stop: random.pick(&[Stop::Power, Stop::Power, Stop::Process]),
            dies_at: random.chance(80).then(|| 10 + random.below(150)),
            written_back: random.pick(&[0, 2]),
            ..Faults::none(Stop::Power)
        };
        let disk = Arc::new(disk.restart(dying));
        story.random = random;
        story.damage(&disk, part)?;
        Ok((story, disk))
    }

    fn damage(&mut self, disk: &SimDisk, part: Part) -> Result<(), Breach> {
        let logs = names(disk, ".log")?;
        let (path, at, range) = match part {
            Part::Batch => {
                let number = self.start + self.random.below(self.batches.len() as u64 - self.start);
                let base = |name: &String| name[..20].parse::<u64>().unwrap();
                let log = logs.iter().rfind(|name| base(name) <= number);
                self.lost = Some(number);
                let batch = self.batches[number as usize].clone();
                let log = log.ok_or("no segment has the batch")?;
                (folder().join(log), batch.start + 70, batch)
            }
            Part::Index => {
                let ending = self.random.pick(&[".index", ".timeindex"]);
                let log = &logs[self.random.below(logs.len() as u64) as usize];
                let path = folder().join(log.replace(".log", ending));
                let dynamic: &dyn Disk = disk;
                let len = dynamic.stat(&path).map_err(said)?.map_or(0, |it| it.len);
                if len < 8 {
                    return Ok(());
                }
                (path, 0, 0..len)
            }
            Part::Table => {
                let tables = [
                    "recovery-point-offset-checkpoint",
                    "replication-offset-checkpoint",
                    "log-start-offset-checkpoint",
                    "orders-0/leader-epoch-checkpoint",
                    "orders-0/partition.metadata",
                    "forebay.partitionlog",
                ];
                let path = Path::new(ROOT).join(self.random.pick(&tables));
                let dynamic: &dyn Disk = disk;
                let Some(entry) = dynamic.stat(&path).map_err(said)? else {
                    return Ok(());
                };
                (path, 0, 0..entry.len)
            }
        };
        disk.damage(&path, at as usize, &[0xEE; 2]);
        let image = disk.contents();
        let bytes = image.get(&path).and_then(Option::as_ref);
        let bytes = bytes.map(|it| it[range.start as usize..range.end as usize].to_vec());
        // Recovery builds an index again without saving the old one: it is in the log.
        let bytes = bytes.filter(|_| part != Part::Index);
        self.damaged = (path, bytes.unwrap_or_default());
        Ok(())
    }

    /// Checks that no message outside the damage is lost, that none came back, and that the damaged
    /// bytes are in their file or saved.
    fn check(&self, disk: &SimDisk, engine: &PartitionLog) -> Result<(), Breach> {
        let topic = engine.topics().get(TOPIC).ok_or("the topic is missing")?;
        let bounds = engine.bounds(&topic, 0).map_err(said)?;
        let expected = self.start..self.batches.len() as u64;
        hold!(
            bounds == Some(expected.clone()),
            "the queue has {bounds:?}, not {expected:?}"
        );
        let all = Filter::default();
        let cursor = engine.cursor(&topic, 0, expected.clone(), &all, Check::Full);
        let mut cursor = cursor.map_err(said)?;
        let (mut rows, mut found) = (Rows::default(), BTreeSet::new());
        while cursor.refill(64, &mut rows).map_err(said)? {
            for row in &rows.rows {
                let message = rows.message(row).ok_or("a row without a message")?;
                let offset = message.record().queue_offset() as u64;
                let stored = message.body().map_err(said)?;
                hold!(stored == body(offset as usize), "message {offset} differs");
                found.insert(offset);
            }
        }
        let expected = expected.filter(|it| Some(*it) != self.lost);
        let missing: Vec<u64> = expected.filter(|it| !found.contains(it)).collect();
        hold!(missing.is_empty(), "{missing:?} are missing");
        let (path, damaged) = &self.damaged;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let image = disk.contents();
        let mut candidates = image.iter().filter(|(path, _)| {
            let own = path.file_name().unwrap_or_default().to_string_lossy();
            own == name || own.starts_with(&*name) && own.contains(".damaged")
        });
        let has = |bytes: &Vec<u8>| bytes.windows(damaged.len()).any(|part| part == damaged);
        hold!(
            damaged.is_empty() || candidates.any(|(_, bytes)| bytes.as_ref().is_some_and(has)),
            "the damaged bytes of {name} are neither there nor saved"
        );
        Ok(())
    }
}

/// An interrupted repair, then another.
fn repair(seed: u64, part: Part) -> Result<(), Breach> {
    let (mut story, disk) = Story::begin(seed, part)?;
    let mut steps = Vec::new();
    if let Ok(engine) = open(&disk)
        && let Ok(repaired) = engine.repair(&mut |_, _| true)
        && !disk.is_dead()
    {
        steps = repaired.steps;
        let checked = story.check(&disk, &engine);
        hold!(
            checked.is_ok() || disk.is_dead(),
            "the first repair: {checked:?}"
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
    steps.extend(repaired.steps);
    let is_reported = |path: &Path| steps.iter().any(|it| it.saved.as_deref() == Some(path));
    let sane = outlives_power(&sane, |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Recovery replaces an index without its copy, so a repair that died leaves it as it is.
        let counts = part != Part::Index || is_reported(path);
        name.ends_with(".log") || name.contains(".damaged") && counts
    })?;
    let engine = open(&sane)?;
    story.check(&sane, &engine)?;
    let damage = engine.verify(&mut |_, _| true).map_err(said)?.damage;
    hold!(damage.is_empty(), "verify found {damage:?}");
    let offset = story.send(&engine).map_err(said)?;
    hold!(
        offset + 1 == story.batches.len() as u64,
        "the next message got the offset {offset}"
    );
    story.check(&sane, &engine)
}

/// A batch is damaged.
pub fn of_a_batch(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Batch)
}

/// An index of a segment is damaged.
pub fn of_an_index(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Index)
}

/// A table is damaged.
pub fn of_a_table(seed: u64) -> Result<(), Breach> {
    repair(seed, Part::Table)
}
