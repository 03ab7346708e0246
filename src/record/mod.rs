//! Records: the bytes of one message in a log. A record has the form of the store that keeps it.
//! [`rocketmq`] is RocketMQ's form, [`common`] is what every form has.
//!
//! Above the engines nobody knows a form: a [`Batch`] is encoded into, a [`Row`] is read, a
//! [`Layout`] tells where the parts of a record lie, and a [`Message`] is a record that a caller
//! can keep. All but the message are enums over the forms, so that an access is a branch and no
//! virtual call.

pub mod batch;
pub mod common;
pub mod layout;
pub mod message;
pub mod rocketmq;
pub mod row;

pub use batch::Batch;
pub use common::check::{check_topic, flaw_of_property, is_key};
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
