//! Compaction: a partition keeps the latest message of each key.
//!
//! From the top down: [`service`] runs compaction on demand, and in the background where
//! [`cleanable`] says that it is due, at the speed that [`pace`] allows. [`compactor`] has the
//! right to compact, [`candidate`] finds partitions, and [`work`] is what is known of them.
//! [`pass`] maps the latest offsets in the [`offsets`] map, and [`copy`] copies what [`keep`]
//! keeps. [`transactions`] and [`producers`] say what else a log still needs, [`source`] reads
//! complete segments, [`rules`] are the options, and [`stop`] says why a compaction ends early.
//! Segments are replaced by the writer's `swap`, whose replacements opening completes.

mod candidate;
mod cleanable;
pub mod compactor;
pub mod copy;
mod keep;
mod offsets;
mod pace;
mod pass;
mod producers;
pub mod rules;
mod service;
mod source;
mod stop;
mod transactions;
mod work;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;
