//! Waits for the lock of the table of groups, which another process may hold for long, or for ever
//! if it was stopped.
//!
//! A call on a group takes locks of this process, and then perhaps the lock of the table. If it
//! waited there, all threads that want the same locks would wait with it, and none could answer
//! Ctrl-C. So it fails at once, releases what it holds, and is repeated when the table is free:
//!
//! ```text
//!   repeat:  attempt --> [locks of the group [lock of the table]] --> done
//!              ^            | held by another process
//!              +--- wait <--+   no lock held; the caller may interrupt
//! ```

use crate::engine::directory::group_table::GroupTable;
use crate::error::{Awaited, Error, Result};
use crate::interrupt;
use crate::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a call waits for other processes that change the table.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a call may still wait. Once a wait has timed out, the remaining steps of the call do not
/// wait.
#[derive(Debug, Default)]
pub(super) struct Patience {
    is_over: bool,
}

impl Patience {
    /// Calls `attempt` until it does not fail because another process has locked `table`. The
    /// caller holds no lock, and may interrupt the wait in between.
    ///
    /// # Errors
    ///
    /// Those of `attempt`; [`Error::Busy`] if a living process keeps the lock, or the caller
    /// interrupts the wait.
    pub(super) fn repeat<T>(
        &mut self,
        table: &GroupTable,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            // An interruption during an attempt may call user code that wants the locks held by the
            // attempt.
            match interrupt::forbid(&mut attempt) {
                Err(error) if is_locked(&error) => self.wait(table, began)?,
                done => return done,
            }
        }
    }

    /// Waits for a while, or until the table is free. It need not be free: the next attempt may
    /// find messages in other queues.
    fn wait(&mut self, table: &GroupTable, began: Instant) -> Result<()> {
        let waited = began.elapsed();
        self.is_over |= interrupt::is_raised() || waited >= TIMEOUT;
        match self.is_over {
            true => Err(busy(waited.max(Duration::from_millis(1)))),
            false => table.await_free(interrupt::SLICE),
        }
    }
}

/// Whether a call waits for locks that other threads of this process hold. Most of them are done at
/// once, but one may read from the disk meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    /// It waits.
    Await,
    /// It fails as if another process had locked the table: an event loop must go on.
    Avoid,
}

impl Threads {
    /// Locks `mutex`.
    ///
    /// # Errors
    ///
    /// [`locked`].
    pub(super) fn lock<T>(self, mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
        match self {
            Threads::Await => Ok(mutex.lock()),
            Threads::Avoid => mutex.try_lock().ok_or_else(locked),
        }
    }
}

/// The error of an attempt that finds the table locked by another process.
pub(super) fn locked() -> Error {
    busy(Duration::ZERO)
}

/// Whether an error is [`locked`].
pub(super) fn is_locked(error: &Error) -> bool {
    let Error::Busy { what, waited_ms } = error else {
        return false;
    };
    *what == Awaited::Groups && *waited_ms == 0
}

fn busy(waited: Duration) -> Error {
    Error::Busy {
        what: Awaited::Groups,
        waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
    }
}
