//! What a store of files does besides sending and reading: archives, verification, repair, and
//! appends of staged rows.

use super::read::{follow, survey, view};
use super::{CommitLog, repair, roll, send, verify};
use crate::engine::service::durability::Durable;
use crate::engine::{Atomicity, Files, Finding, Repair, Staging, Stretch, Topic, Verification};
use crate::error::{Error, Result};
use crate::record::Batch;
use std::ops::Range;

impl Files for CommitLog {
    fn roll_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<u64>> {
        match &self.share {
            Some(share) => {
                let Some(end) = share.core.seal(None)? else {
                    return Ok(None);
                };
                share.flush_to(end, self.options.flush_timeout, go_on)?;
                // Archives and retention take only what is dispatched.
                share.core.await_dispatched(end);
                Ok(Some(end))
            }
            None => roll::seal(&self.parts, None),
        }
    }

    fn sealed_files(&self) -> Result<Vec<crate::engine::archive::SealedFile>> {
        let parts = self.seen()?;
        follow::refresh(parts)?;
        Ok(survey::sealed(parts))
    }

    fn survey(&self, start: u64) -> Result<crate::engine::archive::Survey> {
        survey::survey(self.seen()?, start)
    }

    fn stretches(&self) -> Result<Vec<Stretch>> {
        let parts = self.seen()?;
        view::refresh(parts, None)?;
        verify::stretch::stretches(parts)
    }

    fn verify_stretches(
        &self,
        stretches: &[Stretch],
        holes: &[Range<u64>],
    ) -> Result<Vec<Finding>> {
        let parts = self.seen()?;
        view::refresh(parts, None)?;
        verify::stretch::verify_stretches(parts, stretches, holes)
    }

    fn join_findings(&self, findings: Vec<Finding>) -> Result<Verification> {
        verify::join(self.seen()?, findings)
    }

    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair> {
        if self.share.is_some() {
            let what = "repairing a store that is open with mode=\"share\": close it in all \
                        processes, and open it with mode=\"a\" to repair it";
            return Err(Error::Unsupported { what: what.into() });
        }
        let _turn = self.repairs.take()?;
        if self.parts.health.is_closed() {
            return Err(Error::closed(&self.parts.root));
        }
        repair::repair(&self.parts, &self.services.retention, progress)
    }
}

impl Staging for CommitLog {
    fn append_staged(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
    ) -> Result<u64> {
        match &self.share {
            Some(share) => send::append_staged_shared(&share.core, batches, atomicity),
            None => send::append_staged(&self.parts, batches, atomicity),
        }
    }

    fn flush_to(&self, end: u64) -> Result<()> {
        match &self.share {
            Some(share) => share.core.flush_to(end),
            None => self.parts.flush_to(end),
        }
    }

    fn make_readable(&self, end: u64) -> Result<()> {
        match &self.share {
            Some(share) => share.core.make_readable(end),
            None => self.parts.make_readable(end),
        }
    }
}
