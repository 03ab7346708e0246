//! Tests of one part that reach it through those above it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod append_lock;
mod arrow;
mod copying;
mod intake;
mod ticket;
mod trim;
