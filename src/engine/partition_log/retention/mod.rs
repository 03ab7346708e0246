//! Retention removes the oldest segments of a partition when they are too old, when the partition
//! has too many bytes, or when they end before its first offset.
//!
//! After a crash between any two lines of this order, the partition has the same next offset, and
//! no message comes back:
//!
//! ```text
//!   everything durable                                          or nothing is deleted
//!   --> tables of epochs begin at the first offsets, durably
//!   --> first offsets durable, in log-start-offset-checkpoint
//!   --> readers begin there, and full passes leave out what goes
//!   --> index files unlinked --> sync of the folder --> log files unlinked --> sync, in pieces
//! ```
//!
//! Only whole segments go, and never the one that is written. A segment that ends before the first
//! offset goes in any case: opening completes what a crash has interrupted. A partition that is
//! being compacted waits for the next step.
//!
//! [`due`] says which segments may go, [`archived`] which messages are not in every archive yet,
//! and [`service`] removes segments.

mod archived;
mod due;
pub mod service;
