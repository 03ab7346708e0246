//! The directory of a store, for every engine: the names in it, who created it, who may open it,
//! the lock of its writer, the options that it keeps, the page of marks that other processes
//! read, and the copies that a repair makes of damaged bytes.

pub mod agreed;
pub mod catalogue;
pub mod epochs;
pub mod fields;
pub mod geometry;
pub mod group_table;
pub mod kept_options;
pub mod member;
pub mod names;
pub mod page;
mod page_cache;
mod page_file;
mod page_layout;
pub mod recognise;
pub mod salvage;
mod sharing;
mod sizes;
pub mod table_file;
pub mod writer;
pub mod writer_stats;
mod writing;
