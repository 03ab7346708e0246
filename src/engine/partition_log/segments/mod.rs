//! The files of a partition, and the walk over their batches. From the top down: [`walk`] walks
//! batches by their headers, beginning at a place from [`index`] or [`waypoints`], and [`reader`]
//! reads them through a [`window`]. [`search`] finds batches after damage, and [`true_end`] the end
//! of a batch whose length is damaged. [`confirm`] compares an index with batches, [`lender`] has
//! memory for bytes that rows keep, [`segment`] is one file of batches, [`snapshot`] has the
//! producers of a partition where a segment begins, [`room`] is what a writer may leave after its
//! batches, [`sectors`] tells what a power loss took, [`proof`] which damaged batches were stored,
//! [`last_zeros`] which zeros batches end with, [`writers`] what the next writer keeps, and
//! [`emptied`] which log files have lost everything. [`newest`] has what searches by time have
//! found out, and [`names`] the names of all files.

pub mod confirm;
pub mod emptied;
pub mod index;
pub mod last_zeros;
pub mod lender;
pub mod names;
pub mod newest;
pub mod proof;
pub mod reader;
pub mod room;
mod search;
pub mod sectors;
pub mod segment;
pub mod snapshot;
mod true_end;
pub mod walk;
pub mod waypoints;
mod window;
pub mod writers;
