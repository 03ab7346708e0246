//! Watches: layers above an engine that check from time to time whether they are needed.

use std::fmt::Debug;

/// Called about once a second by a thread of the process that writes the store; in a shared store,
/// of the process that leads. Must not block.
pub trait Watch: Send + Sync + Debug {
    /// Checks, and starts what is needed.
    fn check(&self);
}
