//! The files of a partition, and the walk over what they hold. From the top down: [`walk`] walks
//! batches by their headers, [`index`] and [`waypoints`] are where such a walk begins, [`confirm`]
//! compares an index with batches, [`segment`] is a file of these, [`snapshot`] tells which
//! transactions are open where one begins, and [`names`] are the names of it all.

pub mod confirm;
pub mod index;
pub mod names;
pub mod segment;
pub mod snapshot;
pub mod walk;
pub mod waypoints;
