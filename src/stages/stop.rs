//! Why a commit was not appended: permanently or temporarily.

use super::pending::Refusal;
use crate::error::Error;

/// Why a commit was not appended.
pub enum Stop {
    /// It can never be appended.
    Refuse(Refusal),
    /// It cannot be appended at the moment.
    Later(Error),
}

impl Stop {
    /// Refuses a commit that has nothing in the log.
    pub fn refuse(error: impl ToString) -> Stop {
        Stop::Refuse(Refusal {
            reason: error.to_string(),
            appended: false,
        })
    }

    /// Decides about an error of one of its files. A missing file stays missing, and after a failed
    /// sync the kernel may have dropped data: both are permanent. Any other error may be temporary.
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
