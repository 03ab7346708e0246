//! Engines store messages. [`Engine`] is their one surface; [`commit_log`] keeps RocketMQ's files,
//! [`memory`] keeps none. What every engine shares: a store's directory ([`directory`]), services
//! that know no file format ([`service`]), and the tables of an archive ([`archive`]).

pub mod append;
pub mod archive;
pub mod commit_log;
pub(crate) mod directory;
pub mod memory;
pub mod rows;
pub(crate) mod service;
pub mod stats;
pub mod topic;
pub mod verification;
pub mod waiter;

pub use crate::damage::{Damage, DamageKind};
pub use append::{Appended, Atomicity, Durability, Place};
pub use rows::{Check, Cursor, Filter, RowRef, Rows};
pub use stats::{Recovery, Stats};
pub use topic::{Topic, Topics};
pub use verification::{Finding, FoundHole, Repair, RepairStep, Stretch, Verification};
pub use waiter::Waiter;

use crate::error::{Error, Result};
use crate::record::{Batch, Contents, Message, RecordStyle};
use crate::warning::Warnings;
use archive::{SealedFile, Survey};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

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

    /// Position after the last message that a reader may see.
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
