//! Archives: tables kept beside a copy of a log file, so that it can be read in ranges.
//!
//! ```text
//!   commitlog/00000000001073741824   a log file, byte for byte
//!   keys/00000000001073741824        which blocks may hold a key                     keys
//!   blocks/00000000001073741824      which queues, offsets and times each block has  blocks
//! ```
//!
//! A *block* is about 1 MiB of a log file and begins and ends at record boundaries. Bytes that are
//! not records have blocks of their own. Together the blocks cover the file. A reader fetches whole
//! blocks, so no record is cut, and walks the fetched bytes with a cursor. One walk over the file
//! makes both tables ([`survey`]). They depend only on its bytes: two archivers write the same
//! tables.
//!
//! An archive of a store with a log for each queue holds segments. Each has a table of blocks
//! beside it, and no keys ([`segment`]):
//!
//! ```text
//!   orders-0/00000000000000004711.log            the segment that begins at this offset
//!   orders-0/forebay.00000000000000004711.blocks its table
//! ```

pub mod blocks;
mod builder;
pub mod keys;
pub mod segment;
pub mod survey;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;

pub use blocks::{BlockTable, Wanted};
pub use segment::{SealedSegment, SegmentSurvey};
pub use survey::{SealedFile, Survey};
