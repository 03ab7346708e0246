//! Services of an engine and what they share. Nothing here knows a file format.

pub mod append_lock;
pub mod bell;
pub mod durability;
pub mod flush;
pub mod group_commit;
pub mod health;
pub mod shutdown;
