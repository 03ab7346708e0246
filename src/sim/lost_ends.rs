//! Stories of queues whose last message is lost: its record is damaged, perhaps before it was
//! dispatched, and the processes that recover the store die at any call of the disk.
//!
//! The law: however the store is opened then, no offset is assigned twice, and no queue ends before
//! a message that was consumed.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, hold};
use super::random::Random;
use super::steps::{new_disk, options, said};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::Draft;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Length of a log file.
const FILE_LEN: u64 = 4096;
/// Length of the part of a record that says where it belongs, except for its topic.
const HEAD_LEN: u64 = 40;
/// The topics. Each has one queue; the last message of the first is lost.
const TOPICS: [&str; 2] = ["orders", "trades"];

/// A store in which the last message of a queue is lost.
struct Story {
    random: Random,
    options: Options,
    /// The next offset of each topic.
    next: [u64; 2],
    /// The last record of the first topic.
    last: Range<u64>,
}

impl Story {
    fn new(seed: u64) -> Story {
        let mut random = Random::new(seed);
        Story {
            options: Options {
                transient_pool: 0,
                ..options(random.chance(50))
            },
            random,
            next: [0; 2],
            last: 0..0,
        }
    }

    fn open(&self, disk: &Arc<SimDisk>, mode: Mode) -> crate::error::Result<CommitLog> {
        let options = Options {
            mode,
            ..self.options.clone()
        };
        let machine = Machine::stepped(shared(disk));
        CommitLog::open(&machine, Path::new(ROOT), &options, Vec::new())
    }

    /// Sends messages to both topics, the last of them to `topic`, and dispatches them.
    fn send(&mut self, engine: &CommitLog, topic: usize) -> crate::error::Result<()> {
        self.append(engine, topic)?;
        engine.step_dispatch();
        engine.parts().save_table()
    }

    /// Sends messages to both topics, the last of them to `topic`.
    fn append(&mut self, engine: &CommitLog, topic: usize) -> crate::error::Result<()> {
        for _ in 0..self.random.below(40) {
            let topic = self.random.below(2) as usize;
            self.send_to(engine, topic)?;
        }
        self.send_to(engine, 0)?;
        for _ in 0..topic as u64 * (1 + self.random.below(4)) {
            self.send_to(engine, topic)?;
        }
        Ok(())
    }

    fn send_to(&mut self, engine: &CommitLog, topic: usize) -> crate::error::Result<()> {
        let name = TOPICS[topic];
        let known = engine.topic_for_append(name)?;
        let body = vec![b'x'; self.random.below(150) as usize];
        let draft = Draft {
            keys: &["key"],
            body: &body,
            ..Draft::default()
        };
        let mut batch = engine.form().batch();
        batch.push(name, 0, &draft, 1_700_000_000_000)?;
        let sent = engine.append(
            &mut [(&known, &mut batch)],
            Atomicity::Rows,
            Durability::Written,
        )?;
        self.next[topic] += 1;
        if topic == 0 {
            self.last = sent.rows[0].position..sent.end;
        }
        Ok(())
    }

    /// Damages the last record of the first topic.
    fn damage(&mut self, disk: &SimDisk) {
        self.damage_in(disk, self.last.clone());
    }

    /// Damages a byte in these positions of the log.
    fn damage_in(&mut self, disk: &SimDisk, Range { start, end }: Range<u64>) {
        let path = Path::new(ROOT)
            .join("commitlog")
            .join(format!("{:020}", start / FILE_LEN * FILE_LEN));
        let at = self.random.below(end - start) + start;
        let bytes = disk.contents();
        let byte = bytes[&path].as_ref().unwrap()[(at % FILE_LEN) as usize];
        disk.damage(&path, (at % FILE_LEN) as usize, &[!byte]);
    }

    /// Processes open the store, and each dies at a call of its disk. Later openings, one after the
    /// other, know the next offsets.
    fn recover(&mut self, mut disk: Arc<SimDisk>, stops: &[Stop]) -> Result<(), Breach> {
        for _ in 0..1 + self.random.below(3) {
            let faults = Faults {
                dies_at: Some(1 + self.random.below(70)),
                written_back: self.random.pick(&[0, 2]),
                ..Faults::none(self.random.pick(stops))
            };
            disk = Arc::new(disk.restart(faults));
            let mode = self.random.pick(&[Mode::Share, Mode::Share, Mode::Append]);
            drop(self.open(&disk, mode));
        }
        let disk = Arc::new(disk.restart(Faults::none(Stop::Process)));
        let first = self.open(&disk, Mode::Share).map_err(said)?;
        let second = Arc::new(disk.beside(1));
        let second = self.open(&second, Mode::Share).map_err(said)?;
        for engine in [&first, &second] {
            for (name, expected) in TOPICS.into_iter().zip(self.next) {
                let (_, next) = engine.mended_end(name, 0).map_err(said)?;
                hold!(
                    next == expected,
                    "{name} goes on at {next}, after {expected} messages"
                );
                let topic = engine.topics().get(name);
                let bounds = topic.map(|topic| engine.bounds(&topic, 0).map_err(said));
                let end = bounds.transpose()?.flatten().unwrap_or_default().end;
                hold!(
                    end == expected,
                    "{name} ends at {end}, after {expected} messages"
                );
            }
        }
        second.close().map_err(said)?;
        first.close().map_err(said)
    }
}

/// The store was closed, and the last record of the log is damaged, or one that others follow.
pub fn of_a_closed_store(seed: u64) -> Result<(), Breach> {
    let mut story = Story::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = story.open(&disk, Mode::Append).map_err(said)?;
    let topic = story.random.below(2) as usize;
    story.send(&engine, topic).map_err(said)?;
    engine.close().map_err(said)?;
    drop(engine);
    story.damage(&disk);
    story.recover(disk, &[Stop::Process, Stop::Power, Stop::Device])
}

/// The process died, perhaps after a full pass, and the page cache outlives it.
pub fn of_a_dead_process(seed: u64) -> Result<(), Breach> {
    let mut story = Story::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = story.open(&disk, Mode::Append).map_err(said)?;
    for _ in 0..1 + story.random.below(3) {
        let topic = story.random.below(2) as usize;
        story.send(&engine, topic).map_err(said)?;
        engine.flush(&mut || true).map_err(said)?;
        if story.random.chance(50) {
            engine.parts().full_pass().map_err(said)?;
        }
    }
    let disk = Arc::new(disk.restart(Faults::none(Stop::Process)));
    drop(engine);
    story.damage(&disk);
    story.recover(disk, &[Stop::Process])
}

/// The last record of the first topic is damaged before it is dispatched, so that perhaps no queue
/// entry shows its offset. The store is then closed, or the process dies after a full pass.
pub fn of_an_open_store(seed: u64) -> Result<(), Breach> {
    let mut story = Story::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = story.open(&disk, Mode::Append).map_err(said)?;
    if story.random.chance(50) {
        story.send(&engine, 0).map_err(said)?;
    }
    let topic = story.random.below(2) as usize;
    story.append(&engine, topic).map_err(said)?;
    let start = story.last.start;
    story.damage_in(&disk, start..start + HEAD_LEN);
    engine.step_dispatch();
    if story.random.chance(50) {
        engine.close().map_err(said)?;
        return story.recover(disk, &[Stop::Process, Stop::Power, Stop::Device]);
    }
    engine.parts().save_table().map_err(said)?;
    engine.parts().full_pass().map_err(said)?;
    let disk = Arc::new(disk.restart(Faults::none(Stop::Process)));
    drop(engine);
    story.recover(disk, &[Stop::Process])
}
