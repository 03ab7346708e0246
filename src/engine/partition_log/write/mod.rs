//! Writing a partition log.
//!
//! From the top down: [`open`] opens a directory, and [`services`] is the thread that flushes.
//! [`parts`] appends, and [`unsynced`] syncs. [`tail`] has the ends of all partitions under the
//! append lock: [`writing`] is the end of one, [`last`] its last segment, and [`indexes`] its
//! indexes. [`linger`] has the batches of messages that linger. [`recovery`] repairs a partition
//! when it is opened, [`follow`] the files that a broker keeps beside it. [`ends`] tells readers
//! where a partition begins and ends, [`files`] are the small files, and [`rules`] the options.
//! [`swap`] replaces segments. [`intent`] makes a batch of several partitions atomic.

pub mod ends;
pub mod files;
mod follow;
pub mod indexes;
pub mod intent;
mod last;
pub mod linger;
mod open;
pub mod parts;
mod recovery;
pub mod rules;
pub mod services;
pub mod swap;
pub mod tail;
mod unsynced;
mod writing;

pub use open::{Opened, Writer};
