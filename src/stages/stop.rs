//! Why a commit was not appended: it never can be, or not at the moment.

use super::manifest::Refusal;
use crate::error::Error;

/// Why a commit was not appended.
pub enum Stop {
    /// It never can be.
    Refuse(Refusal),
    /// Not at the moment.
    Later(Error),
}

impl Stop {
    /// The refusal of a commit of which nothing is in the log.
    pub fn refuse(error: impl ToString) -> Stop {
        Stop::Refuse(Refusal {
            reason: error.to_string(),
            appended: false,
        })
    }

    /// Why one of its files is of no use. One that is gone stays gone, and after a sync that failed
    /// the kernel may have dropped what was not stored. Whatever else fails may pass.
    pub fn of_file(error: Error) -> Stop {
        match error.is_of_sync() || error.is_not_found() {
            true => Stop::refuse(error),
            false => Stop::Later(error),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Later(error)
    }
}
