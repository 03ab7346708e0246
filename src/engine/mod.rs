//! Engines: what stores messages. [`Engine`] is their one surface; [`commit_log`] keeps RocketMQ's
//! files, [`memory`] keeps nothing.

pub mod commit_log;
pub mod memory;
pub mod topic;
pub mod waiter;

pub use crate::damage::{Damage, DamageKind};
pub use topic::{Topic, Topics};
pub use waiter::Waiter;

use crate::error::{Error, Result};
use crate::mapped::Region;
use crate::meter::{Flushes, Puts, Rates};
use crate::num::short;
use crate::record::{Batch, Layout, Message, Record, RecordStyle};
use crate::warning::Warnings;
use commit_log::archive::{SealedFile, Survey};
use commit_log::intake::manifest::Contents;
use smallvec::SmallVec;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whether a call returns before or after its messages are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// As the store was opened.
    #[default]
    Default,
    /// Return when the messages are durable.
    Flushed,
    /// Return when they are in the log: safe from a crash of the process, not from a power loss.
    Written,
}

/// Whether the rows of a batch stand or fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// Each row for itself: after a crash a part of the batch may be there.
    Rows,
    /// All rows or none, also across a crash.
    Whole,
}

/// What an append did, one entry a row, in the order of the batch.
#[derive(Clone, Debug, Default)]
pub struct Appended {
    /// Position and queue offset of each row; a single one takes no allocation.
    pub rows: SmallVec<[Place; 1]>,
    /// Store time of all rows, in ms.
    pub store_timestamp: i64,
    /// Position behind the last byte appended.
    pub end: u64,
    /// Whether the rows are durable already.
    pub durable: bool,
    /// How long the call waited for the disk.
    pub waited: Duration,
}

/// Where a message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Position in the log.
    pub position: u64,
    /// Queue.
    pub queue: u32,
    /// Offset in the queue.
    pub offset: u64,
}

/// How an engine is asked to check what it hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Structure and checksums.
    Full,
    /// Structure alone: lengths, position, topic, queue and offset.
    Structure,
}

/// Records found by a [`Cursor`], with the regions that keep them alive.
#[derive(Debug, Default)]
pub struct Rows {
    /// Mapped files; each row names one.
    pub regions: Vec<Arc<Region>>,
    /// The rows in order.
    pub rows: Vec<RowRef>,
}

/// One record in [`Rows`].
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// Index into [`Rows::regions`].
    pub region: u32,
    /// First byte of the record in the region.
    pub start: u32,
    /// Where the record's parts lie.
    pub layout: Layout,
}

impl Rows {
    /// Forgets the rows and lets go of the regions.
    pub fn clear(&mut self) {
        self.regions.clear();
        self.rows.clear();
    }

    /// Adds a record; `region` is usually that of the row before.
    #[inline]
    pub fn push(&mut self, region: &Arc<Region>, start: usize, layout: Layout) {
        if !self
            .regions
            .last()
            .is_some_and(|last| Arc::ptr_eq(last, region))
        {
            self.regions.push(Arc::clone(region));
        }
        let region = short(self.regions.len()) - 1;
        self.rows.push(RowRef {
            region,
            start: short(start),
            layout,
        });
    }

    /// The record of a row; `None` only for a row of other rows.
    #[inline]
    pub fn record(&self, row: &RowRef) -> Option<Record<'_>> {
        let region = self.regions.get(row.region as usize)?;
        let bytes = region.slice_again(row.start as usize, row.layout.total_len as usize)?;
        Record::with_layout(bytes, row.layout).ok()
    }

    /// Loads from each page of the rows from `first` on, which were read a while ago.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where a page cannot be had any more.
    pub fn touch(&self, first: usize) -> Result<()> {
        let rows = self.rows.iter().skip(first);
        rows.filter_map(|row| self.message(row))
            .try_for_each(|message| message.touch())
    }

    /// The message of a row, sharing its region.
    pub fn message(&self, row: &RowRef) -> Option<Message> {
        let region = self.regions.get(row.region as usize)?;
        Some(Message::with_layout(
            Arc::clone(region),
            row.start as usize,
            row.layout,
        ))
    }
}

/// Which records of a queue a cursor passes over before it looks at more than the tag code.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Records with one of these tags; all where it is empty.
    pub tags: Vec<String>,
    /// Records with this key; all where there is none.
    pub key: Option<String>,
}

impl Filter {
    /// Whether the filter passes everything.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.key.is_none()
    }

    /// Whether a record passes, by the exact text of its tag and keys.
    pub fn passes(&self, record: &Record<'_>) -> bool {
        let known = crate::record::properties::Known::read(record.raw_properties());
        let tag = |tag: &String| known.tags == Some(tag.as_bytes());
        let by_key = |key: &String| known.index_keys().any(|found| found == key.as_bytes());
        (self.tags.is_empty() || self.tags.iter().any(tag)) && self.key.as_ref().is_none_or(by_key)
    }
}

/// Walks records in order, a handful at a time.
///
/// A damaged record is passed over and reported to the engine's damage list.
pub trait Cursor: Send {
    /// Adds up to `max_rows` records to `rows`. Fewer, but not none, may be added before the end;
    /// none are added at the end alone.
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()>;

    /// Offset in its queue (or position, for a cursor over the log) behind the last record looked
    /// at.
    fn offset(&self) -> u64;
}

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the store had been closed in order.
    pub clean: bool,
    /// Position from which the log was walked.
    pub walked_from: u64,
    /// End of the log.
    pub end: u64,
    /// Bytes behind the end that were erased (or, read-only, passed over).
    pub truncated_bytes: u64,
    /// Records that were checked; one that both the walk and the index were built by counts twice.
    pub records_checked: u64,
    /// Queue entries added or corrected.
    pub queue_entries_rebuilt: u64,
    /// Index entries added.
    pub index_entries_rebuilt: u64,
    /// Records whose whole-record checksum was stale.
    pub stale_checksums: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Counters of a store since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Messages appended.
    pub messages_sent: u64,
    /// Bytes appended to the log.
    pub bytes_sent: u64,
    /// Appends that failed.
    pub sends_failed: u64,
    /// Those of them that failed because the log was busy.
    pub busy: u64,
    /// Position behind the last message that readers may see.
    pub published: u64,
    /// Position up to which queues and index are built.
    pub dispatched: u64,
    /// Position up to which the log is durable.
    pub durable: u64,
    /// First position of the log.
    pub min_position: u64,
    /// Damaged places that are known.
    pub damaged: u64,
    /// Records met whose whole-record checksum was stale.
    pub stale_checksums: u64,
    /// Bytes of log files that retention has taken away and that somebody still has mapped: the
    /// disk gets them back when the last message, cursor or buffer that lies in them is dropped.
    pub retired_bytes_mapped: u64,
    /// Records that opening checked.
    pub recovered_records: u64,
    /// Bytes behind the end that opening erased.
    pub truncated_bytes: u64,
    /// Bytes that the files of the log take on the disk.
    pub log_bytes: u64,
    /// Bytes that may still be written to the file system; `None` where it does not say.
    pub disk_free: Option<u64>,
    /// How long the append that is under way has gone on; zero where none is.
    pub append_held: Duration,
    /// How long puts take.
    pub puts: Puts,
    /// How long flushes take.
    pub flushes: Flushes,
    /// Messages and bytes a second.
    pub rates: Rates,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Records of the log that are whole.
    pub records: u64,
    /// Queue entries that lead to their record.
    pub queue_entries: u64,
    /// Index entries that lead to a record with their key.
    pub index_entries: u64,
    /// Records whose whole-record checksum is stale.
    pub stale_checksums: u64,
    /// All that is damaged.
    pub damage: Vec<Damage>,
}

/// A part of a store that can be verified by itself; see [`Engine::stretches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Positions of the log, from one on where a record may begin.
    Log(Range<u64>),
    /// Entries of a queue.
    Queue {
        /// Its topic.
        topic: String,
        /// Its number.
        queue: u32,
        /// Numbers of the entries.
        numbers: Range<u64>,
    },
    /// An index file.
    Index {
        /// Its name as a number.
        name: u64,
        /// How many entries it had when it was listed.
        entries: u64,
    },
}

/// Bytes of the log that hold no record, what is wrong with the first, and the messages that lay
/// there.
pub type FoundHole = (Range<u64>, String, Vec<(String, u32, u64)>);

/// What the verification of a part found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What is whole, and damage other than holes.
    pub found: Verification,
    /// Holes that begin in a part of the log; for other parts those that its entries lead into.
    pub holes: Vec<FoundHole>,
    /// Store time of the last whole record, in ms.
    pub last_store_ms: i64,
}

/// What a repair did in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairStep {
    /// The file.
    pub path: PathBuf,
    /// First byte: a position of the log in a log file, a byte of the file elsewhere.
    pub position: u64,
    /// Bytes that are of no use any more, or were written again.
    pub length: u64,
    /// What was done.
    pub what: String,
    /// Where the bytes are kept that were there before; `None` where nothing but zeros was there,
    /// or what can be built again from the log.
    pub saved: Option<PathBuf>,
    /// Messages known to be lost: topic, queue, offset.
    pub lost: Vec<(String, u32, u64)>,
}

/// What a repair did, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// What was done, in order.
    pub steps: Vec<RepairStep>,
    /// What is damaged as before.
    pub left: Vec<Damage>,
}

/// A store of messages. Every method may be called from any thread.
///
/// Times are milliseconds since the epoch. Offsets count messages of a queue, positions are bytes
/// of the log (in the memory engine a running number).
pub trait Engine: Send + Sync {
    /// Name of the engine: `commitlog` or `memory`.
    fn name(&self) -> &'static str;

    /// What records of this store share.
    fn style(&self) -> &RecordStyle;

    /// The topics; see [`Engine::refresh`].
    fn topics(&self) -> &Topics;

    /// Looks for topics and messages that another process has added. Nothing to do for a writer.
    fn refresh(&self) -> Result<()>;

    /// [`Engine::refresh`] for the queues of one topic alone.
    fn refresh_topic(&self, name: &str) -> Result<()>;

    /// The topic, created with the default number of queues where it is not there yet.
    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>>;

    /// Creates a topic, or gives an existing one more queues; durable on return.
    fn create_topic(&self, name: &str, queues: u32) -> Result<Arc<Topic>>;

    /// Appends encoded records of `topic` as they stand; see [`Durability`] for what holds on
    /// return.
    fn append(
        &self,
        topic: &Topic,
        batch: &mut Batch,
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended>;

    /// Appends encoded records of several topics, all of them or none, also across a crash. The
    /// places are in the order of the parts.
    fn append_whole(
        &self,
        parts: &mut [(&Topic, &mut Batch)],
        durability: Durability,
    ) -> Result<Appended>;

    /// Takes up what other processes have staged and committed; nothing to do for an engine that
    /// keeps no files. What was taken up is durable on return.
    fn take_commits(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the durable log holds all of a batch of a query, with these contents. `skips`:
    /// whether the batch with other rows, or a higher one, will do.
    fn holds_commit(&self, batch: (&str, u64), contents: Contents, skips: bool) -> Result<bool> {
        let _ = (batch, contents, skips);
        Ok(false)
    }

    /// Whether an append of a record of `len` bytes would, as things stand, neither wait for
    /// another sender nor make a file or reserve blocks. A hint: another sender may come first.
    fn is_ready_for(&self, len: usize) -> bool;

    /// A waiter that is completed when the log is durable up to `end`, the end of an append. Those
    /// who wait at the same time share one sync.
    fn enlist(&self, end: u64) -> Arc<Waiter>;

    /// Makes all that was appended before the call durable and returns the durable position.
    fn flush(&self) -> Result<u64>;

    /// Seals the log file that is written, which has something in it, and makes it durable. Returns
    /// where the next file begins; `None` where there is nothing to seal, or no file.
    fn roll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Position up to which the log is durable.
    fn durable_position(&self) -> u64;

    /// Position behind the last message that a reader may see.
    fn readable_position(&self) -> u64;

    /// Waits until [`Engine::readable_position`] is above `position`, or for `timeout`.
    fn wait_readable(&self, position: u64, timeout: Duration) -> u64;

    /// Queues of a topic that hold or held messages, or that the topic was given.
    fn queues(&self, topic: &Topic) -> Vec<u32>;

    /// Offsets of a queue: first there, next to be written. `None` for a queue that was never used.
    /// All that was readable when the call began is counted.
    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>>;

    /// [`Engine::bounds`] of the messages that lie wholly below a position of the log. With the
    /// durable position these are the offsets that a power loss cannot take back.
    fn bounds_below(&self, topic: &Topic, queue: u32, position: u64) -> Result<Option<Range<u64>>>;

    /// How many messages from `range.start` on fit into `bytes`, by the bytes of their records: the
    /// offset behind the last that does, at most `range.end`, and the bytes of all that do.
    fn fit(&self, topic: &Topic, queue: u32, range: Range<u64>, bytes: u64) -> Result<(u64, u64)>;

    /// Walks `range` of a queue, cut to its bounds.
    fn cursor(
        &self,
        topic: &Topic,
        queue: u32,
        range: Range<u64>,
        filter: &Filter,
        check: Check,
    ) -> Result<Box<dyn Cursor>>;

    /// Walks the whole log in order of position, all topics.
    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>>;

    /// The message at a queue offset; `None` where there is none in the bounds (a filler or a hole
    /// is [`crate::Error::Corrupt`]).
    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>>;

    /// The message whose record begins at `position`.
    fn message_at(&self, position: u64) -> Result<Message>;

    /// Messages with exactly this key, stored in `begin..=end`, newest first, at most `max`.
    fn query(
        &self,
        topic: &Topic,
        key: &str,
        begin: i64,
        end: i64,
        max: usize,
    ) -> Result<Vec<Message>>;

    /// Offset of the first message of a queue stored at or after `time`; the next offset if none
    /// is.
    fn offset_at(&self, topic: &Topic, queue: u32, time: i64) -> Result<u64>;

    /// What opening found and did.
    fn recovery(&self) -> Recovery;

    /// Damage found so far.
    fn damage(&self) -> Vec<Damage>;

    /// What is to be told once: each damaged place when it is met, and slow flushes.
    fn warnings(&self) -> &Arc<Warnings>;

    /// Checks everything. `progress` is called with bytes done and in all; false stops it.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification>;

    /// Log files that nothing is written to any more, all of them durable, oldest first.
    fn sealed_files(&self) -> Result<Vec<SealedFile>>;

    /// What the sealed log file that begins at `start` holds.
    fn survey(&self, start: u64) -> Result<Survey>;

    /// The parts of which a verification may be made up, in any order and any process that has the
    /// store open: [`Engine::verify_stretches`] checks, [`Engine::join_findings`] puts together.
    fn stretches(&self) -> Result<Vec<Stretch>> {
        Err(whole_only())
    }

    /// Checks parts, with a finding for each. `holes` are the holes of the whole log: entries that
    /// lead there count as lost with them. Who does not know them yet passes none, and looks at the
    /// entries again when the log has any.
    fn verify_stretches(&self, parts: &[Stretch], holes: &[Range<u64>]) -> Result<Vec<Finding>> {
        let _ = (parts, holes);
        Err(whole_only())
    }

    /// Makes one verification of the findings of all parts, in the order of [`Engine::stretches`].
    fn join_findings(&self, findings: Vec<Finding>) -> Result<Verification> {
        let _ = findings;
        Err(whole_only())
    }

    /// Saves what is damaged beside the log, and puts right what can be: see [`Repair`]. `progress`
    /// as in [`Engine::verify`]; where it returns false, nothing is changed.
    ///
    /// What was done is durable on return.
    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair>;

    /// Counters; [`Stats::puts`] and [`Stats::rates`] are filled by who owns the engine.
    fn stats(&self) -> Stats;

    /// Messages and bytes appended since opening. Waits for nobody.
    fn counters(&self) -> (u64, u64);

    /// Makes everything durable and lets go of the files. A second call does nothing.
    fn close(&self) -> Result<()>;
}

fn whole_only() -> Error {
    let what = "verifying a store in parts that has no files".to_owned();
    Error::Unsupported { what }
}
