//! The directory of a store, for every engine: the names in it, who created it, who may open it,
//! the lock of its writer, the options that it keeps, and the page of marks that other processes
//! read.

pub mod agreed;
pub mod catalogue;
pub mod group_table;
pub mod home;
pub mod kept_options;
pub mod names;
pub mod page;
pub mod recognise;
mod sharing;
pub mod writer;
