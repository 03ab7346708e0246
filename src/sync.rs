//! Locks, atomics, threads and the clock for code that is checked with loom.
//!
//! `tests/models` compiles that code a second time, with a module of the same name that exports
//! loom's primitives.

pub use parking_lot::{Condvar, Mutex, RwLock};
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
pub use std::thread;
pub use std::time::Instant;
