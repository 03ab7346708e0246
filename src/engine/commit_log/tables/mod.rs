//! The small files of a store: topics, bounds of the queues, checkpoint and `abort`.

pub mod abort;
pub mod checkpoint;
pub mod inventory;
pub mod topics;
