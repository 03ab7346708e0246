//! The calls to the file system that a disk is made of, with bare errors.

use super::{
    ByteLocks, Entry, Holder, Identity, LockState, OpenFile, Synced, Volume, lock, syscall,
};
use crate::region::{Access, Region};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The file system operations that a store needs, with the errors of the operating system.
///
/// Files are created with mode 0600 and directories with 0700, whatever the umask. No call follows
/// a symbolic link in the last component, and none blocks on a FIFO.
pub trait FileSystem: Send + Sync + Debug {
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

    /// Makes something durable.
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

    /// Drops a range of zeros from the page cache, so that [`FileSystem::next_data`] skips it. A
    /// hint: a failure costs only time.
    fn drop_zeros(&self, path: &Path, start: u64, len: u64) {
        let _ = (path, start, len);
    }

    /// Reads up to `buffer.len()` bytes at `start`; fewer at the end of the file.
    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes bytes at `start` of a file, creating it if it is missing.
    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()>;

    /// [`FileSystem::write_at`] for an existing file, whose descriptor is kept in `kept` from the
    /// first call on: opening and closing the file costs a quarter of a sync. A disk without
    /// descriptors ignores `kept`.
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

    /// Sets the length of a file that nobody reads or stores to after the new end. Added bytes are
    /// zeros. Durable once the file is synced.
    fn set_len(&self, path: &Path, len: u64) -> io::Result<()> {
        let _ = (path, len);
        Err(io::ErrorKind::Unsupported.into())
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

    /// States when a file was last modified, in ms since the epoch. A disk that does not know times
    /// does nothing.
    fn set_modified_ms(&self, path: &Path, modified: i64) -> io::Result<()> {
        let _ = (path, modified);
        Ok(())
    }

    /// Unlinks a file; maps of it stay valid.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Lists a directory, in no particular order.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// [`FileSystem::list`], but the length of a file may be 0 if `has_len` does not hold for its
    /// name: reading the length takes as long as opening the file.
    fn list_some(&self, path: &Path, has_len: &dyn Fn(&str) -> bool) -> io::Result<Vec<Entry>> {
        let _ = has_len;
        self.list(path)
    }

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

    /// Opens the file at `path` to lock bytes of it, creating it if it is missing.
    fn byte_locks(&self, path: &Path) -> io::Result<ByteLocks> {
        ByteLocks::open(path)
    }

    /// Whether some process holds a byte of the lock file at `path`. Changes nothing.
    fn is_byte_locked(&self, path: &Path, byte: u32) -> io::Result<bool> {
        lock::is_byte_locked(path, byte)
    }

    /// Returns who holds the lock at `path`, without changing anything. A missing file is not
    /// locked.
    fn probe(&self, path: &Path) -> io::Result<Holder> {
        lock::probe(path)
    }

    /// The file system of a directory, to be synced as a whole; `None` if such a sync may report
    /// success without storing everything.
    fn volume(&self, path: &Path) -> io::Result<Option<Volume>> {
        let _ = path;
        Ok(None)
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
