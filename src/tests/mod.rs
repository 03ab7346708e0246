//! Tests of lower layers that need the layers above them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod append_lock;
mod arrow;
mod cannot_read;
mod claims;
mod consumer;
mod copied;
mod copying;
mod groups;
mod intake;
mod later;
mod levels;
mod linger;
mod shared_groups;
mod shared_processes;
mod shared_upkeep;
mod statuses;
mod ticket;
mod timer;
mod trim;
