//! Mapped files: regions of memory, files of fixed size in a row, and their allocation ahead of use.
//! All `unsafe` over mapped bytes is in [`region`].

pub mod region;

pub use region::{Access, PAGE, Region};
