//! Locks, atomics, threads and the clock.
//!
//! Each lock stands alone: nothing that waits for it is listed outside of it. So a process that was
//! forked while threads of its parent waited can use locks of its own. A panic does not poison a
//! lock.
//!
//! `tests/models` compiles code a second time with loom, with a module of the same name that
//! exports loom's primitives.

mod lock;
mod timed_lock;
mod timed_mutex;

pub use lock::{Condvar, Mutex, MutexGuard, RwLock};
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
pub use std::thread;
pub use std::time::Instant;
pub use timed_mutex::{TimedMutex, TimedMutexGuard};

/// How often a thread tries a lock that is held before it sleeps.
pub const TRIES: u32 = 10;
