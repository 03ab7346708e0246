//! The locks of the standard library without poisoning: the data that a lock guards here is valid
//! between any two statements, and a panic ends only its call.

use std::sync::{self, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

pub use std::sync::MutexGuard;

/// [`sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guarded data. Nobody else can hold the lock.
    #[cfg(all(feature = "python", not(test)))]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// [`sync::RwLock`].
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification and takes the lock again. May return early.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// [`wait`](Condvar::wait), at most for `timeout`.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits as long as `goes_on` is true, at most for `timeout`.
    pub fn wait_while_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        goes_on: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, timeout, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes the threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
