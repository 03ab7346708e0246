//! The environment of an engine: a disk, a clock, and its own threads or a caller that steps.

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, RealDisk};
use std::sync::Arc;

/// Who runs the services of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The engine's own threads.
    Threads,
    /// The caller, step by step, for a simulator. Requests to the allocator are done at once.
    Steps,
}

/// The environment of an engine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Who runs the services.
    pub drive: Drive,
}

impl Machine {
    /// The real environment: file system, clock and threads.
    pub fn real() -> Machine {
        Machine {
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock),
            drive: Drive::Threads,
        }
    }

    /// The real clock with another disk; the caller steps.
    #[cfg(test)]
    pub fn stepped(disk: Arc<dyn Disk>) -> Machine {
        Machine {
            disk,
            drive: Drive::Steps,
            ..Machine::real()
        }
    }
}
