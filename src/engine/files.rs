//! What an engine that keeps its messages in files can do in addition.
//!
//! None of this is part of sending or reading. A log file is *sealed* when it will never be written
//! again; archives copy sealed files. A verification, which several processes can share, finds
//! damage in files. A repair fixes it.

use super::archive::{SealedFile, Survey};
use super::verification::{Finding, Repair, Stretch, Verification};
use super::{Atomicity, Engine, Topic};
use crate::error::Result;
use crate::record::Batch;
use std::ops::Range;

/// An engine that keeps files; see [`Engine::files`].
pub trait Files: Engine {
    // Archives.

    /// Seals the log file in use, unless it is empty, and makes it durable. Returns where the next
    /// file begins; `None` if there was nothing to seal.
    fn roll(&self) -> Result<Option<u64>>;

    /// Log files that will never be written again and are durable, oldest first.
    fn sealed_files(&self) -> Result<Vec<SealedFile>>;

    /// What the sealed log file that begins at `start` holds.
    fn survey(&self, start: u64) -> Result<Survey>;

    // Rows that other processes have staged.

    /// Appends rows that other processes have staged, and returns their end. Starts writing them to
    /// the disk, so that a following flush has little left to do. The owner of the store did not
    /// send them: a failure is not counted among its sends.
    fn append_staged(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
    ) -> Result<u64>;

    /// Makes the log durable up to `end`, the end of an append. Syncs nothing if it already is.
    fn flush_to(&self, end: u64) -> Result<()>;

    /// Lets readers, here and in other processes, see the log up to `end`, or up to its end when
    /// the call began if that is less. Reads leave out messages that cannot be published because
    /// the disk is full; this call reports it as an error.
    fn make_readable(&self, end: u64) -> Result<()>;

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
