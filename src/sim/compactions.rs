//! Stories of a partition log that is compacted: whatever the moment of a crash, a message is
//! missing only if a later one with its key is there, and every message has the offset that it was
//! sent at. Readers beside the compaction, in the same process and in another, see the same.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::model::{Breach, hold};
use super::random::Random;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::clock::{Clock, ManualClock};
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::flush::FlushService;
use crate::engine::{Atomicity, Check, Durability, Engine, Filter, Rows};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{Compression, EngineKind, Flush, Isolation, Mode, Options};
use crate::record::Draft;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROOT: &str = "/store";
const EPOCH_MS: i64 = 1_700_000_000_000;
const TOPIC: &str = "state";
const QUEUES: u32 = 2;
const STOPS: [Stop; 5] = [
    Stop::Power,
    Stop::Power,
    Stop::Power,
    Stop::Device,
    Stop::Process,
];

/// A message of a queue. Its offset is its number.
#[derive(Clone, Debug)]
struct Sent {
    id: u64,
    key: u8,
    /// Whether it was appended before the machine stopped.
    certain: bool,
    acknowledged: bool,
}

/// What was sent to each queue.
type Model = BTreeMap<u32, Vec<Sent>>;

/// A store over several lives.
pub struct Story {
    random: Random,
    options: Options,
    keys: u64,
    sent: Model,
    next_id: u64,
    clock: Arc<ManualClock>,
    crashes: u64,
}

/// A store that is open, and its disk.
struct Life {
    disk: Arc<SimDisk>,
    engine: Arc<PartitionLog>,
    service: FlushService,
    time: Instant,
}

fn body(id: u64) -> Vec<u8> {
    let mut random = Random::new(id);
    let len = 8 + random.below(500) as usize;
    let mut body = id.to_le_bytes().to_vec();
    while body.len() < len {
        body.extend(random.next().to_le_bytes());
    }
    body.truncate(len);
    body
}

impl Story {
    /// The story of a seed.
    pub fn new(seed: u64) -> Story {
        let mut random = Random::new(seed);
        let compaction = Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            log_cleaner_dedupe_buffer_size: Some(random.pick(&[1024, 1 << 20])),
            ..Compaction::default()
        };
        let options = Options {
            engine: Some(EngineKind::PartitionLog),
            flush: Some(random.pick(&[Flush::Sync, Flush::Async])),
            segment_bytes: Some(4096),
            index_interval_bytes: Some(random.pick(&[0, 300])),
            compression: Some(random.pick(&[Compression::None, Compression::Lz4])),
            default_queues: Some(QUEUES),
            compaction,
            ..Options::default()
        };
        Story {
            keys: random.pick(&[1, 3, 12, 100]),
            random,
            options,
            sent: Model::new(),
            next_id: 0,
            clock: ManualClock::at(EPOCH_MS),
            crashes: 0,
        }
    }

    /// Runs the story; returns its number of crashes.
    pub fn tell(mut self) -> std::result::Result<u64, Breach> {
        let lives = 2 + self.random.below(5);
        let random = Random::new(self.random.next());
        let mut disk = SimDisk::new(random, self.faults());
        for life in 1..=lives {
            disk = self.live(disk, life >= lives)?;
        }
        Ok(self.crashes)
    }

    fn faults(&mut self) -> Faults {
        let random = &mut self.random;
        Faults {
            stop: random.pick(&STOPS),
            dies_at: random.chance(70).then(|| 1 + random.below(260)),
            failing_syncs: random.pick(&[0, 0, 0, 20, 200]),
            full: random.pick(&[0, 0, 0, 30]),
            failing_calls: random.pick(&[0, 0, 0, 0, 10]),
            failing_map: None,
            written_back: random.pick(&[0, 1, 3]),
        }
    }

    fn restart(&mut self, disk: &SimDisk, last: bool) -> SimDisk {
        self.crashes += 1;
        let faults = self.faults();
        disk.restart(match last {
            true => Faults {
                dies_at: None,
                failing_syncs: 0,
                full: 0,
                failing_calls: 0,
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
        let disk = Arc::new(disk);
        let engine = match self.open(&disk) {
            Ok(engine) => engine,
            Err(_) if disk.is_dead() || disk.has_faults() => return Ok(self.restart(&disk, last)),
            Err(error) => return Err(format!("opening failed: {error}")),
        };
        if !disk.is_dead() {
            let checked = disk.without_failing_calls(|| self.check_opened(&engine));
            if !disk.is_dead() {
                checked?;
            }
        }
        let time = Instant::now();
        let mut life = Life {
            service: FlushService::new(engine.flush_rules(), time),
            engine: Arc::new(engine),
            disk,
            time,
        };
        for _ in 0..self.random.below(60) {
            if life.disk.is_dead() {
                break;
            }
            self.work(&mut life)?;
        }
        if self.random.chance(20) && life.engine.close().is_ok() && !life.disk.is_dead() {
            self.acknowledge();
        }
        Ok(self.restart(&life.disk, last))
    }

    fn work(&mut self, life: &mut Life) -> std::result::Result<(), Breach> {
        match self.random.below(100) {
            0..70 => self.send(life)?,
            70..80 => {
                self.clock.advance(600);
                life.time += Duration::from_millis(600);
                life.service.step(life.engine.parts(), life.time);
            }
            80..88 => {
                if life.engine.flush().is_ok() && !life.disk.is_dead() {
                    self.acknowledge();
                }
            }
            _ => self.compact(life)?,
        }
        Ok(())
    }

    fn send(&mut self, life: &Life) -> std::result::Result<(), Breach> {
        self.clock.advance(self.random.below(3));
        let rows = 1 + self.random.below(8);
        let mut batch = life.engine.batch();
        let mut sent = Vec::new();
        for _ in 0..rows {
            let queue = self.random.below(u64::from(QUEUES)) as u32;
            let key = self.random.below(self.keys) as u8;
            let id = self.next_id;
            self.next_id += 1;
            let body = body(id);
            let draft = Draft {
                body: &body,
                keys: &[&key.to_string()],
                ..Draft::default()
            };
            let pushed = batch.push(TOPIC, queue, &draft, self.clock.now_ms());
            assert!(pushed.is_ok(), "a message within the limits was rejected");
            let it = Sent {
                id,
                key,
                certain: false,
                acknowledged: false,
            };
            sent.push((queue, it));
        }
        let topic = match life.engine.topic_for_append(TOPIC) {
            Ok(topic) => topic,
            Err(_) => return Ok(()),
        };
        let batches = &mut [(&*topic, &mut batch)];
        let appended = life
            .engine
            .append(batches, Atomicity::Rows, Durability::Written);
        match appended {
            Ok(appended) => {
                let certain = !life.disk.is_dead();
                for ((queue, mut it), place) in sent.into_iter().zip(&appended.rows) {
                    it.certain = certain;
                    let all = self.sent.entry(queue).or_default();
                    hold!(
                        !certain || place.offset == all.len() as u64,
                        "got offset {} instead of {}",
                        place.offset,
                        all.len()
                    );
                    all.push(it);
                }
            }
            Err(Error::Failed { appended: true, .. }) => {
                for (queue, it) in sent {
                    self.sent.entry(queue).or_default().push(it);
                }
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Everything that was appended is durable.
    fn acknowledge(&mut self) {
        for sent in self.sent.values_mut().flatten().filter(|sent| sent.certain) {
            sent.acknowledged = true;
        }
    }

    /// Compacts, while readers read between its steps.
    fn compact(&mut self, life: &Life) -> std::result::Result<(), Breach> {
        let breach = Arc::new(Mutex::new(None));
        if !life.disk.has_faults() && self.random.chance(50) {
            let (engine, model) = (Arc::clone(&life.engine), self.sent.clone());
            let (found, weak) = (Arc::clone(&breach), Arc::downgrade(&life.disk));
            life.disk.meanwhile.during_names(Box::new(move || {
                let Some(disk) = weak.upgrade() else { return };
                let read = check(&engine, &model).map_err(|breach| format!("the writer: {breach}"));
                let read = read.and_then(|()| check_beside(&disk, &model));
                if let Err(breach) = read
                    && !disk.is_dead()
                {
                    *found.lock() = Some(breach);
                }
            }));
        }
        let done = life.engine.compact(None, &mut |_, _| true);
        life.disk.meanwhile.during_names(Box::new(|| {}));
        if let Some(breach) = breach.lock().take() {
            return Err(format!("while compacting, {breach}"));
        }
        if life.disk.is_dead() || life.disk.has_faults() {
            return Ok(());
        }
        hold!(done.is_ok(), "compaction failed: {done:?}");
        check(&life.engine, &self.sent)?;
        check_beside(&life.disk, &self.sent)
    }

    /// Checks a store that was just opened, and takes what it holds for what was sent.
    fn check_opened(&mut self, engine: &PartitionLog) -> std::result::Result<(), Breach> {
        let damage = engine.report().damage();
        hold!(damage.is_empty(), "reported damage: {damage:?}");
        let verified = engine.verify(&mut |_, _| true);
        let verified = verified.map_err(|error| format!("verify failed: {error}"))?;
        let damage = verified.damage;
        hold!(damage.is_empty(), "verify found {damage:?}");
        let topic = engine.topics().get(TOPIC);
        for (queue, all) in &mut self.sent {
            let bounds = match &topic {
                None => None,
                Some(topic) => engine.bounds(topic, *queue).map_err(|it| it.to_string())?,
            };
            let end = bounds.map_or(0, |bounds| bounds.end) as usize;
            let acknowledged = all.iter().rposition(|sent| sent.acknowledged);
            let acknowledged = acknowledged.map_or(0, |last| last + 1);
            hold!(
                end >= acknowledged,
                "queue {queue} ends at {end}, acknowledged up to {acknowledged}"
            );
            all.truncate(end);
            for sent in all {
                (sent.certain, sent.acknowledged) = (true, true);
            }
        }
        check(engine, &self.sent)
    }
}

/// As [`check`], for another process that reads.
fn check_beside(disk: &Arc<SimDisk>, model: &Model) -> std::result::Result<(), Breach> {
    let options = Options {
        mode: Mode::Read,
        engine: Some(EngineKind::PartitionLog),
        isolation: Some(Isolation::ReadUncommitted),
        ..Options::default()
    };
    let machine = Machine::stepped(shared(disk));
    let engine = PartitionLog::open(&machine, Path::new(ROOT), &options);
    let engine = engine.map_err(|error| format!("a reader cannot open: {error}"))?;
    check(&engine, model).map_err(|breach| format!("a reader beside: {breach}"))
}

/// Checks that what is there was sent, and that what is missing has a later message with its key.
fn check(engine: &PartitionLog, model: &Model) -> std::result::Result<(), Breach> {
    let Some(topic) = engine.topics().get(TOPIC) else {
        hold!(model.values().all(Vec::is_empty), "the topic is missing");
        return Ok(());
    };
    for (queue, all) in model {
        let failed = |error| format!("queue {queue} cannot be read: {error}");
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, *queue, 0..u64::MAX, &filter, Check::Full);
        let mut cursor = cursor.map_err(failed)?;
        let mut rows = Rows::default();
        let mut found = BTreeSet::new();
        // Messages that are not durable may be hidden.
        let bounds = engine.bounds(&topic, *queue).map_err(failed)?;
        let end = bounds.map_or(0, |bounds| bounds.end) as usize;
        loop {
            rows.clear();
            cursor.next(64, &mut rows).map_err(failed)?;
            if rows.rows.is_empty() {
                break;
            }
            for row in &rows.rows {
                let message = rows.message(row).ok_or("a row without a message")?;
                let offset = message.record().queue_offset() as u64;
                let Some(sent) = all.get(offset as usize) else {
                    return Err(format!("queue {queue} has {offset}, which was never sent"));
                };
                let there = message.body().map_err(failed)?;
                hold!(
                    there == body(sent.id),
                    "the message at {offset} of queue {queue} differs from the one that was sent"
                );
                hold!(found.insert(offset), "queue {queue} has {offset} twice");
            }
        }
        let seen = all.get(..end.min(all.len())).unwrap_or_default();
        check_missing(seen, &found).map_err(|breach| format!("queue {queue}: {breach}"))?;
    }
    let damage = engine.report().damage();
    hold!(damage.is_empty(), "reported damage: {damage:?}");
    Ok(())
}

fn check_missing(all: &[Sent], found: &BTreeSet<u64>) -> std::result::Result<(), Breach> {
    let mut later = BTreeSet::new();
    for (offset, sent) in all.iter().enumerate().rev() {
        if found.contains(&(offset as u64)) {
            later.insert(sent.key);
        } else {
            hold!(
                !sent.certain || later.contains(&sent.key),
                "the message at {offset} is missing, and no later one has its key"
            );
        }
    }
    Ok(())
}
