//! Services of an engine and their shared state. Nothing here depends on a file format.

pub mod append_lock;
pub mod condition;
pub mod durability;
pub mod duty;
pub mod fence;
pub mod flush;
pub mod group_commit;
pub mod health;
pub mod hold;
pub mod lead;
pub mod polling;
pub mod retention;
pub mod shared_condition;
pub mod shared_lock;
pub mod shutdown;
pub mod sleepers;
pub mod trusted_clock;
pub mod turns;
pub mod watch;
