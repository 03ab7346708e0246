//! Engines store messages. [`Engine`] has the methods of every engine. [`Files`] adds those of an
//! engine with a single log in files, [`QueueLogs`] those of one with a log for each queue, and
//! [`Staging`] those of one that appends rows staged by other processes. [`Meanings`] states what
//! differs between engines for their users. [`commit_log`] keeps RocketMQ's files,
//! [`partition_log`] Kafka's, [`memory`] keeps none. They share the directory of a store
//! ([`directory`]), services that know no file format ([`service`]), and the tables of an archive
//! ([`archive`]).

pub mod append;
pub mod archive;
pub mod commit_log;
pub mod compacted;
mod derived;
pub(crate) mod directory;
pub mod fetched;
pub mod files;
pub mod linger;
pub mod meanings;
pub mod memory;
pub mod partition_log;
pub mod queue_logs;
pub mod report;
pub mod rows;
pub(crate) mod service;
pub mod staging;
pub mod stats;
pub mod topic;
pub mod verification;
pub mod waiter;

pub use crate::damage::{Damage, DamageKind};
pub use append::{Appended, Atomicity, Durability, Place};
pub use compacted::{Compacted, Keyless};
pub use files::Files;
pub use linger::{Linger, Lingering};
pub(crate) use meanings::Address;
pub use meanings::Meanings;
pub use queue_logs::QueueLogs;
pub use report::Report;
pub use rows::{COPIED_MAX, Check, Cursor, Filter, Point, RowRef, Rows, STEP};
pub use staging::Staging;
pub use stats::{Recovery, Stats};
pub use topic::{Topic, Topics};
pub use verification::{Finding, FoundHole, Repair, RepairStep, Stretch, Verification};
pub use waiter::{Listener, Waiter};

use crate::error::Result;
use crate::meter::Meters;
use crate::record::{Batch, Form, Message};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What only some engines can do; see the methods of [`Engine`] with these names.
#[derive(Default)]
pub struct Abilities<'a> {
    pub files: Option<&'a dyn Files>,
    pub queue_logs: Option<&'a dyn QueueLogs>,
    pub staging: Option<&'a dyn Staging>,
}

/// A store of messages. Every method may be called from any thread.
///
/// A topic has queues, and a message has an *offset* in its queue: 0, 1, 2, and so on. The *log*
/// holds the messages of all queues in the order in which they were appended. The *position* of a
/// message in the log counts bytes (in the memory engine, messages). Times are milliseconds since
/// the epoch.
///
/// The log has three ends: the end of all appended messages, the end of the messages that readers
/// may see ([`Engine::readable_position`]), and the end of the messages that survive a power loss
/// ([`Engine::durable_position`]).
pub trait Engine: Send + Sync {
    // The store as a whole.

    /// What differs from other engines: names, times, keys and positions.
    fn meanings(&self) -> &'static Meanings;

    /// The form of this store's records.
    fn form(&self) -> Form;

    /// What only some engines can do.
    fn abilities(&self) -> Abilities<'_> {
        Abilities::default()
    }

    /// Shows the measurements of this process to processes that read the store, from time to time;
    /// see [`Stats::writer`]. May be called once.
    fn show_meters(&self, _meters: &Arc<Meters>) {}

    /// Makes everything durable and closes the files. A second call does nothing.
    fn close(&self) -> Result<()>;

    // Topics and their queues.

    /// The known topics. Another process may have added more: see [`Engine::refresh`].
    fn topics(&self) -> &Topics;

    /// Finds messages, queues and topics that another process has added, for the topic with this
    /// name or for all topics. Does nothing if this process writes the store.
    fn refresh(&self, topic: Option<&str>) -> Result<()>;

    /// Returns the topic. Creates it with the default number of queues if it does not exist.
    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>>;

    /// Creates a topic, or adds queues to an existing one. Durable on return; with
    /// [`Durability::Written`], soon after.
    fn create_topic(&self, name: &str, queues: u32, durability: Durability) -> Result<Arc<Topic>>;

    /// Queues of a topic that exist in its table or have ever held messages.
    fn queues(&self, topic: &Topic) -> Vec<u32>;

    // Appending.

    /// Appends encoded records unchanged, each batch to its topic. `atomicity` applies to all
    /// batches together. `durability` says what is guaranteed on return. The places are in the
    /// order of the batches.
    fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended>;

    /// Whether an append of a record of `len` bytes to a queue, or to any queue of the topic, could
    /// proceed without waiting for another sender, creating a file or reserving blocks. A hint:
    /// another sender may come first.
    fn is_ready_for(&self, topic: &Topic, queue: Option<u32>, len: usize) -> bool;

    // Making durable.

    /// Returns a waiter that completes when the log is durable up to `end`, the end of an append.
    /// Concurrent waiters share one sync.
    fn enlist(&self, end: u64) -> Arc<Waiter>;

    /// Makes everything appended before the call durable, and returns the durable position. Where
    /// another process flushes, calls `go_on` now and then while it waits for it; once that returns
    /// false, the wait ends.
    fn flush(&self, go_on: &mut dyn FnMut() -> bool) -> Result<u64>;

    /// Position up to which the log is durable.
    fn durable_position(&self) -> u64;

    // Reading a queue.

    /// Offsets of a queue: from the first that exists to the next to be written. `None` for a queue
    /// that was never used. Covers everything that was readable when the call began.
    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>>;

    /// Offset of the first message of a queue at or after a [`Point`]; the next offset to be
    /// written if there is none.
    fn offset_at(&self, topic: &Topic, queue: u32, point: Point) -> Result<u64>;

    /// How many messages from `range.start` on fit into `bytes`, measured by their records. Returns
    /// the offset after the last one that fits, at most `range.end`, and the bytes of all that fit.
    fn fit(&self, topic: &Topic, queue: u32, range: Range<u64>, bytes: u64) -> Result<(u64, u64)>;

    /// Returns a cursor over `range` of a queue, cut to its bounds.
    fn cursor(
        &self,
        topic: &Topic,
        queue: u32,
        range: Range<u64>,
        filter: &Filter,
        check: Check,
    ) -> Result<Box<dyn Cursor>>;

    /// The message at a queue offset; `None` outside the bounds. A filler or a hole is
    /// [`crate::Error::Corrupt`].
    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>>;

    /// At most `max` messages with exactly this key, stored in `begin..=end`, newest first. An
    /// engine without an index reads much; once `go_on` returns false, it ends with what it has.
    /// Where keys are text, no message has a key that is not UTF-8.
    fn query(
        &self,
        topic: &Topic,
        key: &[u8],
        begin: i64,
        end: i64,
        max: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Message>>;

    // Reading the log.

    /// Position after the last message that a reader may see.
    fn readable_position(&self) -> u64;

    /// A time that the wall clock has reached, even if it was set back since: the store time of the
    /// newest message, in ms. `None` if the engine does not keep it.
    fn newest_stored_ms(&self) -> Option<i64> {
        None
    }

    /// Waits until [`Engine::readable_position`] is above `position`, `done` holds or the store
    /// closes; at most for `timeout`. Returns the readable position. The thread that makes `done`
    /// hold calls [`Engine::wake`] afterwards.
    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64;

    /// Makes all threads in [`Engine::wait_until`] check again whether they are done.
    fn wake(&self);

    /// Returns a cursor over the whole log, all topics, in order of position.
    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>>;

    /// The message whose record begins at `position`.
    fn message_at(&self, position: u64) -> Result<Message>;

    // The state of the store.

    /// What opening found and repaired, known damage, and warnings.
    fn report(&self) -> &Report;

    /// Checks everything. `progress` receives the bytes done and the total; if it returns false,
    /// the check stops.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification>;

    /// Counters. The owner of the engine fills in [`Stats::puts`] and [`Stats::rates`].
    fn stats(&self) -> Stats;

    /// Messages and bytes appended since opening. Never blocks.
    fn counters(&self) -> (u64, u64);
}
