//! Holds: what retention must not delete yet.
//!
//! Retention knows which files are due, but not who still needs their messages. A hold does:
//! consumers that lag, archives that lack files, and markers that record how far a stream has come.

use crate::error::Result;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The offset of each queue of a topic from which messages must stay. Queues that are not listed
/// may lose all.
pub type Kept = BTreeMap<(Box<str>, u32), u64>;

/// Keeps a part of the log from retention.
pub trait Hold: Send + Sync + Debug {
    /// The position from which the log must stay. Retention asks at most once in each step, and
    /// only when a file is due.
    fn keep_from(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    /// As [`Hold::keep_from`], for engines with a log for each queue. `None` if it is not known
    /// yet: nothing may be deleted then.
    fn kept_offsets(&self) -> Result<Option<Kept>> {
        Ok(Some(Kept::new()))
    }

    /// Called before the log below `until` is deleted. The hold appends again what is still needed
    /// of it, durably. Returns false if nothing may be deleted at the moment.
    fn let_go(&self, until: u64) -> Result<bool> {
        let _ = until;
        Ok(true)
    }
}
