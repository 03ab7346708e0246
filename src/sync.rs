//! Locks, atomics, threads and the clock.
//!
//! Each lock contains all of its state: there is no global list of waiting threads. So a process
//! that was forked while threads of its parent waited can use its own locks. A panic does not
//! poison a lock.
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

/// How often a thread tries to take a held lock before it sleeps.
pub const TRIES: u32 = 10;
