//! What an engine that keeps its messages in files can do in addition.
//!
//! None of this is part of sending or reading. A log file is *sealed* when it will never be written
//! again; archives copy sealed files. A verification, which several processes can share, finds
//! damage in files. A repair fixes it.

use super::Engine;
use super::archive::{SealedFile, Survey};
use super::verification::{Finding, Repair, Stretch, Verification};
use crate::error::Result;
use std::ops::Range;

/// An engine that keeps files; see `files` of an [`Engine`].
pub trait Files: Engine {
    // Archives.

    /// Seals the log file in use, unless it is empty, and makes it durable. Returns where the next
    /// file begins; `None` if there was nothing to seal.
    fn roll(&self) -> Result<Option<u64>> {
        self.roll_while(&mut || true)
    }

    /// As [`Files::roll`]. Where another process flushes, calls `go_on` now and then while it
    /// waits for it; once that returns false, the wait ends.
    fn roll_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<u64>>;

    /// Log files that will never be written again and are durable, oldest first.
    fn sealed_files(&self) -> Result<Vec<SealedFile>>;

    /// What the sealed log file that begins at `start` holds.
    fn survey(&self, start: u64) -> Result<Survey>;

    // Verification in parts. Together they find what `Engine::verify` finds.

    /// The parts. They may be checked in any order and by any process that has the store open.
    fn stretches(&self) -> Result<Vec<Stretch>>;

    /// Checks parts and returns a finding for each. `holes` are the holes of the whole log:
    /// messages whose entries point into them count as lost. A caller that does not know the holes
    /// yet passes none, and checks the entries again if the log has any.
    fn verify_stretches(&self, parts: &[Stretch], holes: &[Range<u64>]) -> Result<Vec<Finding>>;

    /// Combines the findings of all parts, in the order of [`Files::stretches`].
    fn join_findings(&self, findings: Vec<Finding>) -> Result<Verification>;

    // Repair.

    /// Saves a copy of damaged bytes beside the log and repairs what it can: see [`Repair`].
    /// `progress` works as in [`Engine::verify`]; if it returns false, nothing is changed.
    ///
    /// The repairs are durable on return.
    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair>;
}
