//! Watches: what stands above an engine and looks now and then whether it is needed.

use std::fmt::Debug;

/// Is called by the flush thread about once a second, and must not wait for anything.
pub trait Watch: Send + Sync + Debug {
    /// Looks, and starts what is needed.
    fn look(&self);
}
