//! Engines store messages. [`Engine`] is what each of them can do, and [`Files`] what those can do
//! besides that keep files: [`commit_log`] keeps RocketMQ's, [`memory`] keeps none. What every
//! engine shares: a store's directory ([`directory`]), services that know no file format
//! ([`service`]), and the tables of an archive ([`archive`]).

pub mod append;
pub mod archive;
pub mod commit_log;
pub(crate) mod directory;
pub mod files;
pub mod memory;
pub mod report;
pub mod rows;
pub(crate) mod service;
pub mod stats;
pub mod topic;
pub mod verification;
pub mod waiter;

pub use crate::damage::{Damage, DamageKind};
pub use append::{Appended, Atomicity, Durability, Place};
pub use files::Files;
pub use report::Report;
pub use rows::{Check, Cursor, Filter, Point, RowRef, Rows};
pub use stats::{Recovery, Stats};
pub use topic::{Topic, Topics};
pub use verification::{Finding, FoundHole, Repair, RepairStep, Stretch, Verification};
pub use waiter::Waiter;

use crate::error::Result;
use crate::record::{Batch, Message};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A store of messages. Every method may be called from any thread.
///
/// A topic has queues, and a message has an *offset* in its queue: 0, 1, 2, and so on. The *log*
/// holds the messages of all queues in the order in which they were appended. A message has a
/// *position* there, which counts bytes (in the memory engine messages). Times are milliseconds
/// since the epoch.
///
/// The log has three ends: that of all messages appended, that of the messages that readers may see
/// ([`Engine::readable_position`]), and that of the messages that a power loss cannot take back
/// ([`Engine::durable_position`]).
pub trait Engine: Send + Sync {
    // The store as a whole.

    /// Name of the engine: `commitlog` or `memory`.
    fn name(&self) -> &'static str;

    /// An empty batch, to encode records of this store into. Does not allocate.
    fn batch(&self) -> Batch;

    /// What can be done with the files of the store; `None` where the engine keeps no files.
    fn files(&self) -> Option<&dyn Files>;

    /// Makes everything durable and lets go of the files. A second call does nothing.
    fn close(&self) -> Result<()>;

    // Topics and their queues.

    /// The topics that are known. Another process may have added some: see [`Engine::refresh`].
    fn topics(&self) -> &Topics;

    /// Looks for messages, queues and topics that another process has added: of the topic with this
    /// name, or of all topics. Does nothing where this process writes the store.
    fn refresh(&self, topic: Option<&str>) -> Result<()>;

    /// The topic, created with the default number of queues where it is not there yet.
    fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>>;

    /// Creates a topic, or gives an existing one more queues. Durable on return, but with
    /// [`Durability::Written`] soon after.
    fn create_topic(&self, name: &str, queues: u32, durability: Durability) -> Result<Arc<Topic>>;

    /// Queues of a topic that hold or held messages, or that the topic was given.
    fn queues(&self, topic: &Topic) -> Vec<u32>;

    // Appending.

    /// Appends encoded records as they stand, each batch to its topic. `atomicity` holds for all
    /// batches together, `durability` says what holds on return. The places are in the order of the
    /// batches.
    fn append(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended>;

    /// Whether an append of a record of `len` bytes would, as things stand, neither wait for
    /// another sender nor make a file or reserve blocks. A hint: another sender may come first.
    fn is_ready_for(&self, len: usize) -> bool;

    // Making durable.

    /// A waiter that is completed when the log is durable up to `end`, the end of an append. Those
    /// who wait at the same time share one sync.
    fn enlist(&self, end: u64) -> Arc<Waiter>;

    /// Makes all that was appended before the call durable and returns the durable position.
    fn flush(&self) -> Result<u64>;

    /// Position up to which the log is durable.
    fn durable_position(&self) -> u64;

    // Reading a queue.

    /// Offsets of a queue: first there, next to be written. `None` for a queue that was never used.
    /// All that was readable when the call began is counted.
    fn bounds(&self, topic: &Topic, queue: u32) -> Result<Option<Range<u64>>>;

    /// Offset of the first message of a queue that does not lie before a [`Point`]; the next offset
    /// if all do.
    fn offset_at(&self, topic: &Topic, queue: u32, point: Point) -> Result<u64>;

    /// How many messages from `range.start` on fit into `bytes`, by the bytes of their records: the
    /// offset after the last that does, at most `range.end`, and the bytes of all that do.
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

    /// The message at a queue offset; `None` where there is none in the bounds (a filler or a hole
    /// is [`crate::Error::Corrupt`]).
    fn get(&self, topic: &Topic, queue: u32, offset: u64) -> Result<Option<Message>>;

    /// Messages with exactly this key, stored in `begin..=end`, newest first, at most `max`.
    fn query(
        &self,
        topic: &Topic,
        key: &str,
        begin: i64,
        end: i64,
        max: usize,
    ) -> Result<Vec<Message>>;

    // Reading the log.

    /// Position after the last message that a reader may see.
    fn readable_position(&self) -> u64;

    /// Waits until [`Engine::readable_position`] is above `position`, `done` holds or the store
    /// closes; at most for `timeout`. Returns the readable position. Who makes `done` hold calls
    /// [`Engine::wake`] afterwards.
    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64;

    /// Has all who wait in [`Engine::wait_until`] check again whether they are done.
    fn wake(&self);

    /// Walks the whole log in order of position, all topics.
    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>>;

    /// The message whose record begins at `position`.
    fn message_at(&self, position: u64) -> Result<Message>;

    // The state of the store.

    /// What opening found and did.
    fn recovery(&self) -> Recovery;

    /// Damage found so far, and warnings.
    fn report(&self) -> &Report;

    /// Checks everything. `progress` is called with bytes done and in all; false stops it.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification>;

    /// Counters; [`Stats::puts`] and [`Stats::rates`] are filled by who owns the engine.
    fn stats(&self) -> Stats;

    /// Messages and bytes appended since opening. Waits for nobody.
    fn counters(&self) -> (u64, u64);
}

impl dyn Engine + '_ {
    /// [`Engine::wait_until`] for what is readable alone.
    pub fn wait_readable(&self, position: u64, timeout: Duration) -> u64 {
        self.wait_until(position, timeout, &|| false)
    }

    /// [`Engine::bounds`] of the messages that lie wholly below a position of the log. With the
    /// durable position these are the offsets that a power loss cannot take back.
    pub fn bounds_below(
        &self,
        topic: &Topic,
        queue: u32,
        position: u64,
    ) -> Result<Option<Range<u64>>> {
        match self.bounds(topic, queue)? {
            Some(bounds) if !bounds.is_empty() => {
                let end = self.offset_at(topic, queue, Point::Position(position))?;
                Ok(Some(bounds.start.min(end)..end))
            }
            bounds => Ok(bounds),
        }
    }
}
