//! Stories of the commit log: several lives of a store. Each ends with a crash and begins with a
//! recovery.

use super::disk::{Image, SimDisk};
use super::faults::{Faults, Stop};
use super::frame::{Breach, Enlisted, Fails, Life, ROOT, Sent, Stepped, Story, World, hold};
use super::model::{Model, QUEUES};
use super::random::Random;
use crate::clock::Clock;
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Engine};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::options::{Flush, Options};
use crate::record::Batch;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Prints what happens, if tracing is on.
macro_rules! trace {
    ($($text:tt)+) => {
        if std::env::var_os("FOREBAY_SIM_TRACE").is_some() {
            println!($($text)+);
        }
    };
}

/// How the machines of the stories stop.
const STOPS: [Stop; 6] = [
    Stop::Power,
    Stop::Power,
    Stop::Device,
    Stop::Process,
    Stop::Process,
    Stop::Moved,
];

/// A store over several lives.
pub struct Lives {
    pub world: World,
    pub options: Options,
    pub model: Model,
}

impl Story for Lives {
    type Store = Arc<CommitLog>;

    fn new(seed: u64) -> Lives {
        let mut random = Random::new(seed);
        let flush = random.pick(&[Flush::Sync, Flush::Async]);
        let model = Model {
            alike: random.chance(25).then(|| 8 + random.below(400) as usize),
            body_max: random.pick(&[60, 500, 2000]),
            ..Model::default()
        };
        let options = Options {
            flush: Some(flush),
            commitlog_file_size: Some(random.pick(&[4096, 8192, 16384])),
            queue_file_entries: Some(random.pick(&[4, 16, 64])),
            index_slots: Some(random.pick(&[2, 8])),
            index_entries: Some(random.pick(&[6, 40])),
            default_queues: Some(QUEUES),
            flush_least_pages: random.pick(&[0, 1, 4]),
            transient_pool: match flush {
                Flush::Sync => 0,
                Flush::Async => random.pick(&[0, 0, 1, 3]),
            },
            transient_pool_fail_fast: random.chance(30),
            retention_bytes: random.chance(30).then_some(1 << 14),
            roll_after: random.chance(20).then_some(Duration::from_secs(5)),
            flush_interval: Duration::from_millis(500),
            ..Options::default()
        };
        Lives {
            world: World::new(random),
            options,
            model,
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn lives(&mut self) -> u64 {
        2 + self.world.random.below(6)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        self.world.faults(ahead, &STOPS, 120, Fails::SOME)
    }

    fn live(&mut self, disk: &mut Arc<SimDisk>, _: bool) -> Result<Option<Arc<CommitLog>>, Breach> {
        trace!("life: {:?}", disk.faults());
        let Some(engine) = self.opened(disk)? else {
            return Ok(None);
        };
        trace!("open: {:?}", engine.report().recovery());
        if self.world.random.chance(15) && !disk.is_dead() {
            return self.open_again(disk, engine);
        }
        self.worked(disk, engine).map(Some)
    }
}

impl Stepped for Lives {
    type Engine = CommitLog;
    const STEPS: u64 = 40;

    fn open(&self, machine: &Machine) -> Done<CommitLog> {
        CommitLog::open(machine, Path::new(ROOT), &self.options, Vec::new())
    }

    fn check(&mut self, engine: &CommitLog) -> Result<(), Breach> {
        self.model.check(engine, self.world.kept)
    }

    fn work(&mut self, life: &mut Life<CommitLog>) -> Result<(), Breach> {
        match self.world.random.below(100) {
            0..40 => self.send(life, 1, Atomicity::Rows)?,
            40..48 => {
                let rows = 2 + self.world.random.below(8);
                self.send(life, rows, Atomicity::Rows)?;
            }
            48..56 => {
                let rows = 2 + self.world.random.below(5);
                self.send(life, rows, Atomicity::Whole)?;
            }
            56..68 => {
                if self.world.random.chance(40) {
                    life.send_during_sync(self.encode(1, &life.engine, Atomicity::Rows));
                }
                life.engine.step_group_commit();
            }
            68..76 => life.engine.step_dispatch(),
            76..88 => {
                let ms = self.world.random.pick(&[1, 600, 1500, 12_000]);
                life.pass(ms, &self.world.clock);
                if self.world.random.chance(50) {
                    let _ = life.engine.parts().write_out();
                }
                life.engine
                    .step_retention(self.world.clock.now_ms(), life.time);
            }
            88..92 => {
                if let Ok(durable) = life.engine.flush(&mut || true)
                    && !life.disk.is_dead()
                {
                    self.model.acknowledge(durable);
                    let all = self.model.sent.iter().filter(|sent| sent.certain).count();
                    hold!(
                        self.model.acknowledged >= all,
                        "flush did not make everything durable"
                    );
                }
            }
            _ => {
                let count = self.model.sent.len() as u64;
                let readable = life.engine.readable_position();
                let number = self.world.random.below(count.max(1)) as usize;
                let there = self.model.sent.get(number);
                if there.is_some_and(|sent| sent.certain && sent.end <= readable) {
                    let read = self.model.check_one(&life.engine, number);
                    if !life.disk.is_dead() && !life.disk.has_faults() {
                        read?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds what a step has acknowledged to the model.
    fn take_note(&mut self, life: &mut Life<CommitLog>, _: bool) -> Result<(), Breach> {
        for enlisted in life.take_meanwhile() {
            self.take(life, enlisted)?;
        }
        self.model.acknowledge(life.take_acknowledged());
        if life.disk.is_dead() {
            return Ok(());
        }
        self.model.acknowledge(life.engine.durable_position());
        let published = life.engine.stats().published;
        self.model.published = published;
        self.model.retire(&life.engine);
        for (path, end) in life.disk.take_syncs() {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or("");
            if path.starts_with("/store/commitlog") {
                let end = name.parse::<u64>().unwrap_or(0) + end as u64;
                hold!(
                    end <= published,
                    "a sync ends at {end}, the log at {published}"
                );
            }
        }
        Ok(())
    }
}

impl Lives {
    /// Opens a store twice in a row: the second time changes no file that holds messages.
    fn open_again(
        &mut self,
        disk: &mut Arc<SimDisk>,
        engine: CommitLog,
    ) -> Result<Option<Arc<CommitLog>>, Breach> {
        let before = disk.contents();
        drop(engine);
        let faults = self.faults(0);
        *disk = self.world.crash(disk, faults);
        self.world.kept &= disk.was_kept();
        let engine = match self.open(&self.world.machine(disk)) {
            Err(_) if disk.is_dead() => return Ok(None),
            opened => opened.map_err(|error| format!("again: {error}"))?,
        };
        let checked = self.model.check(&engine, false);
        if disk.is_dead() {
            return Ok(None);
        }
        checked?;
        let after = disk.contents();
        let log = |image: Image| -> Image {
            let inside = |path: &Path| path.starts_with("/store/commitlog");
            let files = image.into_iter().filter(|(path, _)| inside(path));
            files.collect()
        };
        let (before, after) = (log(before), log(after));
        let is_other = |path: &&PathBuf| before.get(*path) != after.get(*path);
        let other = before.keys().chain(after.keys()).find(is_other);
        hold!(
            other.is_none(),
            "the second opening changed the log: {other:?} of {:?} and {:?}",
            before.keys(),
            after.keys()
        );
        Ok(None)
    }

    /// Encodes messages of one topic and queue.
    pub fn encode(
        &mut self,
        rows: u64,
        engine: &CommitLog,
        atomicity: Atomicity,
    ) -> (Batch, Vec<Sent>) {
        let batch = engine.form().batch();
        self.model.encode(&mut self.world, batch, rows, atomicity)
    }

    fn send(
        &mut self,
        life: &mut Life<CommitLog>,
        rows: u64,
        atomicity: Atomicity,
    ) -> Result<(), Breach> {
        self.world.clock.advance(self.world.random.below(3));
        let encoded = self.encode(rows, &life.engine, atomicity);
        let waits = self.world.random.chance(50);
        let enlisted = life.send(encoded, atomicity, waits);
        self.take(life, enlisted)
    }

    /// Adds messages that may be in the log to the model.
    fn take(&mut self, life: &mut Life<CommitLog>, enlisted: Enlisted) -> Result<(), Breach> {
        let (sent, waiter) = enlisted;
        let end = sent.first().map_or(0, |sent| sent.end);
        self.model.take(sent)?;
        life.wait(end, waiter);
        Ok(())
    }
}
