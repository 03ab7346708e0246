//! Records: the bytes of one message in the log. [`common`] is what every form of a record has,
//! [`rocketmq`] is RocketMQ's form, [`coded`] is what records hold that is no text, [`message`] is
//! a record that a caller can keep, [`contents`] tells the rows of a batch from others.

pub mod coded;
pub mod common;
pub mod contents;
pub mod message;
pub mod rocketmq;

pub use common::Draft;
pub use contents::Contents;
pub use message::Message;
pub use rocketmq::{Batch, Flaw, Freshness, HostBytes, Layout, Record, RecordStyle};

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;
