//! RocketMQ's form of a record: [`layout`] reads, [`encode`] writes what [`check`] admits,
//! [`properties`] is their map of names and values and [`text`] what it says, [`compressed`] undoes
//! the compression of brokers, [`staged`] takes over what was encoded elsewhere, [`contents`] tells
//! rows of a batch from others, [`unique_id`] makes ids.

pub mod check;
pub mod compressed;
pub mod contents;
pub mod encode;
pub mod layout;
pub mod properties;
pub mod staged;
pub mod text;
pub mod unique_id;

pub use encode::Batch;
pub use layout::{Freshness, Layout, Record};
