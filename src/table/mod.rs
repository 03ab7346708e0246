//! Tables: small JSON files, RocketMQ's and Forebay's own.
//!
//! Another system may have written a table. Its length is limited, its names may be numbers without
//! quotes, as RocketMQ writes them, and a file that is not a table is reported with the reason. A
//! table is replaced durably and as a whole. RocketMQ's tables keep a backup `.bak`, which RocketMQ
//! reads if the table itself cannot be read.

pub mod archives;
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
