//! Constructors of errors, and their context: the operation that failed.

use super::{Error, Op, Reason};
use crate::region::Fault;
use std::fmt;
use std::io;
use std::path::Path;

impl Error {
    /// Reports a failed step of a larger operation as a failure of that operation on `path`. A
    /// failed sync stays one, even a sync that did not begin.
    #[must_use]
    pub(crate) fn during(self, whole: Op, path: &Path) -> Error {
        match self.is_of_sync() {
            true => self,
            false => self.undone(whole, path),
        }
    }

    /// [`Error::during`] for an operation whose files were removed: a failed sync of such a file
    /// leaves nothing in doubt, and the operation may be retried.
    #[must_use]
    pub(crate) fn undone(mut self, whole: Op, path: &Path) -> Error {
        match &mut self {
            Error::Io { op, path: of, .. } if *op != Op::Open => {
                (*op, *of) = (whole, path.to_path_buf());
            }
            _ => {}
        }
        self
    }

    /// An operating system error with operation and path.
    #[inline]
    pub fn io(op: Op, path: impl AsRef<Path>, source: io::Error) -> Error {
        Error::io_at(op, path.as_ref(), source)
    }

    /// Apart from its callers, so that those of frequent paths stay small.
    #[cold]
    #[inline(never)]
    fn io_at(op: Op, path: &Path, source: io::Error) -> Error {
        Error::Io {
            op,
            path: path.to_path_buf(),
            position: Fault::of(&source).map(|fault| fault.position),
            source,
        }
    }

    /// An argument that is not allowed; `reason` says what is wrong. Where allowed values can be
    /// told, use [`Error::must`].
    pub fn option(name: &str, value: impl fmt::Display, reason: impl Into<String>) -> Error {
        Error::InvalidOption {
            name: name.to_owned(),
            value: value.to_string(),
            reason: Reason::Is(reason.into()),
        }
    }

    /// An argument that breaks a rule, such as `be at least 1`.
    pub fn must(name: &str, value: impl fmt::Display, rule: impl Into<String>) -> Error {
        Error::InvalidOption {
            name: name.to_owned(),
            value: value.to_string(),
            reason: Reason::Must(rule.into()),
        }
    }

    /// A store that was closed.
    pub(crate) fn closed(path: &Path) -> Error {
        Error::Closed {
            path: Some(path.to_owned()),
        }
    }

    /// A store that was opened for reading.
    pub(crate) fn read_only_store(path: &Path) -> Error {
        Error::ReadOnly {
            what: format!("the store {}", path.display()),
            remedy: "open it with mode=\"a\", or with mode=\"share\" beside other writers",
        }
    }

    /// A topic without the permission to write.
    pub(crate) fn read_only_topic(name: &str) -> Error {
        Error::ReadOnly {
            what: format!("topic {name:?}"),
            remedy: "its permissions (perm in config/topics.json) do not allow writing",
        }
    }

    /// Damaged bytes at a position of a file.
    pub fn corrupt(path: impl AsRef<Path>, position: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            path: path.as_ref().to_path_buf(),
            position,
            reason: reason.into(),
        }
    }

    /// Adds the row of the batch to the error.
    #[must_use]
    pub fn in_row(self, row: usize) -> Error {
        Error::Row {
            row,
            source: Box::new(self),
        }
    }
}
