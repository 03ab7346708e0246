//! Tables: small JSON files, RocketMQ's and Forebay's own.
//!
//! Anybody may have written one. It is read up to a length, with names that are numbers without
//! quotes as RocketMQ writes them, and what is no table says why. It is replaced durably and as a
//! whole, RocketMQ's with the backup `.bak` that it reads where the table itself cannot be read.

mod file;
pub mod json;
pub mod levels;
pub mod offsets;
pub mod pending;
mod place;
mod reason;
pub mod subscriptions;
pub mod timer;
mod version;

pub use file::{Loaded, TABLE_LEN_MAX, load, load_with_backup, replace_known, replace_with_backup};
pub use place::TablePlace;
pub use reason::Reason;
pub use version::raise_version;
