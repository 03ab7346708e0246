//! RocketMQ's form of a record: [`layout`] reads, [`encode`] writes what [`check`] admits,
//! [`properties`] is their map of names and values.

pub mod check;
pub mod encode;
pub mod layout;
pub mod properties;
pub mod unique_id;

pub use encode::{Batch, HostBytes, RecordStyle};
pub use layout::{Flaw, Freshness, Layout, Record};
