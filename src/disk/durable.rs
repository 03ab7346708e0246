//! The calls that make something durable. All syncs pass through here so that a test can tell
//! their call sites apart and skip one of them.

use super::{Disk, Volume};
use crate::error::{Error, Op, Result};
use crate::region::Region;
use std::io;
use std::path::Path;

/// What to make durable.
#[derive(Clone, Copy, Debug)]
pub enum Synced<'a> {
    /// `len` bytes of a mapped file from `start`.
    Range {
        /// The map.
        region: &'a Region,
        /// First byte.
        start: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Data and length of a file.
    File(&'a Path),
    /// Everything stored to the file system of a directory, including names.
    FileSystem(&'a Path),
    /// The same, and all errors are reported.
    Volume(&'a Volume),
    /// The names in a directory.
    Directory(&'a Path),
}

/// A sync that did not begin: its file could not be opened, and its pages are still dirty. Unlike a
/// sync that failed, it may be retried.
#[derive(Debug)]
pub struct NotBegun(io::Error);

impl std::fmt::Display for NotBegun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for NotBegun {}

impl NotBegun {
    /// Marks an error of opening a file for a sync.
    pub fn from(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), NotBegun(error))
    }

    /// Returns the error of opening, or `error` itself if it is any other.
    pub fn cause(error: io::Error) -> std::result::Result<io::Error, io::Error> {
        error.downcast::<NotBegun>().map(|unbegun| unbegun.0)
    }
}

impl dyn Disk + '_ {
    /// Makes a range of a mapped file durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync_range(&self, region: &Region, start: usize, len: usize) -> Result<()> {
        note_site();
        sync(self, Synced::Range { region, start, len })
    }

    /// Makes data and length of a file durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync_file(&self, path: &Path) -> Result<()> {
        note_site();
        sync(self, Synced::File(path))
    }

    /// Makes everything stored to the file system of a directory durable, including names.
    #[cfg_attr(test, track_caller)]
    pub fn sync_file_system(&self, path: &Path) -> Result<()> {
        note_site();
        sync(self, Synced::FileSystem(path))
    }

    /// Makes everything stored to a file system durable, including names.
    #[cfg_attr(test, track_caller)]
    pub fn sync_volume(&self, volume: &Volume) -> Result<()> {
        note_site();
        sync(self, Synced::Volume(volume))
    }

    /// Makes the names in a directory durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync_directory(&self, path: &Path) -> Result<()> {
        note_site();
        sync(self, Synced::Directory(path))
    }
}

/// A sync that did not begin is reported as an error of opening.
fn sync(disk: &dyn Disk, what: Synced<'_>) -> Result<()> {
    disk.raw().sync(what).map_err(|error| {
        let (op, path) = match what {
            Synced::Range { region, .. } => (Op::Sync, region.path()),
            Synced::File(path) | Synced::Directory(path) => (Op::Sync, path),
            Synced::FileSystem(path) => (Op::SyncFileSystem, path),
            Synced::Volume(volume) => (Op::SyncFileSystem, volume.path()),
        };
        match NotBegun::cause(error) {
            Ok(cause) => Error::io(Op::Open, path, cause),
            Err(error) => Error::io(op, path, error),
        }
    })
}

#[cfg(not(test))]
#[inline(always)]
const fn note_site() {}

#[cfg(test)]
thread_local! {
    static SITE: std::cell::Cell<Option<&'static std::panic::Location<'static>>> =
        const { std::cell::Cell::new(None) };
}

#[cfg(test)]
#[track_caller]
fn note_site() {
    SITE.set(Some(std::panic::Location::caller()));
}

/// The source location of the current sync call. A function that syncs on behalf of its caller is
/// marked `track_caller`, so that the location is its caller's.
#[cfg(test)]
pub fn site() -> Option<&'static std::panic::Location<'static>> {
    SITE.take()
}
