//! Forebay: a durable message log inside a process, in RocketMQ's file formats.
//!
//! One way down, nothing reaches up:
//!
//! | layer | module |
//! |---|---|
//! | bindings for Python | `python` (feature `python`) |
//! | request API | [`store`], [`producer`], [`scan`], [`tail`], [`ticket`] |
//! | around stores | [`archive`], [`stages`] |
//! | Arrow | [`arrow`] |
//! | engines | [`engine`] |
//! | records | [`record`] |
//! | mapped files | [`mapped`] |
//! | disk, clock, and who runs the services | [`disk`], [`clock`], [`machine`] |
//!
//! What is measured on the way stands in [`meter`], what is to be told once in [`warning`].

#![allow(missing_docs)]
pub mod archive;
pub mod arrow;
pub mod clock;
pub mod damage;
pub mod disk;
pub mod engine;
pub mod error;
mod handle;
pub mod machine;
pub mod mapped;
pub mod meter;
mod num;
pub mod options;
mod plant;
pub mod producer;
#[cfg(feature = "python")]
mod python;
pub mod record;
pub mod scan;
#[cfg(test)]
mod sim;
pub mod stages;
pub mod store;
mod sync;
pub mod tail;
pub mod ticket;
pub mod warning;

pub use arrow::{BodyType, Column, Dialect, Imported, Stream, send_arrow};
pub use engine::commit_log::piecemeal;
pub use engine::commit_log::{Epoch, Epochs};
pub use engine::{
    Atomicity, Check, Damage, DamageKind, Durability, Engine, Filter, Finding, Recovery, Repair,
    RepairStep, Stats, Stretch, Topic, Verification,
};
pub use error::{Error, Result};
pub use meter::{Latency, SlowPut};
pub use options::{AppendLockKind, EngineKind, Flush, Mode, Options};
pub use producer::{BatchSender, Producer};
pub use record::{Draft, Message};
pub use scan::{Bound, Scan, ScanSpec};
pub use store::{ReadBatch, ReadStatus, Store};
pub use tail::Tail;
pub use ticket::{Sent, Ticket};
pub use warning::Warning;
