//! Producers of a shared store that own queues: the table of groups has them too.
//!
//! They are listed under a group of their own. Each process has one consumer in the table that owns
//! the queues of all its producers, so that the other processes notice when it dies or hangs. Such
//! a queue is never shared out. When another producer gets it, its epoch moves first, which ends
//! the earlier grant.

use super::Consumers;
use super::group_index::PRODUCERS;
use super::occupation::{Locked, Occupation};
use crate::claims::{Arbiter, Grant, Ruling};
use crate::error::{At, Op, Result};
use crate::interrupt;
use std::cell::RefCell;
use std::sync::Arc;

/// How long a process with producers may show no sign of life before others may take their queues.
const SESSION_MS: u32 = 10_000;

impl Consumers {
    /// Decides which producers own queues, if the store is shared.
    ///
    /// # Errors
    ///
    /// Those of the table of groups; [`crate::Error::Io`] if no thread can be started.
    pub fn arbiter(&self) -> Result<Option<Arc<dyn Arbiter>>> {
        let Some(occupation) = self.occupation()? else {
            return Ok(None);
        };
        // Its beats tell the other processes that this one lives.
        let started = self.peers.start(&self.loan, &occupation);
        started.at(Op::StartThreads, &self.handle.path)?;
        Ok(Some(Arc::new(Producers { occupation })))
    }
}

struct Producers {
    occupation: Arc<Occupation>,
}

impl Arbiter for Producers {
    fn decide(&self, decide: &mut dyn FnMut(&dyn Ruling) -> Result<()>) -> Result<()> {
        let locked = self.occupation.patiently(|| self.occupation.lock())?;
        let ruling = Decision {
            occupation: &self.occupation,
            locked: RefCell::new(locked),
            generation: crate::disk::fork_generation(),
        };
        // The interrupt function runs user code, which may want the same lock.
        interrupt::forbid(|| decide(&ruling))?;
        ruling.locked.into_inner().end();
        Ok(())
    }
}

/// The owners, under the lock of the table.
struct Decision<'a> {
    occupation: &'a Arc<Occupation>,
    locked: RefCell<Locked<'a>>,
    generation: u32,
}

impl Ruling for Decision<'_> {
    fn is_owned(&self, topic: &str, queue: u32) -> bool {
        self.locked.borrow().is_owned(PRODUCERS, topic, queue)
    }

    fn grant(&self, topic: &str, queue: u32, now: i64) -> Result<Box<dyn Grant>> {
        let mut locked = self.locked.borrow_mut();
        let owner = locked.own_member(SESSION_MS, now)?;
        let (row, epoch) = locked.assign(PRODUCERS, topic, queue, (owner, now))?;
        Ok(Box::new(Granted {
            occupation: Arc::clone(self.occupation),
            row,
            epoch,
            generation: self.generation,
        }))
    }
}

/// A queue of a producer of this process.
#[derive(Debug)]
struct Granted {
    occupation: Arc<Occupation>,
    row: u32,
    epoch: u16,
    /// Identifies the process: a forked child owns none of its parent's queues.
    generation: u32,
}

impl Grant for Granted {
    fn is_valid(&self) -> bool {
        self.occupation.table().row(self.row).fence().epoch == self.epoch
    }

    fn end(&self) {
        if self.generation != crate::disk::fork_generation() || !self.is_valid() {
            return;
        }
        self.occupation.give_up(self.row, self.epoch);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.end();
    }
}
