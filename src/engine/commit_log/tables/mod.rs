//! The small files of a store: topics, bounds of the queues, checkpoint, `abort`, options.

pub mod abort;
pub mod checkpoint;
pub mod inventory;
pub mod kept_options;
pub mod topics;
