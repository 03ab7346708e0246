//! Mapped files: files of fixed size, sequences of them, and their allocation before use. All
//! `unsafe` code for mapped bytes is in [`region`] and [`guard`].

pub mod allocate;
pub mod file;
pub mod queue;
pub mod spill;
pub mod transient;

pub use allocate::{Allocator, Latch, Preparation, Ready, Use};
pub use file::{Extent, MappedFile};
pub use queue::MappedFileQueue;
pub use transient::TransientPool;
