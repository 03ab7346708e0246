//! The interface of `src/sync.rs` with loom's primitives: at each operation another thread may run,
//! and each load gives every value that the memory model allows.
//!
//! A wait with a timeout never times out: a thread that is not woken waits forever, which loom
//! reports. No time passes between two reads of the clock.

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use loom::thread;
pub(crate) use std::sync::atomic::Ordering;

use std::cell::Cell;
use std::time::Duration;

/// Mistakes planted here instead of in the shipped code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// Fences do nothing.
    NoFence,
    /// Stores of marks order nothing.
    RelaxedStore,
}

thread_local! {
    static WEAKNESS: Cell<Option<Weakness>> = const { Cell::new(None) };
}

pub(crate) fn weaken(weakness: Option<Weakness>) {
    WEAKNESS.set(weakness);
}

pub(crate) fn fence(order: Ordering) {
    if WEAKNESS.get() != Some(Weakness::NoFence) {
        loom::sync::atomic::fence(order);
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: usize, order: Ordering) {
        let weak = WEAKNESS.get() == Some(Weakness::RelaxedStore);
        let order = if weak { Ordering::Relaxed } else { order };
        self.0.store(value, order);
    }

    pub(crate) fn fetch_max(&self, value: usize, order: Ordering) -> usize {
        let weak = WEAKNESS.get() == Some(Weakness::RelaxedStore);
        let order = if weak { Ordering::Relaxed } else { order };
        self.0.fetch_max(value, order)
    }
}

/// A thread tries a held lock once more before it sleeps: further tries would add orders without
/// showing anything else.
pub(crate) const TRIES: u32 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant;

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant
    }

    /// As if all time had passed: code that would check several times before it sleeps checks once.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::MAX
    }
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) use loom::sync::MutexGuard;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap()
    }

    pub(crate) fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.wait(guard)
    }

    pub(crate) fn wait_while_for<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut goes_on: impl FnMut(&mut T) -> bool,
        _timeout: Duration,
    ) -> MutexGuard<'a, T> {
        while goes_on(&mut *guard) {
            guard = self.wait(guard);
        }
        guard
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Debug)]
pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(loom::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}
