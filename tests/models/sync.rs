//! What `src/sync.rs` offers, of loom's primitives: each operation is a point where another thread
//! may go on, and each load gives every value that the memory model allows.
//!
//! Locks have parking_lot's signatures. A wait with a timeout never times out: who is not woken
//! waits for ever, which loom reports. No time passes between two looks at the clock.

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use loom::thread;
pub(crate) use std::sync::atomic::Ordering;

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Mistakes that are made here, so that the code that ships stays as it is.
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant;

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant
    }

    /// All patience is spent: whoever looks for a moment looks once.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::MAX
    }
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

/// Empty only while a condition variable has the guard.
pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(inner).unwrap());
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        self.wait(guard);
    }

    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut goes_on: impl FnMut(&mut T) -> bool,
        _timeout: Duration,
    ) {
        while goes_on(&mut *guard) {
            self.wait(guard);
        }
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
