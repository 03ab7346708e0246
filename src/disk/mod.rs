//! The disk: names, lengths, blocks and durability of files.
//!
//! All code above reaches the file system through [`Disk`], so that a simulator can replace it. The
//! hot paths (stores to a map, loads from it) do not pass through here.

pub mod copying;
mod durable;
mod event;
#[cfg(test)]
mod hooked;
mod lock;
mod real;
mod syscall;

pub use durable::Synced;
#[cfg(test)]
pub use durable::site;
pub use event::Event;
#[cfg(test)]
pub use hooked::{Call, HookedDisk};
pub use lock::{FileLock, Holder, LockState};
pub use real::RealDisk;
pub use syscall::{coarse_ms, fork_generation, host_address, watch_forks};

use crate::region::{Access, Region};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The type of a directory entry. Symbolic links are never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link, a FIFO, a device, a socket.
    Other,
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name; `None` if it is not UTF-8.
    pub name: Option<String>,
    /// Its type.
    pub kind: Kind,
    /// Length of a file in bytes.
    pub len: u64,
}

/// Identifies a file, as reached through one mount, until the machine restarts. While a file keeps
/// its identity, the page cache has kept what was stored to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The mount; its number is not reused before the machine restarts.
    pub mount: u64,
    /// The device: a subvolume or snapshot has its own, even under the same mount.
    pub device: u64,
    /// The subvolume; 0 if the file system has none.
    pub subvolume: u64,
    /// The inode.
    pub inode: u64,
    /// When the inode was created, in ns since 1970: inode numbers are reused.
    pub born_ns: u64,
}

impl Identity {
    /// Whether both files are on one file system, reached through one mount.
    pub fn is_beside(&self, other: &Identity) -> bool {
        let place = |it: &Identity| (it.mount, it.device, it.subvolume);
        place(self) == place(other)
    }
}

/// The file system operations that a store needs.
///
/// Files are created with mode 0600 and directories with 0700, whatever the umask. No call follows
/// a symbolic link in the last component, and none blocks on a FIFO.
pub trait Disk: Send + Sync + Debug {
    /// Creates a file of `len` zero bytes; fails if the name exists. Where the file system can, the
    /// file gets its length before its name, so that a process that dies leaves no empty file.
    /// Durable once file and directory are synced.
    fn create(&self, path: &Path, len: u64) -> io::Result<()>;

    /// Creates a directory and its missing parents.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Allocates blocks for a range of a file, shared with no other file, so that a store to a map
    /// of it cannot fail.
    ///
    /// Nobody may store to the range meanwhile: on a file system that cannot allocate, its zeros
    /// are read and written.
    fn reserve(&self, path: &Path, start: u64, len: u64) -> io::Result<()>;

    /// Maps the first `len` bytes of a file.
    fn map(&self, path: &Path, len: usize, access: Access) -> io::Result<Region>;

    /// Whether a map is a copy in memory instead of the file. A copy costs time and memory in
    /// proportion to its data.
    fn copies(&self) -> bool {
        false
    }

    /// Makes something durable. Callers use `sync_range`, `sync_file`, `sync_file_system` and
    /// `sync_directory`.
    ///
    /// # Errors
    ///
    /// `NotBegun` if the sync call was not reached. Any other error is final: the kernel may have
    /// marked the pages clean.
    fn sync(&self, what: Synced<'_>) -> io::Result<()>;

    /// Dirties every page of the range without changing a byte, so that the next sync writes it. A
    /// failed sync may have left the pages clean in memory and unwritten on the disk.
    fn dirty_range(&self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        region.rewrite(start, len)
    }

    /// Starts writing a range of a file that will be synced soon, so that the sync waits less.
    /// Promises nothing: the sync reports any failure.
    fn write_back(&self, path: &Path, start: u64, len: u64) {
        let _ = (path, start, len);
    }

    /// Drops a range of zeros from the page cache, so that [`Disk::next_data`] skips it. A hint: a
    /// failure costs only time.
    fn drop_zeros(&self, path: &Path, start: u64, len: u64) {
        let _ = (path, start, len);
    }

    /// Reads up to `buffer.len()` bytes at `start`; fewer at the end of the file.
    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes bytes at `start` of a file, creating it if it is missing.
    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()>;

    /// [`Disk::write_at`] for an existing file, whose descriptor is kept in `kept` from the first
    /// call on: opening and closing the file costs a quarter of a sync. A disk without descriptors
    /// ignores `kept`.
    fn write_kept(
        &self,
        kept: &mut Option<File>,
        path: &Path,
        start: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let _ = kept;
        self.write_at(path, start, bytes)
    }

    /// Zeroes the range and keeps its blocks.
    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()>;

    /// Renames a file, replacing any file of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file; fails with `AlreadyExists` if the name is taken. A crash may leave both
    /// names.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// When a file was last modified, in ms since the epoch; `None` if the disk does not know.
    fn modified_ms(&self, path: &Path) -> io::Result<Option<i64>> {
        let _ = path;
        Ok(None)
    }

    /// Unlinks a file; maps of it stay valid.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Lists a directory, in no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Returns the entry at a path; `None` if there is none.
    fn stat(&self, path: &Path) -> io::Result<Option<Entry>>;

    /// Returns the first run of bytes at or after `start` that may be nonzero; `None` if there is
    /// none. Loading from a hole costs memory, and the page counts as data from then on.
    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>>;

    /// Bytes that can still be written to the file system of `path`.
    fn free_space(&self, path: &Path) -> io::Result<u64>;

    /// Bytes in use on the file system of `path`; 0 if the disk does not know.
    fn used_space(&self, path: &Path) -> io::Result<u64> {
        let _ = path;
        Ok(0)
    }

    /// Tries to lock a store's lock file at `path`, creating it if it is missing.
    fn lock(&self, path: &Path) -> io::Result<LockState> {
        lock::lock(path)
    }

    /// Returns who holds the lock at `path`, without changing anything. A missing file is not
    /// locked.
    fn probe(&self, path: &Path) -> io::Result<Holder> {
        lock::probe(path)
    }

    /// Identifies this boot of the machine: the page cache does not survive a reboot. Zeros if the
    /// system does not say.
    fn boot_id(&self) -> [u8; 16] {
        syscall::boot_id()
    }

    /// Identity of a file or directory; `None` if the system does not say. Even without a reboot, a
    /// device can disappear, come back and be mounted again. That is another mount, and the page
    /// cache of the first one is lost.
    fn identity(&self, path: &Path) -> Option<Identity> {
        syscall::identity(path)
    }
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
    pub fn cause(error: io::Error) -> Result<io::Error, io::Error> {
        error.downcast::<NotBegun>().map(|unbegun| unbegun.0)
    }
}

/// Atomically and durably replaces a small file: temporary file, sync, rename, sync of the
/// directory.
///
/// After a crash the file is entirely the old or entirely the new one.
#[cfg_attr(test, track_caller)]
pub fn replace(disk: &dyn Disk, path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    if disk.stat(&temporary)?.is_some() {
        disk.unlink(&temporary)?;
    }
    disk.write_at(&temporary, 0, contents)?;
    disk.sync_file(&temporary)?;
    disk.rename(&temporary, path)?;
    disk.sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Sets the length of an open file and allocates its blocks, so that a store to its map cannot
/// fail.
pub fn reserve_open(file: &std::fs::File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    real::reserve(file, 0, len)
}

/// Reads a whole small file; `None` if it is missing. If the file is replaced meanwhile, returns
/// the old or the new one, never a mix.
///
/// # Errors
///
/// `InvalidData` if it is longer than `limit` bytes or not a regular file.
pub fn read_small(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    loop {
        let Some(entry) = disk.stat(path)? else {
            return Ok(None);
        };
        if entry.kind != Kind::File || entry.len > limit {
            let text = format!("expected a regular file of at most {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let len = usize::try_from(entry.len).unwrap_or_default();
        // One byte more detects that a longer file has replaced it.
        let mut bytes = vec![0; len + 1];
        match disk.read_at(path, 0, &mut bytes) {
            Ok(have) if have <= len => {
                bytes.truncate(have);
                return Ok(Some(bytes));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_small_file_that_is_replaced_while_it_is_read_is_whole() -> io::Result<()> {
        let replaced = |by: Option<&'static [u8]>| -> io::Result<Option<Vec<u8>>> {
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("table");
            fs::write(&path, b"four")?;
            let is_first = AtomicBool::new(true);
            let disk = HookedDisk::shared(move |call, path| {
                if call != Call::Read || !is_first.swap(false, Ordering::Relaxed) {
                    return Ok(());
                }
                let Some(bytes) = by else {
                    return fs::remove_file(path);
                };
                fs::write(path.with_extension("tmp"), bytes)?;
                fs::rename(path.with_extension("tmp"), path)
            });
            read_small(&*disk, &path, 100)
        };
        for new in [&b"longer than four"[..], b"two", b""] {
            assert_eq!(replaced(Some(new))?.as_deref(), Some(new));
        }
        assert_eq!(replaced(None)?, None);
        Ok(())
    }
}
