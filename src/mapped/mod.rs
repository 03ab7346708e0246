//! Mapped files: regions of memory, files of fixed size in a row, and their allocation ahead of
//! use. All `unsafe` over mapped bytes is in [`region`] and [`guard`].

pub mod allocate;
pub mod file;
pub mod queue;
pub mod spill;
pub mod transient;

pub use allocate::{Allocator, Latch, Preparation, Use};
pub use file::{Extent, MappedFile};
pub use queue::MappedFileQueue;
pub use transient::TransientPool;
