//! The home of an open store, for the layers above its engine.

use super::page::StatePage;
use crate::machine::Machine;
use std::path::PathBuf;
use std::sync::Arc;

/// The directory of a store that is open for writing, and its machine.
#[derive(Clone, Debug)]
pub struct Home {
    /// The directory.
    pub root: PathBuf,
    /// Disk, clock, and who runs the services.
    pub machine: Machine,
    /// The state page, through which other processes wake this one.
    pub page: Arc<StatePage>,
}
