//! Tells the services of an engine what the stages need kept.

use super::intake::Intake;
use crate::engine::service::hold::{Hold, Kept};
use crate::engine::service::watch::Watch;
use crate::error::Result;
use std::sync::{Arc, OnceLock, Weak};

/// Holds the last markers of streams, and everything while a manifest is taken up.
///
/// An engine gets its holds when it opens, but the intake needs an open engine. So the intake is
/// set later, and nothing is deleted before that.
#[derive(Debug, Default)]
pub struct Markers(OnceLock<Weak<Intake>>);

impl Markers {
    /// Sets the intake, once.
    pub fn set(&self, intake: &Arc<Intake>) {
        let _ = self.0.set(Arc::downgrade(intake));
    }
}

impl Hold for Markers {
    fn let_go(&self, until: u64) -> Result<bool> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(intake) => intake.keep_markers(until),
            None => Ok(false),
        }
    }

    fn kept_offsets(&self) -> Result<Option<Kept>> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(intake) => intake.kept_markers(),
            None => Ok(None),
        }
    }
}

/// Starts the thread of the intake once the directory of stages exists.
#[derive(Debug)]
pub struct Starter(pub Weak<Intake>);

impl Watch for Starter {
    fn check(&self) {
        if let Some(intake) = self.0.upgrade() {
            intake.start();
        }
    }
}
