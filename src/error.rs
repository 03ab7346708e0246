//! The only error type of the crate. Variants say what the caller can do about it.
//!
//! Values are fields, so that each binding can expose them as attributes. An ordinary outcome, such
//! as "nothing to read yet", is a value ([`crate::ReadStatus`]) and never an error.

mod awaited;
mod op;
mod reason;
mod text;

pub use awaited::Awaited;
pub use op::Op;
pub use reason::Reason;

use crate::region::Fault;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds operation and path to an error of the operating system.
pub trait At<T> {
    /// As [`Error::io`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    fn at(self, op: Op, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    #[inline]
    fn at(self, op: Op, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::io(op, path, error))
    }
}

/// Why a call failed. Nothing was appended unless the variant says otherwise.
#[derive(Debug)]
#[allow(
    missing_docs,
    reason = "a field has the name of its value; the variant explains it"
)]
pub enum Error {
    /// There is no store at this path, and the mode does not create one.
    NotFound { path: PathBuf },
    /// Mode `x`, but the store exists already.
    Exists { path: PathBuf },
    /// The path exists, but is not a store.
    NotAStore { path: PathBuf, reason: String },
    /// The directory was created by another system and cannot be opened for writing.
    Foreign { path: PathBuf },
    /// Another handle holds the store for writing; `pid` is its process, if known. `shareable`: all
    /// that write may open the store with mode `share` instead.
    Locked {
        path: PathBuf,
        pid: Option<u32>,
        shareable: bool,
    },
    /// The store was closed; `path` is its directory, if the call knew it.
    Closed { path: Option<PathBuf> },
    /// The consumer was closed, and its store is open.
    ConsumerClosed,
    /// A write to the disk failed for good; only reopening the store helps. `appended` says whether
    /// the message of this call is in the log; it may or may not be durable.
    Failed { reason: String, appended: bool },
    /// The store was opened for reading, or the topic does not allow writing; `remedy` says what to
    /// do.
    ReadOnly { what: String, remedy: &'static str },
    /// The handle was inherited through `fork`.
    Forked,
    /// The topic is not in the store.
    UnknownTopic { topic: String },
    /// The topic has no queue of this number.
    UnknownQueue {
        topic: String,
        queue: u32,
        queues: u32,
    },
    /// The name is not allowed for a topic.
    InvalidTopic { topic: String, reason: String },
    /// An argument or option has a value that is not allowed.
    InvalidOption {
        name: String,
        value: String,
        reason: Reason,
    },
    /// A queue lacks the message at `offset`, so a conversion cannot keep its offsets: let it give
    /// new ones. `reason` says so.
    Gap {
        topic: String,
        queue: u32,
        offset: u64,
        reason: String,
    },
    /// A message or a part of it is larger than allowed.
    TooLarge { what: String, size: u64, limit: u64 },
    /// The offset is not in the queue.
    OffsetOutOfRange {
        topic: String,
        queue: u32,
        offset: i64,
        min: u64,
        max: u64,
    },
    /// Bytes on disk are invalid.
    Corrupt {
        path: PathBuf,
        position: u64,
        reason: String,
    },
    /// This version does not read or write this format.
    Unsupported { what: String },
    /// This version reads the store, and does not write to it: `reason` says why.
    ReadableOnly { path: PathBuf, reason: String },
    /// The file system has no space for the write.
    Full {
        path: PathBuf,
        needed: u64,
        free: u64,
    },
    /// Others held what the call needs for too long: retry.
    Busy { what: Awaited, waited_ms: u64 },
    /// The message is in the log, but did not become durable in time.
    FlushTimeout { timeout_ms: u64 },
    /// The message lingers still: it waits for others of its queue, and is not in the log yet.
    Lingers { timeout_ms: u64 },
    /// Messages that lingered were not appended. Their tickets have the same error.
    NotAppended { count: usize, source: Arc<Error> },
    /// The message was settled before.
    AlreadySettled {
        topic: String,
        queue: u32,
        offset: u64,
    },
    /// Another consumer owns the queue, or the message was delivered again since.
    OwnershipLost { topic: String, queue: u32 },
    /// A producer no longer owns its queue: it was closed, or a newer one has its name.
    Replaced {
        topic: String,
        queue: u32,
        name: String,
    },
    /// A queue ends before the offset that a reader has reached: the log came back shorter.
    LogShrunk {
        topic: String,
        queue: u32,
        offset: u64,
        end: u64,
    },
    /// One row of a batch was rejected; nothing of its chunk was appended.
    Row { row: usize, source: Box<Error> },
    /// The operating system reported an error. For a failed load from or store to a map, `position`
    /// is the byte of the file.
    Io {
        op: Op,
        path: PathBuf,
        position: Option<u64>,
        source: io::Error,
    },
}

impl Error {
    /// What kind of error the operating system reported, if it did.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// What the operating system reported, without operation and path; other errors as a whole.
    pub(crate) fn reason(&self) -> String {
        match self {
            Error::Io { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether a file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    /// Whether a load from or store to a map failed.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Error::Io { position, .. } if position.is_some())
    }

    /// Whether a sync failed. The kernel may have marked the pages clean, so a second sync would
    /// prove nothing. A sync that did not begin counts as an error of opening.
    pub(crate) fn is_of_sync(&self) -> bool {
        matches!(self, Error::Io { op, .. } if op.is_sync())
    }

    /// Whether the file system has no space, or a quota is used up.
    pub(crate) fn is_out_of_room(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Io { source, .. } => is_out_of_room(source),
            _ => false,
        }
    }

    /// Whether a service that gets this error stops all writing. It does not if the same call may
    /// soon succeed: running out of space, descriptors or memory breaks nothing.
    ///
    /// A failed sync always stops writing, whatever its error.
    pub(crate) fn ends_writing(&self) -> bool {
        match self {
            Error::Full { .. } | Error::Busy { .. } => false,
            Error::Io { source, .. } => self.is_of_sync() || !is_transient(source),
            _ => true,
        }
    }

    /// Reports a failed step of a larger operation as a failure of that operation on `path`. A
    /// failed sync stays one, also a sync that did not begin.
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
            remedy: "its permissions (perm in config/topics.json) allow no writing",
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

/// The system's numbers for a full disk and an exhausted quota.
#[cfg(unix)]
const OUT_OF_ROOM: [i32; 2] = [libc::ENOSPC, libc::EDQUOT];
/// The numbers of Windows for a full disk: `ERROR_HANDLE_DISK_FULL` and `ERROR_DISK_FULL`.
#[cfg(not(unix))]
const OUT_OF_ROOM: [i32; 2] = [39, 112];

/// [`Error::is_out_of_room`] for an error of the operating system.
fn is_out_of_room(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|it| OUT_OF_ROOM.contains(&it))
}

/// Whether a call other than a sync may soon succeed: space, descriptors or memory ran out.
fn is_transient(error: &io::Error) -> bool {
    let wanting = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    is_out_of_room(error) || error.raw_os_error().is_some_and(|it| wanting.contains(&it))
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Row { source, .. } => Some(source),
            Error::NotAppended { source, .. } => Some(source),
            _ => None,
        }
    }
}
