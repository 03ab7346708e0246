//! Forebay: a durable message log inside a process, in RocketMQ's or Kafka's files.
//!
//! ```
//! use forebay::{Draft, Durability, Filter, Options, Store};
//!
//! # fn main() -> forebay::Result<()> {
//! let store = Store::open(":memory:", Options::default())?;
//! let orders = store.producer("orders", Some(0))?;
//! let draft = Draft {
//!     body: b"two apples",
//!     ..Draft::default()
//! };
//! let sent = orders.send(&draft, 0, Durability::Flushed)?;
//!
//! let read = store.read("orders", 0, 0, 32, None, &Filter::default())?;
//! assert_eq!(read.messages.len(), 1);
//! for message in &read.messages {
//!     assert_eq!(*message.body()?, *b"two apples");
//! }
//! assert_eq!(sent.place.offset + 1, read.next_offset);
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Each layer uses the layers below it and none above:
//!
//! | layer | modules |
//! |---|---|
//! | bindings for Python | `python` (feature `python`) |
//! | around stores: [`BlockTable`], [`convert_store`] | `archive`, `convert` |
//! | waits of event loops: [`Notices`], [`Watch`] | `notices` |
//! | request API: [`Store`], [`Scan`], [`Tail`] | `store`, `scan`, `tail` |
//! | consumers: [`Consumer`] | `consumer` |
//! | rows of other processes: [`Stager`], [`commit`] | `stages` |
//! | Arrow: [`Stream`], [`send_arrow`], [`ffi`] | `arrow` |
//! | sending: [`Producer`], [`Ticket`] | `producer`, `bound`, `claims`, `handle`, `ticket` |
//! | engines: [`Engine`], [`offline`] | `engine` |
//! | records: [`Draft`], [`Batch`], [`Message`], [`Row`] | `record` |
//! | mapped files | `mapped` |
//! | small JSON tables | `table` |
//! | [`Disk`], clock, what runs the services | `disk`, `clock`, `machine` |
//! | mapped bytes | `region` |
//!
//! `meter` measures the calls through the layers ([`Stats`]), and `warning` keeps problems that are
//! reported to a caller once ([`Warning`]).

mod archive;
mod arrow;
mod bound;
mod claims;
mod cleanup;
mod clock;
mod consumer;
mod convert;
mod damage;
mod disk;
mod engine;
mod error;
mod handle;
#[cfg(feature = "internals")]
pub mod internals;
#[cfg_attr(
    not(feature = "python"),
    allow(dead_code, reason = "only Python interrupts")
)]
mod interrupt;
mod machine;
mod mapped;
mod meter;
mod notices;
mod num;
mod options;
mod plant;
mod producer;
#[cfg(all(feature = "python", not(test)))]
mod python;
mod record;
mod region;
mod scan;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod sim;
mod stages;
mod store;
mod sync;
mod table;
mod tail;
#[cfg(test)]
mod tests;
mod ticket;
mod warning;

pub use crate::engine::commit_log::offline;
pub use archive::{
    Block, BlockTable, Blocks, Damages, QueueRange, SealedFile, SealedSegment, SegmentSurvey,
    Survey, Wanted,
};
pub use arrow::{
    BodyType, Chain, Column, Dialect, Imported, Interrupt, NextStream, Stream, ffi, send_arrow,
};
pub use bound::{Bound, Bounded};
pub use cleanup::{CleanupPolicy, Compaction, Policy};
pub use clock::{Clock, ManualClock};
pub use consumer::{
    ATTEMPTS_MAX, Assigned, Consumer, ConsumerOptions, Delivery, GroupQueue, Order, Polled,
    ProgressRow, Receipt, Start,
};
pub use convert::{ConvertSpec, Converted, NameMap, convert_store};
pub use disk::{Disk, FileSystem, RealDisk};
pub use engine::commit_log::{Epoch, Epochs};
pub use engine::topic::{PERMISSION_READ, PERMISSION_WRITE};
pub use engine::{
    Appended, Atomicity, COPIED_MAX, Check, Compacted, Cursor, Damage, DamageKind, Durability,
    Engine, Files, Filter, Finding, FoundHole, Keyless, Linger, Lingering, Listener, Meanings,
    Place, Point, QueueLogs, Recovery, Repair, RepairStep, Rows, Staging, Stats, Stretch, Topic,
    Verification, Waiter,
};
pub use error::{Awaited, Error, Reason, Result};
#[cfg(all(feature = "python", not(test)))]
pub(crate) use interrupt::{
    SLICE as INTERRUPT_SLICE, allow as allow_interrupts, is_raised as is_interrupted,
};
pub use meter::{Latency, SlowPut, Summary, WriterStats};
pub use notices::{Notices, Watch};
pub use options::{
    AppendLockKind, Compression, DelayLevels, EngineKind, Flush, Isolation, Mode, Options,
    TOPIC_QUEUES_MAX, TimestampType,
};
pub use producer::{ATOMIC_BATCH_LEN_MAX, BATCH_LEN_MAX, BatchSender, Delay, Producer};
pub use record::common::check::BODY_LEN_MAX;
pub use record::id::message_id;
pub use record::names::{SCHEDULE_TOPIC, TIMER_TOPIC};
pub use record::{Batch, Draft, Flaw, HostBytes, Message, PropertyKind, Row, check_topic};
pub use scan::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, Scan, ScanSpec};
pub use stages::{
    Commit, CommitKind, CommitState, Conflict, Contents, Published, Resolution, Stage, Stager,
    check_target, commit,
};
pub use store::{ReadBatch, ReadStatus, Store, record_progress};
#[cfg(all(feature = "python", not(test)))]
pub(crate) use sync::{Mutex, TimedMutex};
pub use tail::{AtEnd, Step, Tail, TailCloser};
pub use ticket::{BatchTicket, Sent, Ticket, TicketOf};
pub use warning::Warning;
