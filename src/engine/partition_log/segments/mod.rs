//! The files of a partition, and the walk over what they hold. From the top down: [`walk`] walks
//! batches by their headers, [`index`] and [`waypoints`] are where such a walk begins, [`segment`]
//! is a file of batches, and [`names`] are the names of it all.

pub mod index;
pub mod names;
pub mod segment;
pub mod walk;
pub mod waypoints;
