//! The gate. A process shuts it while it joins or leaves, so that no other process does so, and for
//! work that only one process may do at a time.

use super::{ALL, GATE, Member};
use crate::disk::{ByteLock, ByteLocks};
use crate::engine::directory::agreed::Agreed;
use crate::error::{At, Awaited, Error, Op, Result};
use crate::interrupt;
use std::time::{Duration, Instant};

/// Pause between attempts to lock a byte.
const RETRY: Duration = Duration::from_millis(2);
/// How long a process waits for others that join or leave. The last to leave closes the store.
const GATE_TIMEOUT: Duration = Duration::from_secs(30);

impl Member {
    /// Whether no other process shares the store. The caller holds the gate.
    pub(super) fn is_alone(&self) -> Result<bool> {
        let alone = self.set(ALL, ByteLock::Exclusive)?;
        if alone {
            self.set(ALL, ByteLock::Shared)?;
        }
        Ok(alone)
    }

    /// Shuts the gate, so that no other process joins or leaves. Returns whether this one is the
    /// last. The caller holds no lock: the wait can be interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if another process does not finish.
    pub fn is_last(&self) -> Result<bool> {
        self.shut_gate(interrupt::is_raised)?;
        self.is_alone()
    }

    /// Runs `work` while no other process joins, leaves or does the same. The threads of this
    /// process take turns.
    ///
    /// # Errors
    ///
    /// As [`Member::is_last`], and those of `work`.
    pub fn behind_gate<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.unless(|| false, work)
    }

    fn unless<T>(
        &self,
        is_interrupted: fn() -> bool,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.shut_gate(is_interrupted)?;
        let done = work();
        self.set(GATE, ByteLock::Released)?;
        done
    }

    /// Adds the options of this process to what all of them agree on. The caller holds no lock.
    ///
    /// # Errors
    ///
    /// Those of [`Agreed::joined`] and [`Member::behind_gate`].
    pub fn agree(&self, own: &Agreed) -> Result<()> {
        let agreed = self.page.agreed()?;
        if agreed.joined(own)? == agreed {
            return Ok(());
        }
        self.unless(interrupt::is_raised, || {
            self.page.agree(&self.page.agreed()?.joined(own)?);
            Ok(())
        })
    }

    fn shut_gate(&self, is_interrupted: fn() -> bool) -> Result<()> {
        let began = Instant::now();
        let is_late = || began.elapsed() >= GATE_TIMEOUT || is_interrupted();
        match shut(&self.locks, is_late).at(Op::Lock, &self.path)? {
            true => Ok(()),
            false => {
                let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                Err(Error::Busy {
                    what: Awaited::Gate,
                    waited_ms,
                })
            }
        }
    }
}

/// Shuts the gate and shares byte 0. While a single writer holds that byte, the gate is opened
/// between attempts, so that others that join keep to their own time-outs.
pub fn enter(locks: &ByteLocks, timeout: Duration) -> std::io::Result<bool> {
    let (began, gate) = (Instant::now(), timeout.max(GATE_TIMEOUT));
    loop {
        if !shut(locks, || began.elapsed() >= gate || interrupt::is_raised())? {
            return Ok(false);
        }
        if locks.set(ALL, ByteLock::Shared)? {
            return Ok(true);
        }
        locks.set(GATE, ByteLock::Released)?;
        if began.elapsed() >= timeout {
            return Ok(false);
        }
        std::thread::sleep(RETRY);
    }
}

/// Tries to shut the gate until it succeeds or `is_late`.
fn shut(locks: &ByteLocks, is_late: impl Fn() -> bool) -> std::io::Result<bool> {
    loop {
        if locks.set(GATE, ByteLock::Exclusive)? {
            return Ok(true);
        }
        if is_late() {
            return Ok(false);
        }
        std::thread::sleep(RETRY);
    }
}
