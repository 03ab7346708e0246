//! Stories of a partition log: what was acknowledged outlives every crash, in each partition by
//! itself, and each partition is a beginning of what was sent to it, without holes. Retention takes
//! the first messages away for good. What was archived stays: an archive is never ahead of its
//! store.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{
    Breach, Enlisted, Fails, Life, ROOT, Sent, Stepped, Story, World, acknowledged, body, hold,
    undamaged,
};
use super::random::Random;
use super::rare::{new_disk, next, said};
use crate::clock::Clock;
use crate::disk::{FileSystem, Synced};
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Atomicity, Check, Durability, Engine, Filter, Lingering, QueueLogs, Rows};
use crate::error::{Error, Result as Done};
use crate::machine::Machine;
use crate::options::{Compression, EngineKind, Flush, Mode, Options};
use crate::record::{Batch, Draft};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const TOPICS: [&str; 2] = ["orders", "bills"];
const QUEUES: u32 = 2;
/// Bodies are shorter than this.
const BODY_MAX: u64 = 900;

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
    starts: BTreeMap<Place, u64>,
    /// The highest first offset that was asked for.
    asked: BTreeMap<Place, u64>,
    /// The offsets up to which partitions are archived.
    archived: BTreeMap<Place, usize>,
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
        // What lingered died with the process.
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

    /// Checks a store that was just opened, and takes what it holds for what was sent.
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
        // What lingered in a queue precedes what other senders have appended to it.
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
    /// Deletes the first messages of a partition.
    fn delete(&mut self, life: &Life<PartitionLog>) {
        let places: Vec<Place> = self.sent.keys().copied().collect();
        if places.is_empty() || life.engine.flush(&mut || true).is_err() || life.disk.is_dead() {
            return;
        }
        let place = self.world.random.pick(&places);
        let Some(topic) = life.engine.topics().get(place.0) else {
            return;
        };
        let Ok(Some(bounds)) = life.engine.bounds(&topic, place.1) else {
            return;
        };
        let until = self.world.random.below(bounds.end + 1);
        let asked = self.asked.entry(place).or_default();
        *asked = until.max(*asked);
        // Of what a removal that was stopped has left, the next one or the next opening takes care.
        let stops = self.world.random.chance(30);
        let starts = [(place.1, until)];
        let done = life.engine.delete_before(&topic, &starts, &mut || !stops);
        if done.is_ok() && !life.disk.is_dead() {
            let start = self.starts.entry(place).or_default();
            *start = until.max(*start);
        }
        self.see_starts(life);
    }

    /// Archives complete segments, from this process or another.
    fn archive(&mut self, life: &Life<PartitionLog>) -> Result<(), Breach> {
        let is_beside = self.world.random.chance(50);
        let options = Options {
            mode: Mode::Read,
            engine: Some(EngineKind::PartitionLog),
            ..Options::default()
        };
        let surveyed = || -> Done<Vec<(Place, usize)>> {
            let reader = match is_beside {
                true => {
                    let machine = Machine::stepped(shared(&life.disk));
                    Some(PartitionLog::open(&machine, Path::new(ROOT), &options)?)
                }
                false => None,
            };
            let engine = reader.as_ref().unwrap_or(&life.engine);
            let mut found = Vec::new();
            for segment in engine.sealed_segments(None)? {
                let survey = engine.survey_segment(&segment, None)?;
                let name = TOPICS.iter().find(|name| ***name == *segment.topic);
                if let Some(name) = name.filter(|_| survey.table.holes.is_empty()) {
                    found.push(((*name, segment.queue), segment.end as usize));
                }
            }
            Ok(found)
        };
        let surveyed = surveyed();
        if life.disk.is_dead() {
            return Ok(());
        }
        hold!(
            surveyed.is_ok() || life.disk.has_faults(),
            "archiving failed: {surveyed:?}"
        );
        for (place, end) in surveyed.unwrap_or_default() {
            let known = self.archived.entry(place).or_default();
            *known = end.max(*known);
        }
        // As `store.archive` records it, or dies before.
        if self.world.random.chance(80) {
            let offsets = self.archived.iter();
            let offsets = offsets.map(|((topic, queue), end)| format!("\"{topic}-{queue}\":{end}"));
            let offsets: Vec<String> = offsets.collect();
            let text = format!("{{\"targets\":{{\"a\":{{{}}}}}}}", offsets.join(","));
            let _ = note(&life.disk, &text);
        }
        Ok(())
    }

    /// Notes the first offsets that readers see: no later reader may see a message before them.
    fn see_starts(&mut self, life: &Life<PartitionLog>) {
        if life.disk.is_dead() {
            return;
        }
        for place in self.sent.keys() {
            let topic = life.engine.topics().get(place.0);
            let bounds = topic.and_then(|topic| life.engine.bounds(&topic, place.1).ok()?);
            let start = self.starts.entry(*place).or_default();
            *start = bounds.map_or(0, |bounds| bounds.start).max(*start);
        }
    }

    /// Encodes messages of one topic, each for some queue.
    pub fn encode(&mut self, rows: u64, engine: &PartitionLog) -> (Batch, Vec<Sent>) {
        let topic = self.world.random.pick(&TOPICS);
        let mut batch = engine.form().batch();
        let mut sent = Vec::new();
        // It may have come back with fewer, if nothing in it was durable.
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

    /// Takes the messages that lingered and are in the log, or may be.
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

    /// What was appended up to `durable` outlives every crash.
    pub fn acknowledge(&mut self, durable: u64) {
        let all = self.sent.values_mut().flatten();
        for sent in all.filter(|sent| sent.certain && sent.end <= durable) {
            sent.acknowledged = true;
        }
    }

    /// Compares a partition with what was sent to it. Returns its next offset.
    fn check_all(&self, engine: &PartitionLog, place: Place) -> Result<usize, Breach> {
        let failed = |error| format!("{place:?} cannot be read: {error}");
        let Some(topic) = engine.topics().get(place.0) else {
            return Ok(0);
        };
        let Some(bounds) = engine.bounds(&topic, place.1).map_err(failed)? else {
            return Ok(0);
        };
        let seen = self.starts.get(&place).copied().unwrap_or_default();
        let asked = self.asked.get(&place).copied().unwrap_or_default();
        let start = bounds.start;
        hold!(
            start >= seen,
            "{place:?} begins at {start}, and began at {seen} before"
        );
        hold!(
            start <= asked || self.options.retires(),
            "{place:?} begins at {start} instead of {asked}"
        );
        let archived = self.archived.get(&place).copied().unwrap_or_default();
        hold!(
            start <= asked.max(archived as u64) || !self.options.keep_unarchived,
            "{place:?} begins at {start}, and is archived up to {archived}"
        );
        let all = &self.sent[&place];
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, place.1, bounds.clone(), &filter, Check::Full);
        let mut cursor = cursor.map_err(failed)?;
        let (mut rows, mut found) = (Rows::default(), start as usize);
        while cursor.refill(64, &mut rows).map_err(failed)? {
            for row in &rows.rows {
                let message = rows.message(row).ok_or("a row without a message")?;
                let Some(sent) = all.get(found) else {
                    return Err(format!("message {found} of {place:?} was never sent"));
                };
                let there = message.body().map_err(failed)?;
                hold!(
                    there == body(sent.id, None, BODY_MAX),
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
            "{place:?} ends at {}, and has messages up to {found}",
            bounds.end
        );
        Ok(found)
    }

    /// Checks what readers see of a partition while it is written.
    fn check_readable(&self, engine: &PartitionLog, place: Place) -> Result<(), Breach> {
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

/// Records archives as the program does that made them, which is none of the store's.
fn note(disk: &SimDisk, text: &str) -> std::io::Result<()> {
    let path = Path::new(ROOT).join("forebay.archived");
    let fresh = path.with_extension("archived.new");
    disk.write_at(&fresh, 0, text.as_bytes())?;
    disk.set_len(&fresh, text.len() as u64)?;
    disk.sync(Synced::File(&fresh))?;
    disk.rename(&fresh, &path)?;
    disk.sync(Synced::Directory(Path::new(ROOT)))
}

/// A process begins the first segment of a partition, does not use it, removes it, and dies before
/// that is durable. The next one opens the store and stops cleanly, and the power fails: the
/// segment does not come back.
pub fn unlinked_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Partitions::new(seed);
    story.options.flush = Some(Flush::Async);
    let disk = new_disk(seed, Stop::Process);
    let open = |disk| story.open(&story.world.machine(disk)).map_err(said);
    let engine = open(&disk)?;
    engine.topic_for_append(TOPICS[0]).map_err(said)?;
    let folder = Path::new(ROOT).join(format!("{}-0", TOPICS[0]));
    let stray = folder.join(format!("{:020}.log", 0));
    let created = disk.create(&stray, 4096);
    created.map_err(|error| error.to_string())?;
    let synced = disk.sync(Synced::Directory(&folder));
    synced.map_err(|error| error.to_string())?;
    let removed = disk.unlink(&stray);
    removed.map_err(|error| error.to_string())?;
    let disk = next(&disk, Stop::Power);
    drop(engine);
    open(&disk)?.close().map_err(said)?;
    let disk = next(&disk, Stop::Power);
    let engine = open(&disk)?;
    let found = disk.contents().contains_key(&stray);
    hold!(
        !found && engine.report().recovery().clean,
        "the segment has come back"
    );
    story.check(&engine)
}

/// The power fails during a step of retention, so that any of the segments before the first offset
/// are left: what follows is still there.
pub fn removed_in_part(seed: u64) -> Result<(), Breach> {
    let mut story = Partitions::new(seed);
    story.options.segment_bytes = Some(4096);
    (story.options.retention_bytes, story.options.keep_unarchived) = (Some(1), false);
    (story.options.linger, story.options.batch_bytes) = (Duration::ZERO, None);
    let disk = new_disk(seed, Stop::Power);
    let engine = story.open(&story.world.machine(&disk)).map_err(said)?;
    let mut life = Life::new(&disk, engine);
    for _ in 0..12 {
        story.send(&mut life, 6)?;
    }
    if story.world.random.chance(30) {
        life.engine.roll().map_err(said)?;
    }
    life.engine.flush(&mut || true).map_err(said)?;
    story.take_note(&mut life, false)?;
    disk.end_within(1 + story.world.random.below(80));
    life.time += Duration::from_secs(2);
    let wall_ms = story.world.clock.now_ms();
    life.engine.step_retention(wall_ms, life.time);
    let disk = next(&disk, Stop::Power);
    drop(life);
    let opened = story.open(&story.world.machine(&disk)).map_err(said)?;
    story.world.kept = false;
    story.check(&opened)
}

/// A topic that was created explicitly has all its queues after the power fails.
pub fn created_explicitly(seed: u64) -> Result<(), Breach> {
    const CREATED: u32 = 5;
    let story = Partitions::new(seed);
    let disk = new_disk(seed, Stop::Power);
    let open = |disk| story.open(&story.world.machine(disk)).map_err(said);
    let engine = open(&disk)?;
    engine.topic_for_append(TOPICS[0]).map_err(said)?;
    let created = engine.create_topic(TOPICS[0], CREATED, Durability::Flushed);
    created.map_err(said)?;
    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open(&disk)?;
    let topic = engine.topics().get(TOPICS[0]).ok_or("the topic is gone")?;
    let queues = engine.queues(&topic);
    hold!(
        queues.iter().copied().eq(0..CREATED),
        "the topic has the queues {queues:?}"
    );
    Ok(())
}
