//! The calls that make something durable. All syncs pass through here so that a test can tell
//! their call sites apart and skip one of them.

use super::Disk;
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
    /// The names in a directory.
    Directory(&'a Path),
}

impl dyn Disk + '_ {
    /// Makes a range of a mapped file durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync_range(&self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        note_site();
        self.sync(Synced::Range { region, start, len })
    }

    /// Makes data and length of a file durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync_file(&self, path: &Path) -> io::Result<()> {
        note_site();
        self.sync(Synced::File(path))
    }

    /// Makes everything stored to the file system of a directory durable, including names.
    #[cfg_attr(test, track_caller)]
    pub fn sync_file_system(&self, path: &Path) -> io::Result<()> {
        note_site();
        self.sync(Synced::FileSystem(path))
    }

    /// Makes the names in a directory durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync_directory(&self, path: &Path) -> io::Result<()> {
        note_site();
        self.sync(Synced::Directory(path))
    }
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
