//! The calls that make something durable. Each is made through here, so that a test can tell the
//! places in the source that make them apart, and leave one out.

use super::Disk;
use crate::region::Region;
use std::io;
use std::path::Path;

/// What is to become durable.
#[derive(Clone, Copy, Debug)]
pub enum Synced<'a> {
    /// `len` bytes from `start` on of a mapped file.
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
    /// All that was stored to the file system of a directory, names and all.
    FileSystem(&'a Path),
    /// The names in a directory.
    Directory(&'a Path),
}

impl dyn Disk + '_ {
    /// Makes the range of a mapped file durable.
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

    /// Makes all that was stored to the file system of a directory durable, names and all.
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

/// Where in the source the sync that is under way was asked for. A function that asks on behalf of
/// its caller hands the question on, with `track_caller`.
#[cfg(test)]
pub fn site() -> Option<&'static std::panic::Location<'static>> {
    SITE.take()
}
