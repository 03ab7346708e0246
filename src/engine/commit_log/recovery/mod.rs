//! Opening: finds where the walk begins, walks the log, completes queues and index, trims the end.

pub mod begin;
pub mod geometry;
pub mod open;
pub mod opening;
pub mod place;
pub mod rebuild;
pub mod reindex;
pub mod trim;
