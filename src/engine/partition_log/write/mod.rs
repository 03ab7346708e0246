//! Writing a partition log.
//!
//! From the top down: [`open`] finds out who made a directory and opens it, [`services`] is the
//! thread that flushes. [`parts`] appends, and [`unsynced`] syncs. [`tail`] has the end of each
//! partition under the append lock, [`last`] the segment that a partition ends with, and
//! [`indexes`] its indexes. [`recovery`] is what opening makes of a partition, [`follow`] of what a
//! broker keeps beside it. [`ends`] tells readers how far a partition reaches, [`files`] are the
//! small files, and [`rules`] the options. [`swap`] replaces segments.

pub mod ends;
pub mod files;
mod follow;
pub mod indexes;
mod last;
mod open;
pub mod parts;
mod recovery;
pub mod rules;
pub mod services;
pub mod swap;
pub mod tail;
mod unsynced;

pub use open::{Opened, Writer};
