//! A story: several lives of a store. Each ends with a crash and begins with a recovery.

use super::disk::{Image, SimDisk, shared};
use super::faults::{Faults, Stop};
use super::model::{Breach, Model, QUEUES, Sent, TOPICS, hold};
use super::random::Random;
use crate::clock::{Clock, ManualClock};
use crate::engine::commit_log::CommitLog;
use crate::engine::service::flush::FlushService;
use crate::engine::{Appended, Atomicity, Durability, Engine, Waiter};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{Flush, Options};
use crate::record::{Batch, Draft};
use crate::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prints what happens, if tracing is on.
macro_rules! trace {
    ($($text:tt)+) => {
        if std::env::var_os("FOREBAY_SIM_TRACE").is_some() {
            println!($($text)+);
        }
    };
}

const ROOT: &str = "/store";
/// Store time of the first message, in ms.
const EPOCH_MS: i64 = 1_700_000_000_000;

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
pub struct Story {
    random: Random,
    options: Options,
    model: Model,
    next_id: u64,
    clock: Arc<ManualClock>,
    crashes: u64,
    /// Whether the last life ended at a call of the disk.
    died: bool,
    /// Whether only processes have died since the last check of the store.
    kept: bool,
}

/// A message that was appended, and its waiter.
type Enlisted = (Vec<Sent>, Option<Arc<Waiter>>);

/// An open store.
struct Life {
    disk: Arc<SimDisk>,
    engine: Arc<CommitLog>,
    service: FlushService,
    time: Instant,
    waiters: Vec<(usize, Arc<Waiter>)>,
    /// Messages that another sender appended during a sync.
    meanwhile: Arc<Mutex<Vec<Enlisted>>>,
}

impl Story {
    /// The story of a seed.
    pub fn new(seed: u64) -> Story {
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
        Story {
            random,
            options,
            model,
            next_id: 0,
            clock: ManualClock::at(EPOCH_MS),
            crashes: 0,
            died: false,
            kept: true,
        }
    }

    /// Runs the story; returns its number of crashes.
    pub fn tell(mut self) -> std::result::Result<u64, Breach> {
        let lives = 2 + self.random.below(6);
        let random = Random::new(self.random.next());
        let mut disk = SimDisk::new(random, self.faults());
        let mut life = 0;
        // The last life ends by a crash only if a sync was left out.
        while life < lives || self.died && life < 2 * lives {
            life += 1;
            disk = self.live(disk, life >= lives)?;
        }
        Ok(self.crashes)
    }

    fn faults(&mut self) -> Faults {
        let random = &mut self.random;
        Faults {
            stop: random.pick(&STOPS),
            dies_at: random.chance(70).then(|| 1 + random.below(120)),
            failing_syncs: random.pick(&[0, 0, 0, 20, 200]),
            full: random.pick(&[0, 0, 0, 30]),
            failing_calls: random.pick(&[0, 0, 0, 0, 5, 30]),
            failing_map: random.chance(40).then(|| 1 + random.below(16)),
            written_back: random.pick(&[0, 1, 3]),
        }
    }

    /// Sets the state that the next life finds, and how it ends. The last one has no faults.
    fn restart(&mut self, disk: &SimDisk, last: bool) -> SimDisk {
        self.crashes += 1;
        self.died = disk.is_dead();
        let faults = self.faults();
        disk.restart(match last {
            true => Faults {
                dies_at: None,
                failing_syncs: 0,
                full: 0,
                failing_calls: 0,
                failing_map: None,
                ..faults
            },
            false => faults,
        })
    }

    fn open(&self, disk: &Arc<SimDisk>) -> Result<CommitLog> {
        let machine = Machine {
            clock: Arc::<ManualClock>::clone(&self.clock),
            ..Machine::stepped(shared(disk))
        };
        CommitLog::open(&machine, Path::new(ROOT), &self.options, Vec::new())
    }

    /// One life: open, check, work, crash. Returns the disk that the next life finds.
    fn live(&mut self, disk: SimDisk, last: bool) -> std::result::Result<SimDisk, Breach> {
        self.kept &= disk.was_kept();
        trace!("life: kept {} faults {:?}", self.kept, disk.faults());
        let disk = Arc::new(disk);
        let engine = match self.open(&disk) {
            Ok(engine) => engine,
            Err(_) if disk.is_dead() || disk.has_faults() => return Ok(self.restart(&disk, last)),
            Err(error) => return Err(format!("opening failed: {error}")),
        };
        trace!("open: {:?}", engine.recovery());
        if !disk.is_dead() {
            // The check runs without faults, even if opening had some.
            let check = || self.model.check(&engine, self.kept);
            let checked = disk.without_failing_calls(check);
            // The machine may stop during the check itself.
            if !disk.is_dead() {
                checked?;
                self.kept = true;
            }
        }
        if self.random.chance(15) && !disk.is_dead() {
            return self.open_again(&disk, engine, last);
        }
        let time = Instant::now();
        let mut life = Life {
            service: FlushService::new(engine.flush_rules(), time),
            engine: Arc::new(engine),
            disk,
            time,
            waiters: Vec::new(),
            meanwhile: Arc::default(),
        };
        for _ in 0..self.random.below(40) {
            if life.disk.is_dead() {
                break;
            }
            self.work(&mut life)?;
            trace!(
                "{} sent, {} acknowledged",
                self.model.sent.len(),
                self.model.acknowledged
            );
            self.settle(&mut life)?;
        }
        if self.random.chance(20) {
            let _ = life.engine.close();
            self.settle(&mut life)?;
        }
        Ok(self.restart(&life.disk, last))
    }

    /// Opens a store twice in a row: the second time changes no file that holds messages.
    fn open_again(
        &mut self,
        disk: &Arc<SimDisk>,
        engine: CommitLog,
        last: bool,
    ) -> std::result::Result<SimDisk, Breach> {
        let before = disk.contents();
        drop(engine);
        let next = Arc::new(self.restart(disk, true));
        self.kept &= next.was_kept();
        let engine = match self.open(&next) {
            Err(_) if next.is_dead() => return Ok(self.restart(&next, last)),
            opened => opened.map_err(|error| format!("again: {error}"))?,
        };
        let checked = self.model.check(&engine, false);
        if next.is_dead() {
            return Ok(self.restart(&next, last));
        }
        checked?;
        let after = next.contents();
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
        drop(engine);
        Ok(self.restart(&next, last))
    }

    fn work(&mut self, life: &mut Life) -> std::result::Result<(), Breach> {
        match self.random.below(100) {
            0..40 => self.send(life, 1, Atomicity::Rows)?,
            40..48 => {
                let rows = 2 + self.random.below(8);
                self.send(life, rows, Atomicity::Rows)?;
            }
            48..56 => {
                let rows = 2 + self.random.below(5);
                self.send(life, rows, Atomicity::Whole)?;
            }
            56..68 => {
                if self.random.chance(40) {
                    self.send_during_sync(life);
                }
                life.engine.step_group_commit();
            }
            68..76 => life.engine.step_dispatch(),
            76..88 => {
                let ms = self.random.pick(&[1, 600, 1500, 12_000]);
                life.time += Duration::from_millis(ms);
                self.clock.advance(ms);
                life.service.step(life.engine.parts(), life.time);
                if self.random.chance(50) {
                    let _ = life.engine.parts().write_out();
                }
                life.engine.step_retention(self.clock.now_ms(), life.time);
            }
            88..92 => {
                if let Ok(durable) = life.engine.flush()
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
                let number = self.random.below(count.max(1)) as usize;
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

    /// Encodes messages of one topic and queue.
    fn encode(&mut self, rows: u64, engine: &CommitLog, whole: bool) -> (Batch, Vec<Sent>) {
        let topic = match self.model.alike {
            Some(_) => TOPICS[0],
            None => self.random.pick(&TOPICS),
        };
        let queue = self.random.below(u64::from(QUEUES)) as u32;
        let mut batch = engine.batch();
        let mut sent = Vec::new();
        let number = whole.then_some(self.next_id);
        for _ in 0..rows {
            let id = self.next_id;
            self.next_id += 1;
            let key = self.model.key(id);
            let keys: Vec<&str> = key.iter().map(String::as_str).collect();
            let body = self.model.body(id);
            let draft = Draft {
                body: &body,
                keys: &keys,
                ..Draft::default()
            };
            let pushed = batch.push(topic, queue, &draft, self.clock.now_ms());
            assert!(pushed.is_ok(), "a message within the limits was rejected");
            sent.push(Sent {
                id,
                queue: (topic, queue),
                offset: 0,
                position: 0,
                end: 0,
                batch: number,
                certain: false,
            });
        }
        (batch, sent)
    }

    fn send(
        &mut self,
        life: &mut Life,
        rows: u64,
        atomicity: Atomicity,
    ) -> std::result::Result<(), Breach> {
        self.clock.advance(self.random.below(3));
        let (mut batch, sent) = self.encode(rows, &life.engine, atomicity == Atomicity::Whole);
        let appended = append(&life.engine, &mut batch, sent[0].queue.0, atomicity);
        let waits = self.random.chance(50);
        let appended = match appended {
            Ok(appended) => appended,
            Err(error) => return self.take(life, (uncertain(sent, &error), None)),
        };
        let waiter = waits.then(|| life.engine.enlist(appended.end));
        let sent = placed(sent, &appended, &life.disk);
        self.take(life, (sent, waiter))
    }

    /// Makes another sender append and enlist in the middle of the next sync.
    fn send_during_sync(&mut self, life: &Life) {
        let (mut batch, sent) = self.encode(1, &life.engine, false);
        let engine = Arc::clone(&life.engine);
        let (disk, done) = (Arc::clone(&life.disk), Arc::clone(&life.meanwhile));
        let weak = Arc::downgrade(&disk);
        drop(disk);
        let mut sent = Some(sent);
        life.disk.meanwhile.during_sync(Box::new(move || {
            let (Some(sent), Some(disk)) = (sent.take(), weak.upgrade()) else {
                return;
            };
            let topic = sent[0].queue.0;
            let enlisted = match append(&engine, &mut batch, topic, Atomicity::Rows) {
                Ok(appended) => {
                    let waiter = engine.enlist(appended.end);
                    (placed(sent, &appended, &disk), Some(waiter))
                }
                Err(error) => (uncertain(sent, &error), None),
            };
            done.lock().push(enlisted);
        }));
    }

    /// Adds messages that are in the log to the model.
    fn take(&mut self, life: &mut Life, enlisted: Enlisted) -> std::result::Result<(), Breach> {
        let (sent, waiter) = enlisted;
        for mut sent in sent {
            let expected = self.model.next_offset(sent.queue);
            if !sent.certain && sent.end == u64::MAX {
                sent.offset = expected;
            }
            hold!(
                sent.offset == expected,
                "got offset {} instead of {expected}",
                sent.offset
            );
            self.model.sent.push(sent);
        }
        life.waiters
            .extend(waiter.map(|waiter| (self.model.sent.len(), waiter)));
        Ok(())
    }

    /// Adds what a step has acknowledged to the model.
    fn settle(&mut self, life: &mut Life) -> std::result::Result<(), Breach> {
        let meanwhile = std::mem::take(&mut *life.meanwhile.lock());
        for enlisted in meanwhile {
            self.take(life, enlisted)?;
        }
        let dead = life.disk.is_dead();
        let mut acknowledged = self.model.acknowledged;
        life.waiters.retain(|(count, waiter)| {
            match waiter.wait(Duration::ZERO) {
                Some(Ok(())) => acknowledged = acknowledged.max(*count),
                None => return true,
                _ => {}
            }
            false
        });
        self.model.acknowledged = acknowledged;
        if dead {
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

fn append(
    engine: &CommitLog,
    batch: &mut Batch,
    topic: &str,
    atomicity: Atomicity,
) -> Result<Appended> {
    let topic = engine.topic_for_append(topic)?;
    engine.append(&mut [(&topic, batch)], atomicity, Durability::Written)
}

/// Messages of a failed call: those that the error reports as appended may be in the log.
fn uncertain(mut sent: Vec<Sent>, error: &Error) -> Vec<Sent> {
    if !matches!(error, Error::Failed { appended: true, .. }) {
        sent.clear();
    }
    for sent in &mut sent {
        (sent.position, sent.end) = (u64::MAX, u64::MAX);
    }
    sent
}

/// Messages with their assigned places. If the machine stopped meanwhile, they may or may not be in
/// the log.
fn placed(mut sent: Vec<Sent>, appended: &Appended, disk: &SimDisk) -> Vec<Sent> {
    let certain = !disk.is_dead();
    for (sent, place) in sent.iter_mut().zip(&appended.rows) {
        sent.offset = place.offset;
        sent.position = place.position;
        sent.end = appended.end;
        sent.certain = certain;
    }
    sent
}
