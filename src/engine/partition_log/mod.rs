//! The partition log: the log directory of a Kafka broker. It can be read, beside the broker or
//! after it, which changes nothing, or written ([`write`]).
//!
//! ```text
//!   <topic>-<partition>/     a partition; its number is the queue
//!     <base offset>.log        a segment: batches of records
//!     <base offset>.index      positions of some of its batches, by offset
//!     <base offset>.timeindex  the same by time
//! ```
//!
//! From the top down: [`cursor`] walks the messages of a partition, [`time`] finds one by its time,
//! [`verify`] checks all, [`archive`] says what an archive may copy, [`bytes`] reads what it has.
//! A [`partition`] has [`transactions`] and a [`folder`], which follows what a broker appends,
//! deletes and replaces. [`batches`] walks from segment to segment of [`segments`].
//!
//! The directory may belong to a live broker, which truncates and deletes its files. So they are
//! read by `pread`, never through a map, and a message is a copy of its record.

mod archive;
mod batches;
pub(crate) mod bytes;
mod compact;
mod create;
mod cursor;
mod fit;
mod folder;
mod partition;
mod query;
mod queue_logs;
mod repair;
mod retention;
pub(crate) mod segments;
mod staged;
#[cfg(test)]
mod stepped;
mod time;
mod transactions;
mod verify;
mod write;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
pub(crate) mod test;

use self::compact::rules::CompactRules;
use self::compact::service::Compactor;
use self::cursor::{Chain, QueueCursor};
use self::folder::{TICK_MS, View};
use self::partition::Partition;
use self::retention::service::Retention;
use self::segments::names;
use self::write::{Opened, Writer};
use super::directory::kept_options;
use super::service::condition::Condition;
use super::service::durability::Durable;
use super::service::group_commit;
use super::service::hold::Hold;
use super::{
    Appended, Atomicity, Check, Cursor, Damage, DamageKind, Durability, Engine, Filter, Meanings,
    Point, QueueLogs, Recovery, Report, Rows, Staging, Stats, Topic, Topics, Verification, Waiter,
};
use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, read_small};
use crate::error::{Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::options::{EngineKind, Isolation, Mode, Options};
use crate::record::kafka::partition_of_key;
use crate::record::names::{KAFKA_DEAD_PREFIX, KAFKA_RETRY_PREFIX};
use crate::record::{Batch, Message};
use crate::sync::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The name of the memory that holds the records read.
const NAME: &str = ":records:";
/// Time between two checks of the files while a thread waits for messages.
const POLL: Duration = Duration::from_millis(50);
/// A check takes at most this part of the time.
const POLL_SHARE: u32 = 20;
/// Longest checkpoint file that is read.
const CHECKPOINT_LEN_MAX: u64 = 64 << 20;

const MEANINGS: Meanings = Meanings {
    kind: EngineKind::PartitionLog,
    // Times are those of the senders, and positions count the bytes that all queues have.
    append_times: false,
    lasting_positions: false,
    in_kafka_form: true,
    retry_prefix: KAFKA_RETRY_PREFIX,
    dead_prefix: KAFKA_DEAD_PREFIX,
    check_topic: names::check_users_topic,
    queue_of_key: partition_of_key,
    address_of: names::address_of,
};

/// What cursors share with the engine, which they may outlive.
#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    isolation: Isolation,
    report: Arc<Report>,
}

/// A topic and the number of one of its queues.
type Key = (u32, u32);

/// The engine for the log directory of a Kafka broker.
pub struct PartitionLog {
    root: PathBuf,
    shared: Arc<Shared>,
    topics: Topics,
    partitions: RwLock<BTreeMap<Key, Arc<Partition>>>,
    /// First offsets according to the broker's checkpoint.
    starts: RwLock<HashMap<(String, u32), u64>>,
    /// When the directory was last modified before it was listed; `None` if a later change could
    /// have the same time.
    listed: Mutex<Option<i64>>,
    options: Options,
    closed: AtomicBool,
    news: Arc<Condition>,
    /// `None` if the directory is only read.
    writer: Option<Writer>,
    /// As `writer`.
    compactor: Option<Arc<Compactor>>,
    /// As `writer`.
    retention: Option<Arc<Retention>>,
}

impl PartitionLog {
    /// Opens the log directory at `root`, without a hold on its retention.
    ///
    /// # Errors
    ///
    /// As [`PartitionLog::open_with`].
    #[cfg(test)]
    pub fn open(machine: &Machine, root: &Path, options: &Options) -> Result<PartitionLog> {
        PartitionLog::open_with(machine, root, options, Vec::new())
    }

    /// Opens the log directory at `root`. Retention asks the `holds`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the mode is [`Mode::Read`]; [`Error::NotFound`],
    /// [`Error::NotAStore`]; errors of reading.
    pub fn open_with(
        machine: &Machine,
        root: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<PartitionLog> {
        let began = Instant::now();
        let disk = Arc::clone(&machine.disk);
        if options.mode == Mode::Read {
            names::check_root(&*disk, root)?;
        }
        let mut engine = PartitionLog {
            root: root.to_owned(),
            shared: Arc::new(Shared {
                disk,
                isolation: options.isolation.unwrap_or_default(),
                report: Arc::default(),
            }),
            topics: Topics::default(),
            partitions: RwLock::default(),
            starts: RwLock::default(),
            listed: Mutex::default(),
            options: options.clone(),
            closed: AtomicBool::new(false),
            news: Arc::default(),
            writer: None,
            compactor: None,
            retention: None,
        };
        let mut recovery = match options.mode {
            Mode::Read => {
                engine.update()?;
                let clean = engine.disk().stat(&root.join(names::CLEAN))?.is_some();
                Recovery {
                    clean,
                    end: engine.check_all()?,
                    ..Recovery::default()
                }
            }
            Mode::Append | Mode::Create => engine.open_for_writing(machine, options, holds)?,
            Mode::Share => return unsupported("mode=\"share\" for a partition log"),
        };
        recovery.elapsed = began.elapsed();
        engine.shared.report.opened(recovery);
        Ok(engine)
    }

    fn open_for_writing(
        &mut self,
        machine: &Machine,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Recovery> {
        let with = (&self.topics, &*self.shared.report, &self.news);
        let (writer, opened, recovery) = Writer::open(machine, &self.root, options, with)?;
        self.options = writer.options.clone();
        let mut partitions = self.partitions.write();
        for Opened { topic, queue, ends } in opened {
            let partition = Partition::written(&topic.name, queue, ends);
            partitions.insert((topic.id, queue), Arc::new(partition));
        }
        drop(partitions);
        let rules = CompactRules::new(&options.compaction);
        let warnings = &self.shared.report.warnings;
        let compactor = Arc::new(Compactor::new(rules, warnings));
        let known_times = writer.known_times.clone();
        let retention = Arc::new(Retention::new(
            options,
            &self.shared.report,
            known_times,
            holds,
        )?);
        retention.complete(&writer.parts)?;
        if machine.drive == Drive::Threads {
            let started = compactor.start(&writer.parts);
            let started = started.and_then(|()| retention.start(&writer.parts));
            started.map_err(|error| Error::io(Op::StartThreads, &self.root, error))?;
        }
        self.compactor = Some(compactor);
        self.retention = Some(retention);
        self.writer = Some(writer);
        Ok(recovery)
    }

    /// The options in effect: of a writer, with the values that the store has saved.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The writer of the directory.
    fn writer(&self) -> Result<&Writer> {
        self.usable()?;
        let writer = self.writer.as_ref();
        writer.ok_or_else(|| Error::read_only_store(&self.root))
    }

    fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    fn usable(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::closed(&self.root)),
            false => Ok(()),
        }
    }

    /// Finds partitions that were added or deleted. Every use of a topic calls this, and the
    /// directory may have thousands of folders, so it is listed only if it has changed. Checkpoints
    /// that a broker replaces change it too.
    fn update(&self) -> Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut listed = self.listed.lock();
        let modified = self.disk().modified_ms(&self.root)?;
        if modified.is_some() && modified == *listed {
            return Ok(());
        }
        let now = RealClock.now_ms();
        self.find_partitions()?;
        *listed = modified.filter(|time| *time < now.saturating_sub(TICK_MS));
        Ok(())
    }

    fn find_partitions(&self) -> Result<()> {
        let named = names::partitions(self.disk(), &self.root)?;
        self.read_starts(&named)?;
        let mut known = self.partitions.write();
        let mut found = BTreeMap::new();
        for (name, queue) in named {
            let (topic, _) = self.topics.get_or_add(&name, queue.saturating_add(1));
            if topic.write_queues() <= queue {
                let queues = queue.saturating_add(1);
                topic.configure(queues, queues, topic.permissions());
            }
            let partition = known.remove(&(topic.id, queue)).unwrap_or_else(|| {
                let folder = self.root.join(format!("{name}-{queue}"));
                Arc::new(Partition::new(&name, queue, folder))
            });
            found.insert((topic.id, queue), partition);
        }
        *known = found;
        Ok(())
    }

    /// Reads the first offsets of these partitions from the broker's checkpoint.
    fn read_starts(&self, named: &[(String, u32)]) -> Result<()> {
        let path = self.root.join(names::LOG_START);
        let bytes = match read_small(self.disk(), &path, CHECKPOINT_LEN_MAX) {
            Err(error) if error.kind() == Some(ErrorKind::InvalidData) => {
                let damage = Damage::new(DamageKind::ForeignTable, path, 0..0, error);
                self.shared.report.add(damage);
                return Ok(());
            }
            read => read?,
        };
        let Some(bytes) = bytes else {
            self.starts.write().clear();
            return Ok(());
        };
        // The file may name any number of others.
        let named: HashSet<(&str, u32)> = named.iter().map(|it| (&*it.0, it.1)).collect();
        let mut starts = HashMap::new();
        let parsed = names::each_start(&bytes, &mut |name, queue, start| {
            if named.contains(&(name, queue)) {
                starts.insert((name.to_owned(), queue), start);
            }
        });
        match parsed {
            Ok(()) => *self.starts.write() = starts,
            Err(reason) => {
                let bytes = 0..bytes.len() as u64;
                let damage = Damage::new(DamageKind::ForeignTable, path, bytes, reason);
                self.shared.report.add(damage);
            }
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().values().cloned().collect()
    }

    fn partition(&self, topic: &Topic, queue: u32) -> Option<Arc<Partition>> {
        self.partitions.read().get(&(topic.id, queue)).cloned()
    }

    /// The current state of a partition.
    fn view(&self, partition: &Partition) -> Result<View> {
        self.usable()?;
        let key = (partition.topic.to_string(), partition.queue);
        let start = self.starts.read().get(&key).copied();
        partition.view(self.disk(), start, self.shared.isolation)
    }

    /// Brings all partitions up to date. Returns how much was found in them so far.
    fn check_all(&self) -> Result<u64> {
        let mut seen = 0;
        for partition in self.all() {
            self.view(&partition)?;
            seen += partition.folder.seen();
        }
        Ok(seen)
    }

    /// A partition and its current state; an error if it does not exist.
    fn existing(&self, topic: &Topic, queue: u32) -> Result<(Arc<Partition>, View)> {
        let partition = self.partition(topic, queue);
        let partition = partition.ok_or_else(|| topic.unknown_queue(queue))?;
        let view = self.view(&partition)?;
        Ok((partition, view))
    }

    fn cursor_over(
        &self,
        (partition, view): (Arc<Partition>, View),
        offsets: Range<u64>,
        filter: &Filter,
        check: Check,
    ) -> QueueCursor {
        let shared = Arc::clone(&self.shared);
        QueueCursor::new(shared, partition, view, offsets, filter.clone(), check)
    }
}

fn unsupported<T>(what: &str) -> Result<T> {
    Err(Error::Unsupported {
        what: what.to_owned(),
    })
}

impl Engine for PartitionLog {
    fn meanings(&self) -> &'static Meanings {
        &MEANINGS
    }

    fn batch(&self) -> Batch {
        match &self.writer {
            Some(writer) => Batch::in_kafka_form(writer.parts.rules.form),
            None => Batch::of_stage(0),
        }
    }

    fn queue_logs(&self) -> Option<&dyn QueueLogs> {
        Some(self)
    }

    fn staging(&self) -> Option<&dyn Staging> {
        Some(self)
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.wake();
        // Stopped first: it must replace no segment once another process can open the store.
        if let Some(compactor) = &self.compactor {
            compactor.end();
        }
        if let Some(retention) = &self.retention {
            retention.end();
        }
        self.writer.as_ref().map_or(Ok(()), Writer::close)
    }

    fn topics(&self) -> &Topics {
        &self.topics
    }

    fn refresh(&self, _: Option<&str>) -> Result<()> {
        self.usable()?;
        self.update()
    }

    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>> {
        names::check_topic(name)?;
        self.topic_with(name, None)
    }

    fn create_topic(&self, name: &str, queues: u32, durability: Durability) -> Result<Arc<Topic>> {
        names::check_topic(name)?;
        let topic = self.topic_with(name, Some(queues))?;
        if durability != Durability::Written {
            self.writer()?.parts.sync_folders()?;
        }
        Ok(topic)
    }

    fn queues(&self, topic: &Topic) -> Vec<u32> {
        let partitions = self.partitions.read();
        let own = partitions.range((topic.id, 0)..=(topic.id, u32::MAX));
        own.map(|((_, queue), _)| *queue).collect()
    }

    fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended> {
        let writer = self.writer()?;
        if let Some(open) = &writer.open_batches {
            open.append_before(batches);
        }
        let mut appended = Appended::default();
        writer.parts.append(batches, atomicity, &mut appended)?;
        let rules = &writer.parts.rules;
        if durability.waits(rules.sync) {
            let began = Instant::now();
            self.enlist(appended.end)
                .wait_or_fail(rules.flush_timeout)?;
            appended.waited = began.elapsed();
            appended.durable = true;
        }
        Ok(appended)
    }

    fn is_ready_for(&self, topic: &Topic, queue: Option<u32>, len: usize) -> bool {
        let Some(writer) = &self.writer else {
            return true;
        };
        let (first, last) = queue.map_or((0, u32::MAX), |queue| (queue, queue));
        let partitions = self.partitions.read();
        let meant = partitions.range((topic.id, first)..=(topic.id, last));
        writer.is_ready_for(meant.map(|(_, it)| it.folder.ends.as_deref()), len)
    }

    fn enlist(&self, end: u64) -> Arc<Waiter> {
        match &self.writer {
            None => Waiter::completed(Ok(())),
            Some(writer) => group_commit::enlist(&writer.services.group, &writer.parts, end),
        }
    }

    fn flush(&self) -> Result<u64> {
        self.usable()?;
        if let Some(writer) = &self.writer {
            let open = writer.open_batches.as_ref();
            open.inspect(|open| open.append_all());
            writer.parts.flush()?;
            open.map_or(Ok(()), |open| open.check_refused())?;
        }
        Ok(self.durable_position())
    }

    fn durable_position(&self) -> u64 {
        match &self.writer {
            Some(writer) => writer.parts.durable(),
            None => self.readable_position(),
        }
    }

    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>> {
        self.usable()?;
        match self.partition(topic, queue) {
            Some(partition) => Ok(Some(self.view(&partition)?.bounds)),
            None => Ok(None),
        }
    }

    fn offset_at(&self, topic: &Topic, queue: u32, point: Point) -> Result<u64> {
        let (partition, view) = self.existing(topic, queue)?;
        match point {
            Point::Time(time) => time::offset_at(&self.shared, &partition, &view, time),
            // Positions count what was appended to all partitions. What is durable now includes
            // all that was appended below a position that is durable.
            Point::Position(position) => Ok(match (&self.writer, &partition.folder.ends) {
                (Some(writer), Some(ends)) if position <= writer.parts.durable() => {
                    ends.next_offset(true).min(view.bounds.end)
                }
                _ => view.bounds.end,
            }),
        }
    }

    fn fit(&self, topic: &Topic, queue: u32, range: Range<u64>, bytes: u64) -> Result<(u64, u64)> {
        fit::fit(self, self.existing(topic, queue)?, range, bytes)
    }

    fn cursor(
        &self,
        topic: &Topic,
        queue: u32,
        range: Range<u64>,
        filter: &Filter,
        check: Check,
    ) -> Result<Box<dyn Cursor>> {
        let found = self.existing(topic, queue)?;
        Ok(Box::new(self.cursor_over(found, range, filter, check)))
    }

    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>> {
        let found = self.existing(topic, queue)?;
        let bounds = found.1.bounds.clone();
        if !bounds.contains(&offset) {
            return Ok(None);
        }
        let damaged = self.shared.report.damaged();
        let all = Filter::default();
        let mut cursor = self.cursor_over(found, offset..bounds.end, &all, Check::Full);
        let mut rows = Rows::default();
        cursor.next(1, &mut rows)?;
        let message = rows.rows.first().and_then(|row| rows.message(row));
        let there = message
            .as_ref()
            .map(|it| it.record().queue_offset().cast_unsigned());
        if there == Some(offset) {
            return Ok(message);
        }
        let report = &self.shared.report;
        let place = report.place_of(&topic.name, queue, offset);
        if place.is_some() || report.damaged() > damaged {
            return Err(self.lost(place));
        }
        // Compaction has left a gap, a control record is there, or an uncommitted message.
        Err(Error::OffsetOutOfRange {
            topic: topic.name.to_string(),
            queue,
            offset: offset.cast_signed(),
            min: there.unwrap_or(bounds.end),
            max: bounds.end,
        })
    }

    fn query(
        &self,
        topic: &Topic,
        key: &str,
        begin: i64,
        end: i64,
        max: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Message>> {
        query::newest(self, (topic, key), begin..=end, max, go_on)
    }

    fn readable_position(&self) -> u64 {
        if let Some(writer) = &self.writer {
            return writer.parts.readable();
        }
        self.all()
            .iter()
            .map(|partition| partition.folder.seen())
            .sum()
    }

    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64 {
        let deadline = Instant::now().checked_add(timeout);
        if let Some(writer) = &self.writer {
            let is_over = || self.closed.load(Ordering::Acquire) || done();
            let is_due = || writer.parts.readable() > position || is_over();
            let left =
                || deadline.map_or(timeout, |it| it.saturating_duration_since(Instant::now()));
            while !is_due() && !left().is_zero() {
                self.news.sleep(left(), is_due);
            }
            return writer.parts.readable();
        }
        loop {
            let began = Instant::now();
            // The reads that follow meet the same error.
            let seen = match self.check_all() {
                Ok(seen) => seen,
                Err(_) => self.readable_position().saturating_add(1),
            };
            let left = deadline.map_or(timeout, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let is_over = || self.closed.load(Ordering::Acquire) || done();
            if seen > position || left.is_zero() || is_over() {
                return seen;
            }
            let pause = POLL.max(began.elapsed().saturating_mul(POLL_SHARE));
            self.news.sleep(left.min(pause), is_over);
        }
    }

    fn wake(&self) {
        self.news.notify();
    }

    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>> {
        let all = Filter::default();
        let mut cursors = Vec::new();
        for partition in self.all() {
            let view = self.view(&partition)?;
            let offsets = view.bounds.clone();
            cursors.push(self.cursor_over((partition, view), offsets, &all, check));
        }
        Ok(Box::new(Chain::new(cursors)))
    }

    fn message_at(&self, _: u64) -> Result<Message> {
        unsupported(
            "finding a message of Kafka's by its position, which counts in each segment; give its \
             topic, queue and offset",
        )
    }

    fn report(&self) -> &Report {
        &self.shared.report
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        self.usable()?;
        self.update()?;
        let mut found = Verification::default();
        let mut all = Vec::new();
        for partition in self.all() {
            let view = self.view(&partition)?;
            all.push((partition, view));
        }
        let segments = all.iter().flat_map(|(_, view)| view.segments.iter());
        let total = segments.map(|segment| segment.len).sum();
        let mut done = 0;
        let mut go_on = |bytes| {
            done += bytes;
            progress(done, total)
        };
        for (partition, view) in &all {
            for segment in view.segments.iter() {
                let shared = &self.shared;
                if !verify::segment(shared, partition, view, segment, &mut found, &mut go_on)? {
                    return Ok(found);
                }
            }
        }
        let kind = EngineKind::PartitionLog;
        if let Some(reason) = kept_options::flaw(self.disk(), &self.root, kind)? {
            let path = self.root.join(kept_options::FILE_NAME);
            let len = self.disk().stat(&path)?.map_or(0, |entry| entry.len);
            let damage = Damage::new(DamageKind::Options, path, 0..len, reason);
            found.damage.push(damage);
        }
        for damage in &found.damage {
            self.shared.report.add(damage.clone());
        }
        Ok(found)
    }

    fn stats(&self) -> Stats {
        let end = self.readable_position();
        let recovery = self.shared.report.recovery();
        let (messages_sent, bytes_sent) = self.counters();
        let parts = self.writer.as_ref().map(|writer| &writer.parts);
        Stats {
            messages_sent,
            bytes_sent,
            sends_failed: parts.map_or(0, |it| it.sends_failed.load(Ordering::Relaxed)),
            published: parts.map_or(end, |parts| parts.published()),
            dispatched: end,
            durable: self.durable_position(),
            damaged: self.shared.report.damaged(),
            recovered_records: recovery.records_checked,
            truncated_bytes: recovery.truncated_bytes,
            append_held: parts.map_or(Duration::ZERO, |parts| parts.tail.held_for()),
            flushes: parts.map_or_else(Default::default, |parts| parts.meter.read()),
            ..Stats::default()
        }
    }

    fn counters(&self) -> (u64, u64) {
        let writer = self.writer.as_ref();
        writer.map_or((0, 0), |writer| writer.parts.tail.counters())
    }
}

impl PartitionLog {
    /// The error for a message that damage has destroyed.
    fn lost(&self, place: Option<Damage>) -> Error {
        match place.or_else(|| self.shared.report.last()) {
            Some(place) => Error::corrupt(place.path, place.position, place.reason),
            None => Error::corrupt(&self.root, 0, ""),
        }
    }
}
