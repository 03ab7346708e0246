//! Archives: what is kept beside a copy of a log file so that it can be read by ranges.
//!
//! ```text
//!   commitlog/00000000001073741824   a log file, byte for byte
//!   keys/00000000001073741824        which blocks may hold a key                     keys
//!   blocks/00000000001073741824      which queues, offsets and times each block has  blocks
//! ```
//!
//! A *block* is a stretch of a log file, about 1 MiB long, that begins and ends where a record
//! does; what is no record is in blocks of its own. The blocks of a file are all of it. Whoever
//! reads an archive fetches whole blocks, so no record is cut, and a cursor walks what was
//! fetched. Both tables are made by one walk over the file ([`survey`]) and depend on its bytes
//! alone: two archivers write the same.

pub mod blocks;
pub mod keys;
pub mod survey;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;

pub use blocks::{BlockTable, Wanted};
pub use survey::{SealedFile, Survey};
