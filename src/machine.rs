//! What an engine is given of the machine: a disk, and threads of its own or a caller that steps.

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
    /// Who runs the services.
    pub drive: Drive,
}

impl Machine {
    /// This machine: its file system, and threads.
    pub fn real() -> Machine {
        Machine {
            disk: Arc::new(RealDisk),
            drive: Drive::Threads,
        }
    }
}
