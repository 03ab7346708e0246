//! Locks, atomics, threads and the clock, as the code takes them whose interleavings are modelled.
//!
//! `tests/models` compiles the sources of that code a second time, with a module of this name that
//! has loom's primitives in the place of these.

pub use parking_lot::{Condvar, Mutex, RwLock};
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
pub use std::thread;
pub use std::time::Instant;
