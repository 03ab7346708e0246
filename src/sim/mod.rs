//! The power-loss simulator: runs the real engine step by step and crash by crash, on a disk in
//! memory that loses what was not synced.
//!
//! ```text
//!   seed --> lives: open, check the law, work, crash --> open, check the law, ...
//!                                       ^
//!                     at a call of the disk, or between two steps
//! ```
//!
//! [`disk`] is the disk, [`faults`] what goes wrong with it, [`frame`] what all stories have in
//! common, [`steps`] what short ones have, [`telling`] tells them with many seeds, and [`laws`] has
//! the tests. The stories of [`life`] are of the commit log; [`model`] knows their messages and
//! checks the store. Those of [`commits`], with its [`driver`] and the engines in [`targets`], are
//! of rows that are staged, committed and taken up, each exactly once. Those of [`consumers`] are
//! of messages that are settled, retried and delayed, of which none may be skipped. Those of
//! [`partitions`] are of a partition log, and those of [`compactions`] of a compacted one. Those of
//! [`members`] are of logs of either kind that processes share ([`herd`]), some of which die
//! ([`deaths`], [`locks`]). In [`openings`] each call of an opening fails. In [`lost_ends`] a queue
//! has lost its last message, and openings die. [`rare`], [`rare_index`], [`partition_cases`],
//! [`reported`], [`interrupted`], [`repairs`] and [`partition_repairs`] cover cases that these
//! reach too seldom. [`left_out`] leaves out each sync, and [`seeds`](crate::seeds) chooses the
//! stories.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, and every number here is small"
)]

mod commits;
mod compactions;
mod consumers;
mod controls;
mod deaths;
mod disk;
mod disk_calls;
mod disk_loss;
mod driver;
mod faults;
mod frame;
mod herd;
mod inode;
mod interrupted;
mod laws;
mod left_out;
mod life;
mod locks;
mod lost_ends;
mod meanwhile;
mod members;
mod model;
mod names;
mod openings;
mod partition_cases;
mod partition_checks;
mod partition_removal;
mod partition_repairs;
mod partitions;
mod random;
mod rare;
mod rare_index;
mod repairs;
mod reported;
mod shared_commit_log;
mod shared_partition_log;
mod shown_by;
mod sites;
mod steps;
mod targets;
mod telling;
mod unshown;
