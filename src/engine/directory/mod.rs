//! The directory of a store, for every engine: its names, the detection of its kind, and the state
//! page.

pub mod names;
pub mod page;
pub mod recognise;
