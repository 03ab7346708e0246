//! What an engine that keeps its messages in files can do besides.
//!
//! Nothing here is part of sending or reading. A file of the log is *sealed* once nothing more is
//! written to it; archives copy sealed files. Damage of files is found by a verification, which
//! several processes can share, and put right by a repair.

use super::archive::{SealedFile, Survey};
use super::verification::{Finding, Repair, Stretch, Verification};
use super::{Atomicity, Engine, Topic};
use crate::error::Result;
use crate::record::Batch;
use std::ops::Range;

/// An engine that keeps files; see [`Engine::files`].
pub trait Files: Engine {
    // Archives.

    /// Seals the log file that is written, which has something in it, and makes it durable. Returns
    /// where the next file begins; `None` where there is nothing to seal.
    fn roll(&self) -> Result<Option<u64>>;

    /// Log files that nothing is written to any more, all of them durable, oldest first.
    fn sealed_files(&self) -> Result<Vec<SealedFile>>;

    /// What the sealed log file that begins at `start` holds.
    fn survey(&self, start: u64) -> Result<Survey>;

    // Rows that other processes have staged.

    /// Appends rows that other processes have staged, and returns the end of them. The disk begins
    /// to store them, so that a flush that follows has little left to do. The owner has not sent
    /// them: a failure is not counted among its sends.
    fn append_staged(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
    ) -> Result<u64>;

    /// Makes the log durable up to `end`, the end of an append. Where it is already, nothing is
    /// synced.
    fn flush_to(&self, end: u64) -> Result<()>;

    /// Lets readers, here and in other processes, see the log up to `end`, or all that was appended
    /// before the call if that is less. Reads leave out what cannot be shown for want of room; here
    /// that is an error.
    fn make_readable(&self, end: u64) -> Result<()>;

    // A verification in parts. It finds what `Engine::verify` does.

    /// The parts, which may be checked in any order and by any process that has the store open.
    fn stretches(&self) -> Result<Vec<Stretch>>;

    /// Checks parts, with a finding for each. `holes` are the holes of the whole log: entries that
    /// lead there count as lost with them. A caller that does not know the holes yet passes none,
    /// and checks the entries again if the log has any.
    fn verify_stretches(&self, parts: &[Stretch], holes: &[Range<u64>]) -> Result<Vec<Finding>>;

    /// Makes one verification of the findings of all parts, in the order of [`Files::stretches`].
    fn join_findings(&self, findings: Vec<Finding>) -> Result<Verification>;

    // Repair.

    /// Saves what is damaged beside the log, and puts right what can be: see [`Repair`]. `progress`
    /// as in [`Engine::verify`]; where it returns false, nothing is changed.
    ///
    /// What was done is durable on return.
    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair>;
}
