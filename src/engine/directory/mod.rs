//! What every engine does to a directory: knows its names, tells whose store it is and who may open
//! it, locks it for a writer, keeps a page of marks in it, and hands both to what stands above the
//! engine.

pub mod home;
pub mod names;
pub mod page;
pub mod recognise;
pub mod writer;
