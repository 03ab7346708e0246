//! Engines store messages. [`Engine`] is what every engine can do; [`Files`] is what engines that
//! keep files can do in addition. [`commit_log`] keeps RocketMQ's files, [`partition_log`] reads
//! Kafka's, [`memory`] keeps none.
//! They share the directory of a store ([`directory`]), services that know no file format
//! ([`service`]), and the tables of an archive ([`archive`]).

pub mod append;
pub mod archive;
pub mod commit_log;
pub mod compacted;
pub(crate) mod directory;
pub mod files;
pub mod meanings;
pub mod memory;
pub mod partition_log;
pub mod report;
pub mod rows;
pub(crate) mod service;
pub mod stats;
pub mod topic;
pub mod verification;
pub mod waiter;

pub use crate::damage::{Damage, DamageKind};
pub use append::{Appended, Atomicity, Durability, Place};
pub use compacted::Compacted;
pub use files::Files;
pub use meanings::Meanings;
pub use report::Report;
pub use rows::{COPIED_MAX, Check, Cursor, Filter, Point, RowRef, Rows, STEP};
pub use stats::{Recovery, Stats};
pub use topic::{Topic, Topics};
pub use verification::{Finding, FoundHole, Repair, RepairStep, Stretch, Verification};
pub use waiter::{Listener, Waiter};

use crate::error::Result;
use crate::record::id::position_of_id;
use crate::record::{Batch, Message, check_topic, java_hash};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

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

    /// Name of the engine: `commitlog`, `partitionlog` or `memory`.
    fn name(&self) -> &'static str;

    /// An empty batch to encode records of this store into. Does not allocate.
    fn batch(&self) -> Batch;

    /// Operations on the files of the store; `None` if the engine keeps no files.
    fn files(&self) -> Option<&dyn Files>;

    /// Makes everything durable and closes the files. A second call does nothing.
    fn close(&self) -> Result<()>;

    // Topics and their queues.

    /// The known topics. Another process may have added more: see [`Engine::refresh`].
    fn topics(&self) -> &Topics;

    /// Finds messages, queues and topics that another process has added, for the topic with this
    /// name or for all topics. Does nothing if this process writes the store.
    fn refresh(&self, topic: Option<&str>) -> Result<()>;

    /// Refuses what this engine does not have, although it can be written.
    ///
    /// # Errors
    ///
    /// [`crate::error::Error::Unsupported`].
    fn refuse(&self, what: &str) -> Result<()> {
        let _ = what;
        Ok(())
    }

    /// Checks the name of a topic that users send to.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidTopic`] with the violated rule.
    fn check_topic(&self, name: &str) -> Result<()> {
        check_topic(name)
    }

    /// What differs from other engines.
    fn meanings(&self) -> &'static Meanings {
        &Meanings::ONE_LOG
    }

    /// The queue of a message with this key, among `queues`.
    fn queue_of_key(&self, key: &[u8], queues: u32) -> u32 {
        let hash = java_hash(key).cast_unsigned() & 0x7FFF_FFFF;
        hash % queues.max(1)
    }

    /// Whether a message without a key is refused, because the topic is compacted.
    fn needs_key(&self, topic: &Topic) -> bool {
        let _ = topic;
        false
    }

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

    /// Whether an append of a record of `len` bytes could proceed without waiting for another
    /// sender, creating a file or reserving blocks. A hint: another sender may come first.
    fn is_ready_for(&self, len: usize) -> bool;

    // Making durable.

    /// Returns a waiter that completes when the log is durable up to `end`, the end of an append.
    /// Concurrent waiters share one sync.
    fn enlist(&self, end: u64) -> Arc<Waiter>;

    /// Makes everything appended before the call durable, and returns the durable position.
    fn flush(&self) -> Result<u64>;

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

    /// Bytes of the messages from an offset on, which must be within the bounds: of their records,
    /// or where records share a batch, about those of their batches.
    fn bytes_from(&self, topic: &Topic, queue: u32, offset: u64) -> Result<u64> {
        let end = self.bounds(topic, queue)?.map_or(offset, |it| it.end);
        let range = offset..end.max(offset);
        self.fit(topic, queue, range, u64::MAX)
            .map(|(_, bytes)| bytes)
    }

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

    /// At most `max` messages with exactly this key, stored in `begin..=end`, newest first.
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
    /// closes; at most for `timeout`. Returns the readable position. The thread that makes `done`
    /// hold calls [`Engine::wake`] afterwards.
    fn wait_until(&self, position: u64, timeout: Duration, done: &dyn Fn() -> bool) -> u64;

    /// Makes all threads in [`Engine::wait_until`] check again whether they are done.
    fn wake(&self);

    /// Returns a cursor over the whole log, all topics, in order of position.
    fn log_cursor(&self, check: Check) -> Result<Box<dyn Cursor>>;

    /// The message whose record begins at `position`.
    fn message_at(&self, position: u64) -> Result<Message>;

    /// The message with this id.
    fn message_with_id(&self, id: &str) -> Result<Message> {
        self.message_at(position_of_id(id)?)
    }

    // The state of the store.

    /// What opening found and repaired.
    fn recovery(&self) -> Recovery;

    /// Known damage, and warnings.
    fn report(&self) -> &Report;

    /// Checks everything. `progress` receives the bytes done and the total; if it returns false,
    /// the check stops.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification>;

    /// Drops messages that have a later one with the same key, of all topics that are compacted or
    /// of one of them. `progress` receives the bytes done and the total; if it returns false,
    /// compaction stops.
    ///
    /// # Errors
    ///
    /// [`crate::error::Error::Unsupported`] unless the engine keeps a log for each queue.
    fn compact(
        &self,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        let _ = (topic, progress);
        Err(crate::error::Error::Unsupported {
            what: format!("compaction in the engine {}", self.name()),
        })
    }

    /// Raises the first offsets of queues: messages before them are deleted, and log files that
    /// hold no others. An offset that is lower than the first one changes nothing. Durable on
    /// return. The offsets are at most the next to be written.
    ///
    /// # Errors
    ///
    /// As [`Engine::compact`]; [`crate::Error::UnknownQueue`].
    fn delete_before(&self, topic: &Topic, starts: &[(u32, u64)]) -> Result<()> {
        let _ = (topic, starts);
        Err(crate::error::Error::Unsupported {
            what: format!(
                "deleting messages of one queue in the engine {}",
                self.name()
            ),
        })
    }

    /// Counters. The owner of the engine fills in [`Stats::puts`] and [`Stats::rates`].
    fn stats(&self) -> Stats;

    /// Messages and bytes appended since opening. Never blocks.
    fn counters(&self) -> (u64, u64);
}

impl dyn Engine + '_ {
    /// [`Engine::wait_until`] without another condition.
    pub fn wait_readable(&self, position: u64, timeout: Duration) -> u64 {
        self.wait_until(position, timeout, &|| false)
    }

    /// [`Engine::bounds`] of the messages that lie entirely below a position of the log. Given the
    /// durable position, these are the offsets that survive a power loss.
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
