//! The engines to which the driver commits.

use super::disk::SimDisk;
use super::frame::{Breach, ROOT, World, hold};
use super::random::Random;
use crate::clock::Clock;
use crate::disk::FileSystem;
use crate::engine::commit_log::CommitLog;
use crate::engine::partition_log::PartitionLog;
use crate::engine::partition_log::segments::names::FOREBAY;
use crate::engine::{Atomicity, Check, Durability, Engine, Filter, QueueLogs, Rows};
use crate::error::{Error, Result as Done};
use crate::options::{Compression, EngineKind, Flush, Options};
use crate::record::Draft;
use crate::stages::place::StagePlace;
use crate::store::Filed;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Topics of the rows.
pub const TOPICS: [&str; 3] = ["orders", "bills", "mail"];
/// Topic of messages that are not part of a commit.
const NOISE: &str = "noise";

/// Where a row is: number of its topic, queue, and the place in the queue, as the engine counts.
pub type Place = (usize, u32, u64);

/// The rows of a log: batch and number in it, and the place.
#[derive(Default)]
pub struct Found {
    pub rows: BTreeMap<(u64, u64), Place>,
    /// The first place that retention has left in each queue.
    starts: BTreeMap<(usize, u32), u64>,
}

impl Found {
    /// Whether retention has removed the row at a place.
    pub fn is_retired(&self, (topic, queue, at): Place) -> bool {
        let start = self.starts.get(&(topic, queue));
        start.is_some_and(|start| at < *start)
    }

    fn add(&mut self, body: &[u8], place: Place) -> Result<(), Breach> {
        let text = String::from_utf8_lossy(body).into_owned();
        let mut words = text.split(' ').map_while(|word| word.parse::<u64>().ok());
        let id = (words.next().unwrap(), words.next().unwrap());
        hold!(
            self.rows.insert(id, place).is_none(),
            "row {id:?} is in the log twice"
        );
        Ok(())
    }
}

/// An engine to which the driver commits.
pub trait Target: Filed {
    /// Draws the options of a store.
    fn draw(random: &mut Random) -> Options;

    /// The files of its stages.
    fn stages() -> StagePlace;

    /// Whether a driver that finds no writer can tell what kind of store there is or will be.
    fn is_known(disk: &SimDisk) -> bool;

    /// Appends messages that are not part of a commit.
    fn make_noise(&self, world: &mut World) -> Done<()>;

    /// One step of retention.
    fn retain(&self, clock_ms: i64, time: Instant) -> Done<()>;

    /// Reads all rows that were committed; `None` if the log cannot be opened. An error of a dead
    /// disk is not a breach.
    fn rows(&self, disk: &SimDisk) -> Result<Option<Found>, Breach>;
}

fn noise<'a>() -> Draft<'a> {
    Draft {
        body: &[7; 600],
        ..Draft::default()
    }
}

impl Target for CommitLog {
    fn draw(random: &mut Random) -> Options {
        let retires = random.chance(40);
        Options {
            flush: Some(random.pick(&[Flush::Sync, Flush::Async])),
            commitlog_file_size: Some(random.pick(&[4096, 8192])),
            queue_file_entries: Some(random.pick(&[4, 16])),
            index_slots: Some(random.pick(&[2, 8])),
            index_entries: Some(random.pick(&[6, 40])),
            index: Some(random.chance(80)),
            default_queues: Some(2),
            retention_bytes: retires.then_some(1 << 13),
            ..Options::default()
        }
    }

    fn stages() -> StagePlace {
        StagePlace::nested(Path::new(ROOT))
    }

    fn is_known(_: &SimDisk) -> bool {
        true
    }

    fn make_noise(&self, world: &mut World) -> Done<()> {
        let topic = self.topic_for_append(NOISE)?;
        for _ in 0..4 {
            let mut batch = self.form().batch();
            batch.push(NOISE, 0, &noise(), world.clock.now_ms())?;
            let batches = &mut [(&*topic, &mut batch)];
            self.append(batches, Atomicity::Rows, Durability::Written)?;
        }
        Ok(())
    }

    fn retain(&self, clock_ms: i64, time: Instant) -> Done<()> {
        self.step_retention(clock_ms, time);
        Ok(())
    }

    /// A place is the position in the log.
    fn rows(&self, disk: &SimDisk) -> Result<Option<Found>, Breach> {
        let mut found = Found::default();
        found.starts.insert((0, 0), self.stats().min_position);
        let Ok(mut cursor) = self.log_cursor(Check::Full) else {
            return Ok(None);
        };
        let mut rows = Rows::default();
        loop {
            rows.clear();
            match cursor.next(64, &mut rows) {
                Err(error) if !disk.is_dead() => return Err(format!("unreadable: {error}")),
                _ => {}
            }
            if rows.rows.is_empty() {
                return Ok(Some(found));
            }
            for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
                let is_ours = |topic: &&str| topic.as_bytes() == record.topic();
                if TOPICS.iter().any(is_ours) {
                    let place = (0, 0, record.position() as u64);
                    found.add(record.stored_body(), place)?;
                }
            }
        }
    }
}

impl Target for PartitionLog {
    fn draw(random: &mut Random) -> Options {
        let codecs = [Compression::None, Compression::None, Compression::Lz4];
        Options {
            engine: Some(EngineKind::PartitionLog),
            flush: Some(random.pick(&[Flush::Sync, Flush::Async])),
            segment_bytes: Some(random.pick(&[4096, 4096, 16384])),
            compression: Some(random.pick(&codecs)),
            default_queues: Some(2),
            retention_bytes: random.chance(40).then(|| random.pick(&[1, 5000])),
            ..Options::default()
        }
    }

    fn stages() -> StagePlace {
        StagePlace::flat(Path::new(ROOT))
    }

    fn is_known(disk: &SimDisk) -> bool {
        let found = disk.stat(&Path::new(ROOT).join(FOREBAY));
        found.is_ok_and(|entry| entry.is_some())
    }

    /// An atomic batch for two queues.
    fn make_noise(&self, world: &mut World) -> Done<()> {
        let topic = self.topic_for_append(NOISE)?;
        let mut batch = self.form().batch();
        for queue in 0..topic.write_queues() {
            batch.push(NOISE, queue, &noise(), world.clock.now_ms())?;
        }
        let atomicity = world.random.pick(&[Atomicity::Whole, Atomicity::Rows]);
        let batches = &mut [(&*topic, &mut batch)];
        self.append(batches, atomicity, Durability::Written)?;
        Ok(())
    }

    fn retain(&self, clock_ms: i64, time: Instant) -> Done<()> {
        QueueLogs::roll(self)?;
        self.step_retention(clock_ms, time);
        Ok(())
    }

    /// A place is topic, queue and offset.
    fn rows(&self, disk: &SimDisk) -> Result<Option<Found>, Breach> {
        let mut found = Found::default();
        let mut numbers = 0..TOPICS.len();
        match numbers.try_for_each(|number| read_topic(self, number, &mut found)) {
            Err(_) if disk.is_dead() => Ok(None),
            read => read.map(|()| Some(found)),
        }
    }
}

/// Adds the rows of a topic, and the first offset of each queue.
fn read_topic(engine: &PartitionLog, number: usize, found: &mut Found) -> Result<(), Breach> {
    let failed = |error: Error| format!("unreadable: {error}");
    let Some(topic) = engine.topics().get(TOPICS[number]) else {
        return Ok(());
    };
    for queue in engine.queues(&topic) {
        let bounds = engine.bounds(&topic, queue).map_err(failed)?;
        let bounds = bounds.unwrap_or_default();
        found.starts.insert((number, queue), bounds.start);
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, queue, bounds, &filter, Check::Full);
        let (mut cursor, mut rows) = (cursor.map_err(failed)?, Rows::default());
        while cursor.refill(64, &mut rows).map_err(failed)? {
            for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
                let place = (number, queue, record.queue_offset() as u64);
                found.add(record.stored_body(), place)?;
            }
        }
    }
    Ok(())
}
