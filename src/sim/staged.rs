//! Stories of rows that are staged for a partition log and committed: a driver commits one batch
//! after another, the writer takes them up, others send meanwhile, and the machine stops at any
//! call of the disk. After its own crash the driver repeats the batch that was not acknowledged,
//! with the same rows and other stages.
//!
//! The law: a row is in the log at most once, and acknowledged rows are there, until retention has
//! removed them.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, Story, World, hold, undamaged};
use super::random::Random;
use super::rare::{new_disk, said};
use crate::clock::Clock;
use crate::disk::FileSystem;
use crate::engine::directory::names::INTAKE;
use crate::engine::directory::page::Word;
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Atomicity, Check, Durability, Engine, Filter, QueueLogs, Rows};
use crate::error::{Error, Result as Done};
use crate::options::{Compression, EngineKind, Flush, Options};
use crate::record::Draft;
use crate::region::{Access, PAGE};
use crate::stages::commit::{publish_cut, state};
use crate::stages::place::StagePlace;
use crate::stages::words::Words;
use crate::stages::{
    Commit, CommitKind, CommitState, Conflict, Contents, Published, Stage, Stager,
};
use crate::store::Opened;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const QUERY: &str = "query-1";
/// Topics of the rows.
const TOPICS: [&str; 3] = ["orders", "bills", "mail.sent"];
/// Topic of messages that are not part of a commit.
const NOISE: &str = "noise";
/// Bytes of a part.
const PART_LEN: u64 = 900;
/// Bytes of a slice.
const WRITE_LEN: usize = 300;

/// Number of a topic, queue and offset.
type Place = (usize, u32, u64);

/// A partition log and a driver that commits to it.
pub struct Staged {
    world: World,
    options: Options,
    /// The batch that is not acknowledged yet.
    batch: u64,
    /// Its stages, as far as the driver knows them.
    staged: Vec<Stage>,
    /// After publishing: the manifest that the driver waits for.
    published: Option<Published>,
    /// Rows of each batch, acknowledged or not.
    rows: Vec<u64>,
    /// Where rows were seen. A crash removes those that were not durable.
    seen: BTreeMap<(u64, u64), Place>,
    /// A violation that the driver saw.
    wrong: Option<Breach>,
}

impl Story for Staged {
    /// No life keeps its store.
    type Store = ();

    fn new(seed: u64) -> Staged {
        let mut random = Random::new(seed);
        let codecs = [Compression::None, Compression::None, Compression::Lz4];
        let options = Options {
            engine: Some(EngineKind::PartitionLog),
            flush: Some(random.pick(&[Flush::Sync, Flush::Async])),
            segment_bytes: Some(random.pick(&[4096, 4096, 16384])),
            compression: Some(random.pick(&codecs)),
            default_queues: Some(2),
            retention_bytes: random.chance(40).then(|| random.pick(&[1, 5000])),
            ..Options::default()
        };
        Staged {
            world: World::new(random),
            options,
            batch: 0,
            staged: Vec::new(),
            published: None,
            rows: Vec::new(),
            seen: BTreeMap::new(),
            wrong: None,
        }
    }

    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    fn lives(&mut self) -> u64 {
        3 + self.world.random.below(4)
    }

    fn faults(&mut self, ahead: u64) -> Faults {
        let random = &mut self.world.random;
        Faults {
            stop: random.pick(&[Stop::Power, Stop::Device, Stop::Process, Stop::Moved]),
            dies_at: (ahead > 1).then(|| 1 + random.below(300)),
            failing_syncs: 0,
            full: 0,
            failing_calls: 0,
            failing_map: None,
            written_back: random.pick(&[0, 2]),
        }
    }

    fn live(&mut self, disk: &mut Arc<SimDisk>, is_last: bool) -> Result<Option<()>, Breach> {
        self.lived(disk, is_last)?;
        let lost = matches!(disk.faults().stop, Stop::Power | Stop::Device);
        if lost || self.world.random.chance(40) {
            self.forget();
        }
        Ok(None)
    }
}

impl Staged {
    /// The driver dies, or its attempt at the batch has failed.
    fn forget(&mut self) {
        self.staged.clear();
        self.published = None;
    }

    /// A task makes the page for words while another one does, and the writer finds the page that
    /// is there first. All three use one page from then on.
    pub fn begun_at_once(seed: u64) -> Result<(), Breach> {
        let mut random = Random::new(seed);
        let disk = new_disk(seed, Stop::Process);
        let root = Path::new(ROOT);
        disk.create_directory(root)
            .map_err(|error| error.to_string())?;
        // What a power loss may have left of a page.
        if let Some(len) = random.pick(&[None, None, Some(0), Some(100), Some(PAGE)]) {
            let path = root.join(INTAKE);
            let written = disk.write_at(&path, 0, &vec![0; len]);
            written.map_err(|error| error.to_string())?;
        }
        let place = StagePlace::flat(root);
        let writer = Arc::new((Words::default(), OnceLock::new()));
        let meanwhile = {
            let (disk, place) = (Arc::downgrade(&disk), place.clone());
            let writer = Arc::clone(&writer);
            move || {
                let (words, told) = &*writer;
                let disk = disk.upgrade().unwrap();
                place.make(&*disk, "query-2").unwrap();
                assert!(words.find(&*disk, &place).unwrap());
                words.notify(Word::Taken);
                told.set(words.read(Word::Taken)).unwrap();
            }
        };
        disk.meanwhile
            .after_calls(random.below(10), Box::new(meanwhile));
        place.make(&*disk, QUERY).map_err(said)?;
        let (words, told) = &*writer;
        if let Some(told) = told.get() {
            let read = words.read(Word::Taken);
            hold!(read == *told, "a word changed from {told} to {read}");
        }
        let found = words.find(&*disk, &place).map_err(said)?;
        let page = place.page(&*disk, Access::ReadWrite).map_err(said)?;
        let Some(page) = page.filter(|_| found) else {
            return Err("there is no page".to_owned());
        };
        let seen = words.read(Word::Pending);
        page.notify(Word::Pending);
        hold!(
            words.read(Word::Pending) != seen,
            "a driver notifies another page than the writer sleeps on"
        );
        let left = disk.contents();
        let left = left
            .keys()
            .find(|path| path.to_string_lossy().ends_with(".tmp"));
        hold!(left.is_none(), "{left:?} is left");
        Ok(())
    }

    fn lived(&mut self, disk: &Arc<SimDisk>, is_last: bool) -> Result<(), Breach> {
        let machine = self.world.machine(disk);
        let opened = Opened::<PartitionLog>::open(&machine, Path::new(ROOT), &self.options);
        let engine = match opened {
            Ok(engine) => engine,
            Err(_) if disk.is_dead() => return Ok(()),
            Err(error) => return Err(format!("opening failed: {error}")),
        };
        self.check_rows(&engine, disk, true)?;
        let mut time = Instant::now();
        for _ in 0..self.world.random.below(50) {
            time += Duration::from_secs(2);
            let done = self.work(&engine, disk, time);
            if disk.is_dead() {
                return Ok(());
            }
            done.map_err(|error| format!("a step failed: {error}"))?;
            self.check_rows(&engine, disk, false)?;
        }
        if is_last {
            let ended = self.end(&engine, disk);
            if !disk.is_dead() {
                ended?;
            }
        }
        Ok(())
    }

    /// One action of the driver, the writer or another sender.
    fn work(
        &mut self,
        engine: &Opened<PartitionLog>,
        disk: &Arc<SimDisk>,
        time: Instant,
    ) -> Done<()> {
        self.world.clock.advance(10);
        match self.world.random.below(100) {
            0..20 if self.published.is_none() => self.stage(disk)?,
            20..45 if self.published.is_none() && !self.staged.is_empty() => self.publish(disk)?,
            45..70 => {
                engine.take_commits()?;
                // The driver learns the outcome, or dies first.
                if self.world.random.chance(60) {
                    self.hear(engine, disk)?;
                }
            }
            70..80 => self.make_noise(engine)?,
            80..90 => {
                engine.roll()?;
                engine.step_retention(self.world.clock.now_ms(), time);
            }
            _ => drop(engine.flush()?),
        }
        Ok(())
    }

    /// Begins an attempt at the batch: stages its rows, randomly divided.
    fn stage(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        self.forget();
        if self.rows.len() as u64 <= self.batch {
            // Commits of one part are as likely as those of several.
            let most = self.world.random.pick(&[4, 24]);
            self.rows.push(1 + self.world.random.below(most));
        }
        let count = self.rows[self.batch as usize];
        let (mut row, mut staged) = (0, Vec::new());
        while row < count {
            let end = (row + 1 + self.world.random.below(count)).min(count);
            let stager = Stager::new(shared(disk), Path::new(ROOT), QUERY, None)?;
            let mut stager = stager.cut_at(WRITE_LEN);
            stager.write(&self.rows_of(row..end))?;
            staged.extend(stager.finish()?);
            row = end;
        }
        self.staged = staged;
        Ok(())
    }

    fn rows_of(&self, rows: std::ops::Range<u64>) -> RecordBatch {
        let body = |row: u64| {
            let padding = "x".repeat((row * 37 % 150) as usize);
            format!("{} {row} {padding}", self.batch).into_bytes()
        };
        let bodies: Vec<Vec<u8>> = rows.clone().map(body).collect();
        let bodies = BinaryArray::from_iter_values(bodies.iter());
        let keys = rows.clone().map(|row| format!("key {}", row % 5));
        let keys = StringArray::from_iter_values(keys);
        let topics = rows.map(|row| TOPICS[row as usize % TOPICS.len()]);
        let topics = StringArray::from_iter_values(topics);
        let columns: [(&str, ArrayRef); 3] = [
            ("value", Arc::new(bodies)),
            ("key", Arc::new(keys)),
            ("topic", Arc::new(topics)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn publish(&mut self, disk: &Arc<SimDisk>) -> Done<()> {
        let commit = Commit {
            query: QUERY,
            batch: self.batch,
            kind: CommitKind::Stream,
            conflict: Conflict::Fail,
            stages: &self.staged,
        };
        let published = publish_cut(&**disk, Path::new(ROOT), &commit, PART_LEN)?;
        self.published = Some(published);
        Ok(())
    }

    /// The driver checks the manifest that it waits for. If that was an earlier one of the batch,
    /// its own follows. A missing commit is complete if the log says so. After a power loss the
    /// commit of a dead driver may have lost its files; then it has failed.
    fn hear(&mut self, engine: &Opened<PartitionLog>, disk: &Arc<SimDisk>) -> Done<()> {
        let Some(published) = self.published else {
            return Ok(());
        };
        let state = state(&**disk, Path::new(ROOT), QUERY, self.batch)?;
        if matches!(state, CommitState::Pending | CommitState::Begun) {
            return Ok(());
        }
        let is_cut = matches!(&state, CommitState::Refused(refusal) if refusal.appended);
        if published == Published::Earlier && !is_cut {
            return self.publish(disk);
        }
        let mut contents = Contents::default();
        self.staged.iter().for_each(|it| contents.add(it.contents));
        let batch = (QUERY, self.batch);
        if state == CommitState::Gone && engine.holds_commit(batch, contents, false)? {
            self.batch += 1;
        } else if !disk.is_dead() && self.wrong.is_none() {
            let batch = self.batch;
            self.wrong = Some(format!("batch {batch} did not succeed: {state:?}"));
        }
        self.forget();
        Ok(())
    }

    /// Another sender appends an atomic batch to two queues.
    fn make_noise(&mut self, engine: &PartitionLog) -> Done<()> {
        let topic = engine.topic_for_append(NOISE)?;
        let mut batch = engine.batch();
        for queue in 0..topic.write_queues() {
            let draft = Draft {
                body: &[7; 600],
                ..Draft::default()
            };
            batch.push(NOISE, queue, &draft, self.world.clock.now_ms())?;
        }
        let atomicity = self.world.random.pick(&[Atomicity::Whole, Atomicity::Rows]);
        let batches = &mut [(&*topic, &mut batch)];
        engine.append(batches, atomicity, Durability::Written)?;
        Ok(())
    }

    /// Completes the current batch and checks everything.
    fn end(&mut self, engine: &Opened<PartitionLog>, disk: &Arc<SimDisk>) -> Result<(), Breach> {
        let failed = |error: Error| format!("the end failed: {error}");
        let batch = self.batch;
        self.stage(disk).map_err(failed)?;
        self.publish(disk).map_err(failed)?;
        // The manifest of an earlier attempt may be handled first.
        for _ in 0..2 {
            engine.take_commits().map_err(failed)?;
            self.hear(engine, disk).map_err(failed)?;
        }
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let published = self.published;
        hold!(
            self.batch > batch,
            "the last commit did not succeed: {published:?}"
        );
        self.check_rows(engine, disk, false)?;
        let names = disk.contents();
        let mut names = names.keys().map(|path| path.to_string_lossy());
        let is_manifest = |name: &str| {
            !name.ends_with(".tmp") && (name.contains(".commit-") || name.contains(".taken-"))
        };
        let left = names.find(|name| is_manifest(name));
        hold!(left.is_none(), "a manifest is left: {left:?}");
        undamaged(&**engine).map(drop)
    }

    /// Compares the log with what was committed. With `opened`, rows seen before may be missing
    /// after a crash, unless they were acknowledged.
    fn check_rows(
        &mut self,
        engine: &PartitionLog,
        disk: &SimDisk,
        opened: bool,
    ) -> Result<(), Breach> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if opened {
            let acknowledged = self.batch;
            self.seen.retain(|(batch, _), _| *batch < acknowledged);
        }
        let (mut now, mut starts) = (BTreeMap::new(), BTreeMap::new());
        let found = (0..TOPICS.len())
            .try_for_each(|number| read_topic(engine, number, &mut now, &mut starts));
        if disk.is_dead() {
            return Ok(());
        }
        found?;
        for (id, place) in &now {
            let before = *self.seen.entry(*id).or_insert(*place);
            hold!(
                before == *place,
                "row {id:?} moved from {before:?} to {place:?}"
            );
        }
        for (count, batch) in self.rows.iter().zip(0..self.batch) {
            for row in 0..*count {
                let is_retired = |(topic, queue, offset): &Place| {
                    starts
                        .get(&(*topic, *queue))
                        .is_some_and(|start| offset < start)
                };
                let retired = self.seen.get(&(batch, row)).is_some_and(is_retired);
                hold!(
                    now.contains_key(&(batch, row)) || retired,
                    "acknowledged row {row} of batch {batch} is missing"
                );
            }
        }
        Ok(())
    }
}

/// Reads the rows of a topic, and the first offset of each queue.
fn read_topic(
    engine: &PartitionLog,
    number: usize,
    now: &mut BTreeMap<(u64, u64), Place>,
    starts: &mut BTreeMap<(usize, u32), u64>,
) -> Result<(), Breach> {
    let failed = |error: Error| format!("unreadable: {error}");
    let Some(topic) = engine.topics().get(TOPICS[number]) else {
        return Ok(());
    };
    for queue in engine.queues(&topic) {
        let bounds = engine.bounds(&topic, queue).map_err(failed)?;
        let bounds = bounds.unwrap_or_default();
        starts.insert((number, queue), bounds.start);
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, queue, bounds, &filter, Check::Full);
        let (mut cursor, mut rows) = (cursor.map_err(failed)?, Rows::default());
        while cursor.refill(64, &mut rows).map_err(failed)? {
            for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
                let text = String::from_utf8_lossy(record.stored_body()).into_owned();
                let mut words = text.split(' ').map_while(|word| word.parse::<u64>().ok());
                let id = (words.next().unwrap(), words.next().unwrap());
                let place = (number, queue, record.queue_offset() as u64);
                hold!(
                    now.insert(id, place).is_none(),
                    "row {id:?} is in the log twice"
                );
            }
        }
    }
    Ok(())
}
