//! Reading: records of a queue or of the log, by offset, by key, and while another process writes.

pub mod bytes;
pub mod cursor;
pub mod follow;
pub mod locate;
pub mod lost;
pub mod meant;
pub mod query;
pub mod survey;
pub mod view;
