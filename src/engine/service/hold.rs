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

    /// As [`Hold::keep_from`], where each queue has a log of its own. `None`: it is not known yet,
    /// so nothing may be deleted.
    fn kept_offsets(&self) -> Result<Option<Kept>> {
        Ok(Some(Kept::new()))
    }

    /// Called before the log below `until` is deleted. What is still needed of it must be appended
    /// again and be durable on return. Returns false if nothing may be deleted at the moment.
    fn let_go(&self, until: u64) -> Result<bool> {
        let _ = until;
        Ok(true)
    }
}
