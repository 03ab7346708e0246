//! Stories of a partition log: what was acknowledged outlives every crash, in each partition by
//! itself, and each partition is a beginning of what was sent to it, without holes.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::model::{Breach, hold};
use super::random::Random;
use crate::clock::{Clock, ManualClock};
use crate::disk::{FileSystem, Synced};
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::flush::FlushService;
use crate::engine::{Appended, Atomicity, Check, Durability, Engine, Filter, Rows, Waiter};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{Compression, EngineKind, Flush, Options};
use crate::record::{Batch, Draft};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROOT: &str = "/store";
const EPOCH_MS: i64 = 1_700_000_000_000;
const TOPICS: [&str; 2] = ["orders", "bills"];
const QUEUES: u32 = 2;

const STOPS: [Stop; 6] = [
    Stop::Power,
    Stop::Power,
    Stop::Device,
    Stop::Process,
    Stop::Process,
    Stop::Moved,
];

/// Topic and queue.
type Place = (&'static str, u32);

/// A message of a partition.
#[derive(Clone, Debug)]
struct Sent {
    id: u64,
    /// End of the append, in bytes of all partitions.
    end: u64,
    /// Whether it was appended before the machine stopped.
    certain: bool,
    acknowledged: bool,
}

/// An append, and its waiter.
type Enlisted = (Vec<(Place, u64, Sent)>, Option<Arc<Waiter>>);

/// A store over several lives.
pub struct Story {
    random: Random,
    options: Options,
    sent: BTreeMap<Place, Vec<Sent>>,
    next_id: u64,
    clock: Arc<ManualClock>,
    crashes: u64,
    died: bool,
    kept: bool,
}

struct Life {
    disk: Arc<SimDisk>,
    engine: Arc<PartitionLog>,
    service: FlushService,
    time: Instant,
    waiters: Vec<(u64, Arc<Waiter>)>,
    meanwhile: Arc<Mutex<Vec<Enlisted>>>,
}

fn body(id: u64, max: u64) -> Vec<u8> {
    let mut random = Random::new(id);
    let len = 8 + random.below(max) as usize;
    let mut body = id.to_le_bytes().to_vec();
    while body.len() < len {
        body.extend(random.next().to_le_bytes());
    }
    body.truncate(len);
    body
}

/// Bodies are shorter than this.
const BODY_MAX: u64 = 900;

impl Story {
    /// The story of a seed.
    pub fn new(seed: u64) -> Story {
        let mut random = Random::new(seed);
        let codecs = [Compression::None, Compression::None, Compression::Lz4];
        let options = Options {
            engine: Some(EngineKind::PartitionLog),
            flush: Some(random.pick(&[Flush::Sync, Flush::Async])),
            segment_bytes: Some(random.pick(&[4096, 4096, 16384])),
            segment_ms: random.chance(20).then_some(5000),
            index_interval_bytes: Some(random.pick(&[0, 300, 4096])),
            segment_index_bytes: Some(random.pick(&[36, 1000, 1 << 20])),
            compression: Some(random.pick(&codecs)),
            default_queues: Some(QUEUES),
            flush_least_pages: random.pick(&[0, 1, 4]),
            flush_interval: Duration::from_millis(500),
            ..Options::default()
        };
        Story {
            random,
            options,
            sent: BTreeMap::new(),
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
            dies_at: random.chance(70).then(|| 1 + random.below(160)),
            failing_syncs: random.pick(&[0, 0, 0, 20, 200]),
            full: random.pick(&[0, 0, 0, 30]),
            failing_calls: random.pick(&[0, 0, 0, 0, 5, 30]),
            failing_map: random.chance(40).then(|| 1 + random.below(16)),
            written_back: random.pick(&[0, 1, 3]),
        }
    }

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

    fn open(&self, disk: &Arc<SimDisk>) -> Result<PartitionLog> {
        let machine = Machine {
            clock: Arc::<ManualClock>::clone(&self.clock),
            ..Machine::stepped(shared(disk))
        };
        PartitionLog::open(&machine, Path::new(ROOT), &self.options)
    }

    /// One life: open, check, work, crash. Returns the disk that the next life finds.
    fn live(&mut self, disk: SimDisk, last: bool) -> std::result::Result<SimDisk, Breach> {
        self.kept &= disk.was_kept();
        let disk = Arc::new(disk);
        let engine = match self.open(&disk) {
            Ok(engine) => engine,
            Err(_) if disk.is_dead() || disk.has_faults() => return Ok(self.restart(&disk, last)),
            Err(error) => return Err(format!("opening failed: {error}")),
        };
        if !disk.is_dead() {
            let checked = disk.without_failing_calls(|| self.check(&engine));
            if !disk.is_dead() {
                checked?;
                self.kept = true;
            }
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
            self.settle(&mut life)?;
        }
        if self.random.chance(20) {
            let closed = life.engine.close();
            self.settle(&mut life)?;
            if closed.is_ok() && !life.disk.is_dead() {
                self.acknowledge(u64::MAX);
            }
        }
        Ok(self.restart(&life.disk, last))
    }

    fn work(&mut self, life: &mut Life) -> std::result::Result<(), Breach> {
        match self.random.below(100) {
            0..40 => self.send(life, 1)?,
            40..58 => {
                let rows = 2 + self.random.below(12);
                self.send(life, rows)?;
            }
            58..72 => {
                if self.random.chance(40) {
                    self.send_during_sync(life);
                }
                life.engine.step_group_commit();
            }
            72..86 => {
                let ms = self.random.pick(&[1, 600, 1500, 12_000]);
                life.time += Duration::from_millis(ms);
                self.clock.advance(ms);
                life.service.step(life.engine.parts(), life.time);
            }
            86..92 => {
                if life.engine.flush().is_ok() && !life.disk.is_dead() {
                    let durable = life.engine.durable_position();
                    self.acknowledge(durable);
                    let all = self.sent.values().flatten();
                    let open = all
                        .filter(|sent| sent.certain && !sent.acknowledged)
                        .count();
                    hold!(
                        open == 0,
                        "a flush left {open} messages that are not durable"
                    );
                }
            }
            _ => {
                let places: Vec<Place> = self.sent.keys().copied().collect();
                if !places.is_empty() && !life.disk.has_faults() {
                    let place = self.random.pick(&places);
                    let read = self.check_readable(&life.engine, place);
                    if !life.disk.is_dead() {
                        read?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Encodes messages of one topic, each for some queue.
    fn encode(&mut self, rows: u64, engine: &PartitionLog) -> (Batch, Vec<(Place, u64, Sent)>) {
        let topic = self.random.pick(&TOPICS);
        let mut batch = engine.batch();
        let mut sent = Vec::new();
        for _ in 0..rows {
            let queue = self.random.below(u64::from(QUEUES)) as u32;
            let id = self.next_id;
            self.next_id += 1;
            let body = body(id, BODY_MAX);
            let draft = Draft {
                body: &body,
                ..Draft::default()
            };
            let pushed = batch.push(topic, queue, &draft, self.clock.now_ms());
            assert!(pushed.is_ok(), "a message within the limits was rejected");
            let it = Sent {
                id,
                end: 0,
                certain: false,
                acknowledged: false,
            };
            sent.push(((topic, queue), 0, it));
        }
        (batch, sent)
    }

    fn send(&mut self, life: &mut Life, rows: u64) -> std::result::Result<(), Breach> {
        self.clock.advance(self.random.below(3));
        let (mut batch, sent) = self.encode(rows, &life.engine);
        let waits = self.random.chance(50);
        let enlisted = match append(&life.engine, &mut batch, sent[0].0.0) {
            Ok(appended) => {
                let waiter = waits.then(|| life.engine.enlist(appended.end));
                (placed(sent, &appended, &life.disk), waiter)
            }
            Err(error) => (uncertain(sent, &error), None),
        };
        self.take(life, enlisted)
    }

    /// Makes another sender append and enlist in the middle of the next sync.
    fn send_during_sync(&mut self, life: &Life) {
        let (mut batch, sent) = self.encode(1, &life.engine);
        let engine = Arc::clone(&life.engine);
        let done = Arc::clone(&life.meanwhile);
        let weak = Arc::downgrade(&life.disk);
        let mut sent = Some(sent);
        life.disk.meanwhile.during_sync(Box::new(move || {
            let (Some(sent), Some(disk)) = (sent.take(), weak.upgrade()) else {
                return;
            };
            let enlisted = match append(&engine, &mut batch, sent[0].0.0) {
                Ok(appended) => {
                    let waiter = engine.enlist(appended.end);
                    (placed(sent, &appended, &disk), Some(waiter))
                }
                Err(error) => (uncertain(sent, &error), None),
            };
            done.lock().push(enlisted);
        }));
    }

    /// Adds messages that may be in the log.
    fn take(&mut self, life: &mut Life, enlisted: Enlisted) -> std::result::Result<(), Breach> {
        let (sent, waiter) = enlisted;
        let end = sent.first().map_or(0, |(_, _, sent)| sent.end);
        for (place, offset, sent) in sent {
            let all = self.sent.entry(place).or_default();
            hold!(
                !sent.certain || offset == all.len() as u64,
                "got offset {offset} instead of {}",
                all.len()
            );
            all.push(sent);
        }
        life.waiters.extend(waiter.map(|waiter| (end, waiter)));
        Ok(())
    }

    /// What was appended up to `durable` outlives every crash.
    fn acknowledge(&mut self, durable: u64) {
        let all = self.sent.values_mut().flatten();
        for sent in all.filter(|sent| sent.certain && sent.end <= durable) {
            sent.acknowledged = true;
        }
    }

    fn settle(&mut self, life: &mut Life) -> std::result::Result<(), Breach> {
        let meanwhile = std::mem::take(&mut *life.meanwhile.lock());
        for enlisted in meanwhile {
            self.take(life, enlisted)?;
        }
        let mut durable = 0;
        life.waiters.retain(|(end, waiter)| {
            match waiter.wait(Duration::ZERO) {
                Some(Ok(())) => durable = durable.max(*end),
                None => return true,
                _ => {}
            }
            false
        });
        self.acknowledge(durable);
        if !life.disk.is_dead() {
            self.acknowledge(life.engine.durable_position());
        }
        Ok(())
    }

    /// Checks a store that was just opened, and takes what it holds for what was sent.
    fn check(&mut self, engine: &PartitionLog) -> std::result::Result<(), Breach> {
        let damage = engine.report().damage();
        hold!(damage.is_empty(), "reported damage: {damage:?}");
        let verified = engine.verify(&mut |_, _| true);
        let verified = verified.map_err(|error| format!("verify failed: {error}"))?;
        hold!(
            verified.damage.is_empty(),
            "verify found {:?}",
            verified.damage
        );
        let places: Vec<Place> = self.sent.keys().copied().collect();
        for place in places {
            let found = self.check_all(engine, place)?;
            let all = &self.sent[&place];
            let acknowledged = all.iter().rposition(|sent| sent.acknowledged);
            let acknowledged = acknowledged.map_or(0, |last| last + 1);
            hold!(
                found >= acknowledged,
                "{found} messages in {place:?}, {acknowledged} acknowledged"
            );
            let certain = all.iter().filter(|sent| sent.certain).count();
            hold!(
                !self.kept || found >= certain,
                "{found} of {certain} in {place:?} survived the process"
            );
            if let Some(all) = self.sent.get_mut(&place) {
                all.truncate(found);
                for sent in all {
                    (sent.certain, sent.acknowledged, sent.end) = (true, true, 0);
                }
            }
        }
        Ok(())
    }

    /// Compares a partition with what was sent to it. Returns how many messages it has.
    fn check_all(&self, engine: &PartitionLog, place: Place) -> std::result::Result<usize, Breach> {
        let failed = |error| format!("{place:?} cannot be read: {error}");
        let Some(topic) = engine.topics().get(place.0) else {
            return Ok(0);
        };
        let Some(bounds) = engine.bounds(&topic, place.1).map_err(failed)? else {
            return Ok(0);
        };
        hold!(bounds.start == 0, "{place:?} begins at {}", bounds.start);
        let all = &self.sent[&place];
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, place.1, bounds.clone(), &filter, Check::Full);
        let mut cursor = cursor.map_err(failed)?;
        let (mut rows, mut found) = (Rows::default(), 0);
        loop {
            rows.clear();
            cursor.next(64, &mut rows).map_err(failed)?;
            if rows.rows.is_empty() {
                break;
            }
            for row in &rows.rows {
                let message = rows.message(row).ok_or("a row without a message")?;
                let Some(sent) = all.get(found) else {
                    return Err(format!("message {found} of {place:?} was never sent"));
                };
                let there = message.body().map_err(failed)?;
                hold!(
                    there == body(sent.id, BODY_MAX),
                    "message {found} of {place:?} differs from the one that was sent"
                );
                let offset = message.record().queue_offset() as u64;
                hold!(
                    offset == found as u64,
                    "message {found} of {place:?} is at {offset}"
                );
                found += 1;
            }
        }
        hold!(
            bounds.end == found as u64,
            "{place:?} ends at {}, and has {found} messages",
            bounds.end
        );
        Ok(found)
    }

    /// Checks what readers see of a partition while it is written.
    fn check_readable(
        &self,
        engine: &PartitionLog,
        place: Place,
    ) -> std::result::Result<(), Breach> {
        let found = self.check_all(engine, place)?;
        let all = &self.sent[&place];
        let seen = |sent: &&Sent| match self.options.flush() {
            Flush::Async => sent.certain,
            Flush::Sync => sent.acknowledged,
        };
        let least = all.iter().filter(seen).count();
        hold!(
            found >= least,
            "{place:?} shows {found} of {least} messages"
        );
        Ok(())
    }
}

/// A process begins the first segment of a partition, does not use it, removes it, and dies before
/// that is durable. The next one opens the store and stops cleanly, and the power fails: the
/// segment does not come back.
pub fn unlinked_by_the_dead(seed: u64) -> std::result::Result<(), Breach> {
    let mut story = Story::new(seed);
    story.options.flush = Some(Flush::Async);
    let quiet = |stop| Faults {
        stop,
        dies_at: None,
        failing_syncs: 0,
        full: 0,
        failing_calls: 0,
        failing_map: None,
        written_back: 0,
    };
    let said = |error: Error| error.to_string();
    let disk = Arc::new(SimDisk::new(Random::new(seed), quiet(Stop::Process)));
    let engine = story.open(&disk).map_err(said)?;
    engine.topic_for_append(TOPICS[0]).map_err(said)?;
    let folder = Path::new(ROOT).join(format!("{}-0", TOPICS[0]));
    let stray = folder.join(format!("{:020}.log", 0));
    let created = disk.create(&stray, 4096);
    created.map_err(|error| error.to_string())?;
    let synced = disk.sync(Synced::Directory(&folder));
    synced.map_err(|error| error.to_string())?;
    let removed = disk.unlink(&stray);
    removed.map_err(|error| error.to_string())?;
    let next = Arc::new(disk.restart(quiet(Stop::Power)));
    drop(engine);
    story
        .open(&next)
        .and_then(|engine| engine.close())
        .map_err(said)?;
    let last = Arc::new(next.restart(quiet(Stop::Power)));
    let engine = story.open(&last).map_err(said)?;
    let found = last.contents().contains_key(&stray);
    hold!(
        !found && engine.recovery().clean,
        "the segment has come back"
    );
    story.check(&engine)
}

fn append(engine: &PartitionLog, batch: &mut Batch, topic: &str) -> Result<Appended> {
    let topic = engine.topic_for_append(topic)?;
    let batches = &mut [(&*topic, batch)];
    engine.append(batches, Atomicity::Rows, Durability::Written)
}

/// Messages of a failed call: those that the error reports as appended may be in the log.
fn uncertain(mut sent: Vec<(Place, u64, Sent)>, error: &Error) -> Vec<(Place, u64, Sent)> {
    if !matches!(error, Error::Failed { appended: true, .. }) {
        sent.clear();
    }
    sent
}

/// Messages with their places. If the machine stopped meanwhile, they may or may not be in the log.
fn placed(
    mut sent: Vec<(Place, u64, Sent)>,
    appended: &Appended,
    disk: &SimDisk,
) -> Vec<(Place, u64, Sent)> {
    let certain = !disk.is_dead();
    for ((_, offset, sent), place) in sent.iter_mut().zip(&appended.rows) {
        *offset = place.offset;
        sent.end = appended.end;
        sent.certain = certain;
    }
    sent
}
