//! What an engine is given of the machine: a disk, a clock, and threads of its own or a caller that
//! steps.

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, RealDisk};
use std::sync::Arc;

/// Who runs the services of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// Threads of the engine.
    Threads,
    /// The caller, step by step: for a simulator. What is asked of the allocator is done at once.
    Steps,
}

/// The machine as an engine sees it.
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
    /// This machine: its file system, its clock, and threads.
    pub fn real() -> Machine {
        Machine {
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock),
            drive: Drive::Threads,
        }
    }

    /// This machine with another disk, where the caller steps.
    #[cfg(test)]
    pub fn stepped(disk: Arc<dyn Disk>) -> Machine {
        Machine {
            disk,
            drive: Drive::Steps,
            ..Machine::real()
        }
    }
}
