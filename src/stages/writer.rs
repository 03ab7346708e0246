//! The store to which staged rows are appended, as the intake uses it.

use super::place::StagePlace;
use super::words::Words;
use crate::disk::Disk;
use crate::engine::Staging;
use crate::machine::{Drive, Machine};
use crate::options::Options;
use std::sync::Arc;

/// The store to which commits are appended.
pub struct Writer {
    /// Its engine.
    pub engine: Arc<dyn Staging>,
    /// The files of stages and commits.
    pub place: StagePlace,
    /// Disk, clock, and who runs the services.
    pub machine: Machine,
    /// The words through which drivers and this process wake each other.
    pub words: Words,
    /// Whether keys are indexed.
    pub indexed: bool,
    /// Whether each message gets a unique id.
    pub unique_ids: bool,
    /// Maximum bytes of a record.
    pub record_len_max: u64,
}

impl Writer {
    /// A writer to an engine that was opened with these options.
    pub fn new(
        engine: Arc<dyn Staging>,
        place: StagePlace,
        (machine, words): (&Machine, Words),
        options: &Options,
        record_len_max: u64,
    ) -> Writer {
        Writer {
            engine,
            place,
            machine: machine.clone(),
            words,
            indexed: options.index(),
            unique_ids: options.unique_ids(),
            record_len_max,
        }
    }

    /// The disk of the store.
    pub fn disk(&self) -> &dyn Disk {
        &*self.machine.disk
    }

    /// Whether helper threads may be used.
    pub fn may_help(&self) -> bool {
        self.machine.drive == Drive::Threads
    }
}
