//! One repair at a time, and none while the store closes.

use crate::error::{Awaited, Error, Result};
use crate::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// Which thread may repair.
#[derive(Debug, Default)]
pub struct Turn {
    held: Mutex<()>,
    /// The thread of the repair. Its progress callback may call the store.
    thread: Mutex<Option<ThreadId>>,
}

/// The turn of a repair; ends when dropped.
pub struct Repairing<'a> {
    turn: &'a Turn,
    _held: MutexGuard<'a, ()>,
}

impl Turn {
    /// Waits for the repair in progress. None begins while the guard lives.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] in the thread of the repair itself, which would wait forever.
    pub fn wait(&self) -> Result<MutexGuard<'_, ()>> {
        match *self.thread.lock() == Some(thread::current().id()) {
            true => Err(Error::Busy {
                what: Awaited::Repair,
                waited_ms: 0,
            }),
            false => Ok(self.held.lock()),
        }
    }

    /// Waits for the repair in progress, then takes the turn.
    ///
    /// # Errors
    ///
    /// As [`Turn::wait`].
    pub fn take(&self) -> Result<Repairing<'_>> {
        let held = self.wait()?;
        *self.thread.lock() = Some(thread::current().id());
        Ok(Repairing {
            turn: self,
            _held: held,
        })
    }
}

impl Drop for Repairing<'_> {
    fn drop(&mut self) {
        *self.turn.thread.lock() = None;
    }
}
