//! The store to which staged rows are appended, as the intake uses it.

use crate::disk::Disk;
use crate::engine::Staging;
use crate::engine::directory::home::Home;
use crate::machine::Drive;
use std::sync::Arc;

/// The store to which commits are appended.
pub struct Writer {
    /// Its engine.
    pub engine: Arc<dyn Staging>,
    /// Its directory.
    pub home: Home,
    /// Whether keys are indexed.
    pub indexed: bool,
    /// Whether each message gets a unique id.
    pub unique_ids: bool,
    /// Maximum bytes of a record.
    pub record_len_max: u64,
}

impl Writer {
    /// The disk of the store.
    pub fn disk(&self) -> &dyn Disk {
        &*self.home.machine.disk
    }

    /// Whether helper threads may be used.
    pub fn may_help(&self) -> bool {
        self.home.machine.drive == Drive::Threads
    }
}
