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
//! From the top down: [`opening`] opens the directory, [`listing`] finds its partitions. [`cursor`]
//! walks the messages of one, [`time`] finds one by its time, [`verify`] checks all, [`archive`]
//! says what an archive may copy, [`bytes`] reads what it has, and [`stats`] has the figures. A
//! [`partition`] has [`transactions`] and a [`folder`], which follows what a broker appends,
//! deletes and replaces; [`listening`] tells a reader when to do so. [`batches`] walks from segment
//! to segment of [`segments`].
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
mod get;
mod half_read;
mod listening;
mod listing;
mod opening;
mod partition;
mod promised;
mod query;
mod queue_logs;
mod remove_damage;
mod repair;
mod retention;
pub(crate) mod segments;
mod staged;
mod stats;
#[cfg(test)]
mod stepped;
mod taken;
mod time;
mod transactions;
mod verify;
mod verify_indexes;
mod wait;
mod write;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
pub(crate) mod test;

use self::compact::compactor::Compactor;
use self::cursor::{Chain, QueueCursor};
use self::folder::View;
use self::half_read::HalfReads;
use self::listening::Listening;
use self::partition::Partition;
use self::retention::service::Retention;
use self::segments::names;
use self::write::Writer;
use super::directory::group_table::joint::Joint;
use super::service::condition::Condition;
use super::service::durability::Durable;
use super::service::group_commit;
use super::{
    Abilities, Appended, Atomicity, Check, Cursor, Durability, Engine, Filter, Meanings, Point,
    Report, Stats, Topic, Topics, Verification, Waiter,
};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::meter::Meters;
use crate::options::{EngineKind, Isolation, Options};
use crate::record::kafka::partition_of_key;
use crate::record::names::{KAFKA_DEAD_PREFIX, KAFKA_RETRY_PREFIX};
use crate::record::{Batch, Form, Message, RecordStyle};
use crate::sync::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
    clock: Arc<dyn Clock>,
    isolation: Isolation,
    report: Arc<Report>,
    half_reads: HalfReads,
}

/// A topic and the number of one of its queues.
type Key = (u32, u32);

/// The engine for the log directory of a Kafka broker.
pub struct PartitionLog {
    root: PathBuf,
    shared: Arc<Shared>,
    topics: Topics,
    partitions: RwLock<BTreeMap<Key, Arc<Partition>>>,
    /// Bytes of partitions that a broker has removed, so that the readable position never
    /// decreases.
    gone: AtomicU64,
    /// First offsets according to the broker's checkpoint.
    starts: RwLock<HashMap<(String, u32), u64>>,
    /// When the directory was last modified before it was listed; `None` if a later change could
    /// have the same time.
    listed: Mutex<Option<i64>>,
    options: Options,
    closed: AtomicBool,
    news: Arc<Condition>,
    /// How a reader learns that there is something new.
    listening: Listening,
    /// `None` if the directory is only read.
    writer: Option<Writer>,
    /// As `writer`.
    compactor: Option<Arc<Compactor>>,
    /// As `writer`.
    retention: Option<Arc<Retention>>,
}

impl PartitionLog {
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

    /// This process among those that share the store; `None` if it has the store for itself, or
    /// only reads it.
    pub(crate) fn joint(&self) -> Option<Arc<dyn Joint>> {
        let groups = self.writer.as_ref()?.groups.as_ref()?;
        Some(Arc::clone(groups) as Arc<dyn Joint>)
    }

    /// Refuses what processes that share a store cannot do.
    fn check_alone(&self, what: &str) -> Result<()> {
        match self.joint() {
            None => Ok(()),
            Some(_) => unsupported(&format!(
                "{what} a store that is open with mode=\"share\": close it in all processes, and \
                 open it with mode=\"a\""
            )),
        }
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
        for partition in self.all() {
            self.view(&partition)?;
        }
        Ok(self.seen())
    }

    /// How much was found in all partitions so far. Never decreases.
    fn seen(&self) -> u64 {
        let partitions = self.partitions.read();
        let seen: u64 = partitions.values().map(|it| it.folder.seen()).sum();
        seen + self.gone.load(Ordering::Relaxed)
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

    fn form(&self) -> Form {
        match &self.writer {
            Some(writer) => Form::Kafka(writer.parts.rules.form),
            None => Form::RocketMq(RecordStyle::of_stage(0)),
        }
    }

    fn abilities(&self) -> Abilities<'_> {
        Abilities {
            queue_logs: Some(self),
            staging: Some(self),
            ..Abilities::default()
        }
    }

    fn show_meters(&self, meters: &Arc<Meters>) {
        if let Some(writer) = &self.writer {
            writer.services.showing.set(meters);
        }
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        self.wake();
        self.shared.half_reads.clear();
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
        if self.writer.is_some() {
            // Other processes may share the store. If its table cannot be read, the next call
            // tries again.
            let _ = self.update();
        }
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
        let must_flush = writer.parts.append(batches, atomicity, &mut appended)?;
        let rules = &writer.parts.rules;
        if durability.waits(rules.sync) {
            let waiter = self.enlist(appended.end);
            appended.await_durable(&waiter, rules.flush_timeout)?;
        } else if must_flush {
            // Nobody waits for it. If it fails, the next call reports that.
            drop(self.enlist(appended.end));
        }
        Ok(appended)
    }

    fn is_ready_for(&self, topic: &Topic, queue: Option<u32>, len: usize) -> bool {
        let Some(writer) = &self.writer else {
            return true;
        };
        if writer.parts.shared.is_some() {
            // A send may have to wait for another process.
            return false;
        }
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

    fn flush(&self, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        self.usable()?;
        if let Some(writer) = &self.writer {
            let open = writer.open_batches.as_ref();
            open.inspect(|open| open.append_all());
            let parts = &writer.parts;
            match &parts.shared {
                // Another process may have to flush.
                Some(shared) => {
                    shared.check(&parts.health)?;
                    let waiter = self.enlist(parts.published());
                    waiter.wait_while(parts.rules.flush_timeout, go_on)?;
                }
                None => parts.flush()?,
            }
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
            // A position counts the bytes of all partitions. If it is durable, so is everything
            // that was appended to this partition below it.
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
        get::get(self, topic, queue, offset)
    }

    fn query(
        &self,
        topic: &Topic,
        key: &[u8],
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
        self.seen()
    }

    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64 {
        wait::wait_until(self, position, timeout, done)
    }

    fn wake(&self) {
        wait::wake(self);
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
            "finding a message by its position in a partition log, whose segments each count from \
             0; give its topic, queue and offset",
        )
    }

    fn report(&self) -> &Report {
        &self.shared.report
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        verify::verify(self, progress)
    }

    fn stats(&self) -> Stats {
        stats::stats(self)
    }

    fn counters(&self) -> (u64, u64) {
        let writer = self.writer.as_ref();
        writer.map_or((0, 0), |writer| writer.parts.tail.counters())
    }
}
