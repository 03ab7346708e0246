//! Stories of a partition log. Acknowledged messages outlive every crash, in each partition by
//! itself, and each partition holds the first of the messages sent to it, without holes. Messages
//! that retention has removed never come back. An archive is never ahead of its store.
//!
//! How first messages are deleted and archived is in `partition_removal.rs`, how a partition is
//! compared with what was sent in `partition_checks.rs`.

use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{
    Breach, Enlisted, Fails, Life, ROOT, Sent, Stepped, Story, World, acknowledged, body, hold,
    undamaged,
};
use super::random::Random;
use crate::clock::Clock;
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Atomicity, Engine, Lingering, QueueLogs};
use crate::error::{Error, Result as Done};
use crate::machine::Machine;
use crate::options::{Compression, EngineKind, Flush, Options};
use crate::record::{Batch, Draft};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const TOPICS: [&str; 2] = ["orders", "bills"];
const QUEUES: u32 = 2;
/// Bodies are shorter than this.
pub const BODY_MAX: u64 = 900;

const STOPS: [Stop; 6] = [
    Stop::Power,
    Stop::Power,
    Stop::Device,
    Stop::Process,
    Stop::Process,
    Stop::Moved,
];

/// Topic and queue.
pub type Place = (&'static str, u32);

/// A store over several lives.
pub struct Partitions {
    pub world: World,
    pub options: Options,
    pub sent: BTreeMap<Place, Vec<Sent>>,
    /// The first offsets that were seen, or are durable.
    pub starts: BTreeMap<Place, u64>,
    /// The highest first offset that was requested.
    pub asked: BTreeMap<Place, u64>,
    /// The offsets up to which partitions are archived.
    pub archived: BTreeMap<Place, usize>,
    /// Messages that linger, in their order in each partition.
    lingering: Vec<(Lingering, Sent)>,
    /// Where the messages of atomic batches are, since the store was opened.
    pub whole: Vec<Vec<(Place, usize)>>,
}

impl Story for Partitions {
    type Store = Arc<PartitionLog>;

    fn new(seed: u64) -> Partitions {
        let mut random = Random::new(seed);
        let codecs = [Compression::None, Compression::None, Compression::Lz4];
        let lingers = random.chance(40);
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
            linger: Duration::from_secs(u64::from(lingers)),
            batch_bytes: lingers.then(|| random.pick(&[0, 1500, 16384])),
            retention: random.chance(10).then_some(Duration::from_secs(5)),
            retention_bytes: random.chance(25).then(|| random.pick(&[1, 9000])),
            keep_unarchived: random.chance(50),
            ..Options::default()
        };
        Partitions {
            world: World::new(random),
            options,
            sent: BTreeMap::new(),
            starts: BTreeMap::new(),
            asked: BTreeMap::new(),
            archived: BTreeMap::new(),
            lingering: Vec::new(),
            whole: Vec::new(),
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn lives(&mut self) -> u64 {
        2 + self.world.random.below(6)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        self.world.faults(ahead, &STOPS, 160, Fails::SOME)
    }

    fn live(
        &mut self,
        disk: &mut Arc<SimDisk>,
        _: bool,
    ) -> Result<Option<Arc<PartitionLog>>, Breach> {
        // Lingering messages died with the process.
        self.lingering.clear();
        self.lived(disk)
    }
}

impl Stepped for Partitions {
    type Engine = PartitionLog;
    const STEPS: u64 = 40;

    fn open(&self, machine: &Machine) -> Done<PartitionLog> {
        PartitionLog::open(machine, Path::new(ROOT), &self.options)
    }

    /// Checks a store that was just opened, and adopts its contents as the sent messages.
    fn check(&mut self, engine: &PartitionLog) -> Result<(), Breach> {
        undamaged(engine)?;
        let places: Vec<Place> = self.sent.keys().copied().collect();
        let mut ends = BTreeMap::new();
        for place in places {
            let found = self.check_all(engine, place)?;
            ends.insert(place, found);
            let all = &self.sent[&place];
            let acknowledged = acknowledged(all);
            hold!(
                found >= acknowledged,
                "{found} messages in {place:?}, {acknowledged} acknowledged"
            );
            let certain = all.iter().filter(|sent| sent.certain).count();
            hold!(
                !self.world.kept || found >= certain,
                "{found} of {certain} in {place:?} survived the process"
            );
            let archived = self.archived.get(&place).copied().unwrap_or_default();
            hold!(
                found >= archived,
                "{found} messages in {place:?}, {archived} archived"
            );
            if let Some(all) = self.sent.get_mut(&place) {
                all.truncate(found);
                for sent in all {
                    (sent.certain, sent.acknowledged, sent.end) = (true, true, 0);
                }
            }
        }
        for batch in std::mem::take(&mut self.whole) {
            let there = batch.iter().filter(|(place, at)| *at < ends[place]);
            let (there, all) = (there.count(), batch.len());
            hold!(
                there == 0 || there == all,
                "{there} of {all} messages of an atomic batch survived"
            );
        }
        Ok(())
    }

    fn work(&mut self, life: &mut Life<PartitionLog>) -> Result<(), Breach> {
        match self.world.random.below(100) {
            0..40 if self.options.linger.is_zero() => self.send(life, 1)?,
            0..20 => self.send(life, 1)?,
            20..35 => self.push(life)?,
            35..40 => {
                life.engine.step_linger();
                self.land(life)?;
                hold!(self.lingering.is_empty(), "messages linger for too long");
            }
            40..58 => {
                let rows = 2 + self.world.random.below(12);
                self.send(life, rows)?;
            }
            58..72 => {
                if self.world.random.chance(40) {
                    life.send_during_sync(self.encode(1, &life.engine));
                }
                life.engine.step_group_commit();
            }
            72..86 => {
                let ms = self.world.random.pick(&[1, 600, 1500, 12_000]);
                life.pass(ms, &self.world.clock);
            }
            86..90 => {
                let done = match self.world.random.chance(40) {
                    true => life.engine.roll().map(drop),
                    false => life.engine.flush(&mut || true).map(drop),
                };
                self.land(life)?;
                if done.is_ok() && !life.disk.is_dead() {
                    let left = self.lingering.len();
                    hold!(
                        left == 0,
                        "a flush or a roll left {left} messages that linger"
                    );
                    let durable = life.engine.durable_position();
                    self.acknowledge(durable);
                    let all = self.sent.values().flatten();
                    let open = all
                        .filter(|sent| sent.certain && !sent.acknowledged)
                        .count();
                    hold!(
                        open == 0,
                        "a flush or a roll left {open} messages that are not durable"
                    );
                }
            }
            90..93 => {
                life.time += Duration::from_secs(2);
                let wall_ms = self.world.clock.now_ms();
                life.engine.step_retention(wall_ms, life.time);
                self.see_starts(life);
            }
            93..95 => self.delete(life),
            95..97 => self.archive(life)?,
            _ => {
                let places: Vec<Place> = self.sent.keys().copied().collect();
                if !places.is_empty() && !life.disk.has_faults() {
                    let place = self.world.random.pick(&places);
                    let read = self.check_readable(&life.engine, place);
                    if !life.disk.is_dead() {
                        read?;
                    }
                }
            }
        }
        Ok(())
    }

    fn take_note(&mut self, life: &mut Life<PartitionLog>, is_closed: bool) -> Result<(), Breach> {
        // Messages that lingered in a queue precede those that other senders have appended to it.
        self.land(life)?;
        for enlisted in life.take_meanwhile() {
            self.take(life, enlisted)?;
        }
        self.acknowledge(life.take_acknowledged());
        if !life.disk.is_dead() {
            self.acknowledge(match is_closed {
                true => u64::MAX,
                false => life.engine.durable_position(),
            });
        }
        Ok(())
    }
}

impl Partitions {
    /// Encodes messages of one topic, each for some queue.
    pub fn encode(&mut self, rows: u64, engine: &PartitionLog) -> (Batch, Vec<Sent>) {
        let topic = self.world.random.pick(&TOPICS);
        let mut batch = engine.form().batch();
        let mut sent = Vec::new();
        // The topic may have come back with fewer queues, if nothing in it was durable.
        let known = engine.topics().get(topic);
        let queues = known.map_or(QUEUES, |topic| topic.write_queues());
        for _ in 0..rows {
            let queue = self.world.random.below(queues.into()) as u32;
            let id = self.world.next_id();
            let draft = Draft {
                body: &body(id, None, BODY_MAX),
                ..Draft::default()
            };
            sent.push(self.world.push(&mut batch, id, (topic, queue), &draft));
        }
        (batch, sent)
    }

    pub fn send(&mut self, life: &mut Life<PartitionLog>, rows: u64) -> Result<(), Breach> {
        self.world.clock.advance(self.world.random.below(3));
        let encoded = self.encode(rows, &life.engine);
        let waits = self.world.random.chance(50);
        let is_whole = rows > 1 && self.world.random.chance(50);
        let atomicity = match is_whole {
            true => Atomicity::Whole,
            false => Atomicity::Rows,
        };
        let enlisted = life.send(encoded, atomicity, waits);
        self.land(life)?;
        // An atomic batch may wait for a sync of the one before it, during which others send.
        for earlier in life.take_meanwhile() {
            self.take(life, earlier)?;
        }
        let places: Vec<Place> = enlisted.0.iter().map(|sent| sent.queue).collect();
        let before = |place: &Place| self.sent.get(place).map_or(0, Vec::len);
        let mut nexts: BTreeMap<Place, usize> = BTreeMap::new();
        let mut batch = Vec::new();
        for place in places {
            let next = nexts.entry(place).or_insert_with(|| before(&place));
            batch.push((place, *next));
            *next += 1;
        }
        if is_whole {
            self.whole.push(batch);
        }
        self.take(life, enlisted)
    }

    /// Sends a message that lingers.
    fn push(&mut self, life: &mut Life<PartitionLog>) -> Result<(), Breach> {
        let (_, sent) = self.encode(1, &life.engine);
        let place = sent[0].queue;
        let draft = Draft {
            body: &body(sent[0].id, None, BODY_MAX),
            ..Draft::default()
        };
        let now = self.world.clock.now_ms();
        let push = || -> Done<Lingering> {
            let topic = life.engine.topic_for_append(place.0)?;
            let Some(linger) = life.engine.linger() else {
                unreachable!("only a store whose messages linger comes here")
            };
            linger.push(&topic, place.1, &draft, now)
        };
        if let Ok(lingering) = push() {
            let pushed = sent.into_iter().map(|sent| (lingering.clone(), sent));
            self.lingering.extend(pushed);
        }
        self.land(life)
    }

    /// Adds the messages that lingered and may now be in the log.
    fn land(&mut self, life: &mut Life<PartitionLog>) -> Result<(), Breach> {
        let is_open = |it: &(Lingering, Sent)| it.0.appended().is_none() && !it.0.waiter.is_done();
        let all = std::mem::take(&mut self.lingering);
        let (open, landed): (Vec<_>, Vec<_>) = all.into_iter().partition(is_open);
        self.lingering = open;
        for (lingering, mut sent) in landed {
            let outcome = lingering.waiter.wait(Duration::ZERO);
            match (lingering.appended(), outcome) {
                (Some((place, appended)), _) => {
                    (sent.offset, sent.position) = (place.offset, place.position);
                    (sent.end, sent.certain) = (appended.end, !life.disk.is_dead());
                    self.take(life, (vec![sent], Some(lingering.waiter)))?;
                }
                (None, Some(Err(error)))
                    if matches!(*error, Error::Failed { appended: true, .. }) =>
                {
                    (sent.position, sent.end) = (u64::MAX, u64::MAX);
                    self.take(life, (vec![sent], None))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds messages that may be in the log.
    fn take(&mut self, life: &mut Life<PartitionLog>, enlisted: Enlisted) -> Result<(), Breach> {
        let (sent, waiter) = enlisted;
        let end = sent.first().map_or(0, |sent| sent.end);
        for sent in sent {
            let all = self.sent.entry(sent.queue).or_default();
            hold!(
                !sent.certain || sent.offset == all.len() as u64,
                "got offset {} instead of {}",
                sent.offset,
                all.len()
            );
            all.push(sent);
        }
        life.wait(end, waiter);
        Ok(())
    }

    /// Notes that messages appended up to `durable` outlive every crash.
    pub fn acknowledge(&mut self, durable: u64) {
        let all = self.sent.values_mut().flatten();
        for sent in all.filter(|sent| sent.certain && sent.end <= durable) {
            sent.acknowledged = true;
        }
    }
}
