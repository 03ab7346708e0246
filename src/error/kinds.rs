//! What an error means for the code that gets it: whether a file is missing, the disk is full, or
//! writing must end.

use super::Error;
use std::io;

impl Error {
    /// What kind of error the operating system reported, if it did.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// The error that the operating system reported, without operation and path; any other error as
    /// a whole.
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
///
/// `EAGAIN` is the error of a map in a process that locks all its memory and may lock no more. The
/// operation of the error may be a larger one of which the map was a step.
fn is_transient(error: &io::Error) -> bool {
    let wanting = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    is_out_of_room(error) || error.raw_os_error().is_some_and(|it| wanting.contains(&it))
}
