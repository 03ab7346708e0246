//! Commits of other processes: takes them up, and finds those in the log.

use super::Store;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::record::Contents;
use crate::stages::intake::Intake;
use crate::stages::marker;
use std::sync::Arc;

impl Store {
    /// Takes up what other processes have staged and committed; see [`crate::commit`]. Durable on
    /// return. In a shared store the leader takes them up, and the other processes wait for it.
    ///
    /// # Errors
    ///
    /// Those of sending; [`Error::Busy`] if another process leads and has not taken them up within
    /// 30 s.
    pub fn take_commits(&self) -> Result<()> {
        self.writer()?;
        let Some(intake) = self.intake()? else {
            return Ok(());
        };
        let joint = self.shared.current()?.joint();
        match joint.filter(|joint| !joint.leads()) {
            Some(joint) => intake.step_elsewhere(&|| joint.leads()),
            None => intake.step(),
        }
    }

    /// The intake of this process.
    fn intake(&self) -> Result<Option<&Arc<Intake>>> {
        if !self.is_forked() {
            return Ok(self.intake.as_ref());
        }
        Ok(self.above()?.intake.as_ref())
    }

    /// Whether the durable log holds all of a batch of a query with these contents. Only then is a
    /// commit done: a missing manifest may also mean that it was withdrawn, or lost with the power.
    /// `skips`: the batch with other rows, or a higher batch, counts too.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn holds_commit(
        &self,
        batch: (&str, u64),
        contents: Contents,
        skips: bool,
    ) -> Result<bool> {
        marker::holds(self.engine()?, batch, contents, skips)
    }

    /// The body of a query's last marker. It states the last batch in the log, and which of its
    /// parts are there.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn last_marker(&self, query: &str) -> Result<Option<String>> {
        let engine = self.engine()?;
        engine.refresh(Some(marker::TOPIC))?;
        let found = marker::last(engine, query, true)?;
        Ok(found.map(|(marker, _)| marker.body()))
    }
}
