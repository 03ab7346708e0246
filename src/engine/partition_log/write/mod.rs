//! Writing a partition log.
//!
//! From the top down: [`open`] opens a directory that [`permit`] allows, [`begin`] recovers it,
//! [`create`] makes partitions, and [`services`] is the thread that flushes. [`parts`] are what all
//! share: [`append`] appends, [`roll`] completes segments, and [`durable`] syncs, with
//! [`unsynced`]. [`tail`] has the ends of all partitions under the append lock: [`writing`] is the
//! end of one, [`last`] its last segment, and [`indexes`] its indexes. [`linger`] has the batches
//! of messages that linger. [`recovery`] repairs a partition for an [`opening`]: [`strays`] sorts
//! its segments, [`checked`] checks one with the [`holes`] in it, [`kept`] stores what is kept,
//! [`follow`] repairs the files that a broker keeps beside it, and [`producers`] has what it must
//! know of its producers. [`ends`] tells readers where a partition begins and ends, [`files`] are
//! the small files, and [`rules`] the options. [`gone`] are partitions without their folders, and
//! [`room`] is what a segment has after its batches. [`swap`] replaces segments. [`intent`] makes a
//! batch of several partitions atomic, and [`stored`] tells a damaged one from a torn one.
//! [`readers`] notifies readers in other processes, and [`showing`] shows them how long sends take.
//!
//! Processes that share a partition log meet in [`join`]. [`shared`] is what one of them has, and
//! [`table`] says where each partition ends. [`mend`] removes what a dead process has left,
//! [`duties`] has what the leader does for all, and [`indexing`] its indexes.

pub mod append;
mod begin;
mod checked;
mod create;
mod durable;
mod duties;
pub mod ends;
pub mod files;
mod follow;
pub mod gone;
mod holes;
pub mod indexes;
mod indexing;
pub mod intent;
mod join;
mod kept;
mod last;
pub mod linger;
mod mend;
mod open;
mod opening;
pub mod parts;
mod permit;
mod producers;
pub mod readers;
mod recovery;
pub mod restore;
mod roll;
pub mod room;
pub mod rules;
pub mod services;
pub mod shared;
pub mod showing;
mod stored;
mod strays;
pub mod swap;
mod table;
pub mod tables;
pub mod tail;
mod unsynced;
mod writing;

pub use begin::Opened;
pub use open::Writer;
