//! Kafka's form of a record. On disk, records come in batches: [`header`] describes a batch,
//! [`compress`] unpacks its records, and [`batch`] returns them one by one, in the formats 2
//! ([`entry`]) and 0 and 1 ([`old`]). [`record`] is one record in memory: [`apart`] from its batch,
//! or in place, [`in_batch`]. [`varint`] reads and writes numbers. [`encode`] makes batches of
//! format 2 from the [`contents`] of their records, [`rebuild`] makes one from some records of
//! another, [`pack`] packs the records of both, and [`hash`] chooses the partition of a key.
//! [`copied`] copies a record to another topic. [`own`] lists headers with a meaning for Forebay.
//!
//! Bytes on disk are untrusted: each length is bounded before use, and bytes that are wrong are a
//! [`Flaw`](crate::Flaw).

pub mod apart;
pub mod batch;
pub mod compress;
mod contents;
mod copied;
pub mod encode;
pub mod entry;
pub mod hash;
pub mod header;
pub mod in_batch;
pub mod old;
pub mod own;
pub mod pack;
pub mod rebuild;
pub mod record;
pub mod varint;

pub use apart::{Apart, Home};
pub use batch::{Buffers, Lent, Opened};
pub use compress::Codec;
pub use encode::{Batch, Form, Part};
pub use entry::{Entry, TransactionMarker};
pub use hash::partition_of_key;
pub use header::{HEAD_LEN, Header};
pub use in_batch::InBatch;
pub use own::has_header_for;
pub use rebuild::Rebuilt;
pub use record::{Layout, Record};

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]
mod test;
