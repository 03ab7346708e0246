//! Mapped files: regions of memory, files of fixed size in a row, and their allocation ahead of
//! use. All `unsafe` over mapped bytes is in [`region`].

pub mod allocate;
pub mod file;
mod mark;
mod presence;
pub mod queue;
pub mod region;
pub mod transient;

pub use allocate::{Allocator, Latch, Preparation, Preparer};
pub use file::{Extent, MappedFile};
pub use queue::{FoundFile, MappedFileQueue};
pub use region::{Access, PAGE, Region, Window};
pub use transient::TransientPool;
