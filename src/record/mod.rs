//! Records: the bytes of one message in the log. [`layout`] reads, [`encode`] writes what [`check`]
//! admits, [`properties`] is their map of names and values, [`coded`] is what they hold that is no
//! text, [`message`] is a record that a caller can keep,
//! [`contents`] tells the rows of a batch from others.

pub mod check;
pub mod coded;
pub mod contents;
pub mod draft;
pub mod encode;
pub mod layout;
pub mod message;
pub mod properties;
pub mod unique_id;

pub use contents::Contents;
pub use draft::Draft;
pub use encode::{Batch, HostBytes, RecordStyle};
pub use layout::{Flaw, Freshness, Layout, Record};
pub use message::Message;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;
