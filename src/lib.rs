//! Forebay: a durable message log inside a process, in RocketMQ's file formats.
//!
//! One way down, nothing reaches up:
//!
//! | layer | module |
//! |---|---|
//! | bindings for Python | `python` (feature `python`) |
//! | request API | [`store`], [`producer`], [`scan`], [`tail`], [`ticket`] |
//! | Arrow | [`arrow`] |
//! | engines | [`engine`] |
//! | records | [`record`] |
//! | mapped files | [`mapped`] |
//! | disk | [`disk`] |

#![allow(missing_docs)]
pub mod arrow;
pub mod disk;
pub mod engine;
pub mod error;
pub mod mapped;
mod num;
pub mod options;
pub mod producer;
#[cfg(feature = "python")]
mod python;
pub mod record;
pub mod scan;
pub mod store;
pub mod tail;
pub mod ticket;

pub use arrow::{BodyType, Column, Dialect, Imported, Stream, send_arrow};
pub use engine::{
    Atomicity, Check, Damage, Durability, Engine, Filter, Recovery, Stats, Topic, Verification,
};
pub use error::{Error, Result};
pub use options::{EngineKind, Flush, Mode, Options};
pub use producer::{BatchSender, Producer, Sent};
pub use record::{Draft, Message};
pub use scan::{Bound, Scan, ScanSpec};
pub use store::{ReadBatch, ReadStatus, Store};
pub use tail::Tail;
pub use ticket::Ticket;
