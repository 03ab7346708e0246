//! Holds: what retention must not delete yet.
//!
//! Retention knows by its rules which files are due, and not who still needs the messages in them.
//! Whoever does is a hold: consumers that lag behind, archives that lack files, and markers that
//! say how far a stream has come.

use crate::error::Result;
use std::fmt::Debug;

/// Keeps a part of the log from retention.
pub trait Hold: Send + Sync + Debug {
    /// The position from which the log must stay. Retention asks at most once in each step, and
    /// only when a file is due.
    fn keep_from(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    /// Called before the log below `until` is deleted: what is still needed of it is appended
    /// again, and durable on return. False where nothing may be deleted at the moment.
    fn let_go(&self, until: u64) -> Result<bool> {
        let _ = until;
        Ok(true)
    }
}
