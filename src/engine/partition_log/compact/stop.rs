//! Why a compaction ends early.

use crate::error::Error;

/// Why a compaction ends before its work is done.
#[derive(Debug)]
pub enum Stop {
    /// The store is being closed, or the caller does not want to go on.
    Asked,
    /// An error.
    Failed(Error),
}

/// What a part of a compaction returns.
pub type Done<T> = std::result::Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}
