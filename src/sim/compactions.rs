//! Stories of a partition log that is compacted. Whenever a crash comes, a message is missing only
//! if a later one with its key is there, and every message has the offset at which it was sent. The
//! same holds for readers during the compaction, in the same process and in another.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{
    Breach, Fails, Life, ROOT, Sent, Stepped, Story, World, acknowledged, body, hold, undamaged,
};
use super::random::Random;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Atomicity, Check, Engine, Filter, QueueLogs, Rows};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::options::{Compression, EngineKind, Flush, Isolation, Mode, Options};
use crate::record::Draft;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const TOPIC: &str = "state";
const QUEUES: u32 = 2;
/// Bodies are shorter than this.
const BODY_MAX: u64 = 500;
const STOPS: [Stop; 5] = [
    Stop::Power,
    Stop::Power,
    Stop::Power,
    Stop::Device,
    Stop::Process,
];

const FAILS: Fails<'_> = Fails {
    calls: &[0, 0, 0, 0, 10],
    maps: false,
};

/// What was sent.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The messages of each queue. The offset of a message is its number there.
    sent: BTreeMap<u32, Vec<Sent>>,
    /// The key of each message.
    keys: Vec<u8>,
}

/// A store over several lives.
pub struct Compactions {
    world: World,
    options: Options,
    /// Number of keys.
    keys: u64,
    model: Model,
}

impl Story for Compactions {
    type Store = Arc<PartitionLog>;

    fn new(seed: u64) -> Compactions {
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
        Compactions {
            keys: random.pick(&[1, 3, 12, 100]),
            world: World::new(random),
            options,
            model: Model::default(),
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn lives(&mut self) -> u64 {
        2 + self.world.random.below(5)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        self.world.faults(ahead, &STOPS, 260, FAILS)
    }

    fn live(
        &mut self,
        disk: &mut Arc<SimDisk>,
        _: bool,
    ) -> Result<Option<Arc<PartitionLog>>, Breach> {
        self.lived(disk)
    }
}

impl Stepped for Compactions {
    type Engine = PartitionLog;
    const STEPS: u64 = 60;

    fn open(&self, machine: &Machine) -> Done<PartitionLog> {
        PartitionLog::open(machine, Path::new(ROOT), &self.options)
    }

    /// Checks a store that was just opened, and adopts its contents as the sent messages.
    fn check(&mut self, engine: &PartitionLog) -> Result<(), Breach> {
        undamaged(engine)?;
        let topic = engine.topics().get(TOPIC);
        for (queue, all) in &mut self.model.sent {
            let bounds = match &topic {
                None => None,
                Some(topic) => engine.bounds(topic, *queue).map_err(|it| it.to_string())?,
            };
            let end = bounds.map_or(0, |bounds| bounds.end) as usize;
            let acknowledged = acknowledged(all);
            hold!(
                end >= acknowledged,
                "queue {queue} ends at {end}, acknowledged up to {acknowledged}"
            );
            all.truncate(end);
            for sent in all {
                (sent.certain, sent.acknowledged) = (true, true);
            }
        }
        check(engine, &self.model)
    }

    fn work(&mut self, life: &mut Life<PartitionLog>) -> Result<(), Breach> {
        match self.world.random.below(100) {
            0..70 => self.send(life)?,
            70..80 => life.pass(600, &self.world.clock),
            80..88 => {
                if life.engine.flush(&mut || true).is_ok() && !life.disk.is_dead() {
                    self.acknowledge();
                }
            }
            _ => self.compact(life)?,
        }
        Ok(())
    }

    fn take_note(&mut self, life: &mut Life<PartitionLog>, is_closed: bool) -> Result<(), Breach> {
        if is_closed && !life.disk.is_dead() {
            self.acknowledge();
        }
        Ok(())
    }
}

impl Compactions {
    fn send(&mut self, life: &Life<PartitionLog>) -> Result<(), Breach> {
        let world = &mut self.world;
        world.clock.advance(world.random.below(3));
        let rows = 1 + world.random.below(8);
        let mut batch = life.engine.form().batch();
        let mut sent = Vec::new();
        // The topic may have come back with fewer queues, if nothing in it was durable.
        let known = life.engine.topics().get(TOPIC);
        let queues = known.map_or(QUEUES, |topic| topic.write_queues());
        for _ in 0..rows {
            let queue = world.random.below(queues.into()) as u32;
            let key = world.random.below(self.keys) as u8;
            let id = world.next_id();
            let draft = Draft {
                body: &body(id, None, BODY_MAX),
                keys: &[&key.to_string()],
                ..Draft::default()
            };
            sent.push(world.push(&mut batch, id, (TOPIC, queue), &draft));
            self.model.keys.push(key);
        }
        let (sent, _) = life.send((batch, sent), Atomicity::Rows, false);
        for sent in sent {
            let all = self.model.sent.entry(sent.queue.1).or_default();
            hold!(
                !sent.certain || sent.offset == all.len() as u64,
                "got offset {} instead of {}",
                sent.offset,
                all.len()
            );
            all.push(sent);
        }
        Ok(())
    }

    /// Everything that was appended is durable.
    fn acknowledge(&mut self) {
        let all = self.model.sent.values_mut().flatten();
        for sent in all.filter(|sent| sent.certain) {
            sent.acknowledged = true;
        }
    }

    /// Compacts, while readers read between its steps.
    fn compact(&mut self, life: &Life<PartitionLog>) -> Result<(), Breach> {
        let breach = Arc::new(Mutex::new(None));
        if !life.disk.has_faults() && self.world.random.chance(50) {
            let (engine, model) = (Arc::clone(&life.engine), self.model.clone());
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
        check(&life.engine, &self.model)?;
        check_beside(&life.disk, &self.model)
    }
}

/// As [`check`], for another process that reads.
fn check_beside(disk: &Arc<SimDisk>, model: &Model) -> Result<(), Breach> {
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

/// Checks that each message was sent, and that each missing one has a later one with its key.
fn check(engine: &PartitionLog, model: &Model) -> Result<(), Breach> {
    let Some(topic) = engine.topics().get(TOPIC) else {
        hold!(
            model.sent.values().all(Vec::is_empty),
            "the topic is missing"
        );
        return Ok(());
    };
    // A queue may be missing if nothing in it was durable.
    for (queue, all) in model.sent.iter().filter(|(_, all)| !all.is_empty()) {
        let failed = |error| format!("queue {queue} cannot be read: {error}");
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, *queue, 0..u64::MAX, &filter, Check::Full);
        let mut cursor = cursor.map_err(failed)?;
        let mut rows = Rows::default();
        let mut found = BTreeSet::new();
        // Messages that are not durable may be hidden.
        let bounds = engine.bounds(&topic, *queue).map_err(failed)?;
        let end = bounds.map_or(0, |bounds| bounds.end) as usize;
        while cursor.refill(64, &mut rows).map_err(failed)? {
            for row in &rows.rows {
                let message = rows.message(row).ok_or("a row without a message")?;
                let offset = message.record().queue_offset() as u64;
                let Some(sent) = all.get(offset as usize) else {
                    return Err(format!("queue {queue} has {offset}, which was never sent"));
                };
                let there = message.body().map_err(failed)?;
                hold!(
                    there == body(sent.id, None, BODY_MAX),
                    "the message at {offset} of queue {queue} differs from the one that was sent"
                );
                hold!(found.insert(offset), "queue {queue} has {offset} twice");
            }
        }
        let seen = all.get(..end.min(all.len())).unwrap_or_default();
        let checked = check_missing(seen, &model.keys, &found);
        checked.map_err(|breach| format!("queue {queue}: {breach}"))?;
    }
    let damage = engine.report().damage();
    hold!(damage.is_empty(), "reported damage: {damage:?}");
    Ok(())
}

fn check_missing(all: &[Sent], keys: &[u8], found: &BTreeSet<u64>) -> Result<(), Breach> {
    let mut later = BTreeSet::new();
    for (offset, sent) in all.iter().enumerate().rev() {
        let key = keys[sent.id as usize];
        if found.contains(&(offset as u64)) {
            later.insert(key);
        } else {
            hold!(
                !sent.certain || later.contains(&key),
                "the message at {offset} is missing, and no later one has its key"
            );
        }
    }
    Ok(())
}
