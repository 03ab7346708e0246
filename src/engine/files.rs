//! What an engine that keeps its messages in files can do besides.
//!
//! Nothing here is part of sending or reading. A file of the log is *sealed* once nothing more is
//! written to it; archives copy sealed files. Damage of files is found by a verification, which
//! several processes can share, and put right by a repair.

use super::Engine;
use super::archive::{SealedFile, Survey};
use super::verification::{Finding, Repair, Stretch, Verification};
use crate::error::Result;
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
