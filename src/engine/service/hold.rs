//! Holds: what retention must not delete yet.
//!
//! Retention knows which files are due, but not who still needs their messages. A hold does:
//! consumers that lag, archives that lack files, and markers that record how far a stream has come.

use crate::error::Result;
use std::fmt::Debug;

/// Keeps a part of the log from retention.
pub trait Hold: Send + Sync + Debug {
    /// The position from which the log must stay. Retention asks at most once in each step, and
    /// only when a file is due.
    fn keep_from(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    /// Called before the log below `until` is deleted. What is still needed of it must be appended
    /// again and be durable on return. Returns false if nothing may be deleted at the moment.
    fn let_go(&self, until: u64) -> Result<bool> {
        let _ = until;
        Ok(true)
    }
}
