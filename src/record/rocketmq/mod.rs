//! RocketMQ's form of a record. [`layout`] reads and [`encode`] writes records, with `sink` for the
//! fields and `checksum`. [`check`] measures properties, [`properties`] parses and [`text`]
//! interprets them. [`compressed`] decompresses bodies that brokers compressed. [`staged`] adds
//! records that were encoded elsewhere. [`contents`] computes the fingerprint of a row.
//! [`unique_id`] makes ids.

pub mod check;
mod checksum;
pub mod compressed;
pub mod contents;
pub mod encode;
pub mod layout;
pub mod properties;
mod sink;
pub mod staged;
pub mod text;
pub mod unique_id;

pub use encode::Batch;
pub use layout::{Freshness, Layout, Record};
