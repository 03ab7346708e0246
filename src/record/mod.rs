//! Records: the bytes of one message in a log. The form of a record depends on the store.
//! [`rocketmq`] is RocketMQ's form, [`kafka`] Kafka's; [`common`] is shared by all forms.
//!
//! Code above the engines does not depend on the form. It encodes into a [`Batch`], reads a
//! [`Row`], finds the parts of a record by its [`Layout`], and keeps a record as a [`Message`]. All
//! but the message are enums over the forms, so each access costs a branch instead of a virtual
//! call.

pub mod batch;
pub mod common;
mod copy_coded;
pub mod kafka;
pub mod layout;
pub mod message;
pub mod rocketmq;
pub mod row;

pub use batch::{Batch, Form};
pub use common::check::{check_is_users, check_topic, check_topic_name};
pub use common::{
    Contents, Copied, Draft, Flaw, HostBytes, Labels, PropertyKind, RecordStyle, coded, id,
    java_hash, names,
};
pub use layout::Layout;
pub use message::Message;
pub use row::Row;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;
