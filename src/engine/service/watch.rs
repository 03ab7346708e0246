//! Watches: layers above an engine that check from time to time whether they are needed.

use std::fmt::Debug;

/// Called by the flush thread about once a second. Must not block.
pub trait Watch: Send + Sync + Debug {
    /// Checks, and starts what is needed.
    fn check(&self);
}
