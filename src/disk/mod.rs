//! The disk: what touches names, lengths, blocks and durability, and nothing else.
//!
//! Everything above reaches the file system through [`Disk`], so that a simulator can stand in its
//! place. The hot paths (stores to a map, loads from it) do not pass here.

pub mod copying;
mod durable;
#[cfg(test)]
mod hooked;
mod lock;
mod real;
mod syscall;

pub use durable::Synced;
#[cfg(test)]
pub use durable::site;
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

/// What a directory entry is. Symbolic links are never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link, a FIFO, a device, a socket.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, `None` where it is not UTF-8.
    pub name: Option<String>,
    /// What it is.
    pub kind: Kind,
    /// Length in bytes of a file.
    pub len: u64,
}

/// What tells a file, as it is reached through one mount, from all others within one start of the
/// machine. While a file keeps its identity, the page cache has kept what was stored to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The mount; its number is not used again before the machine is started again.
    pub mount: u64,
    /// The device: a subvolume, or a snapshot of one, has its own below the same mount.
    pub device: u64,
    /// The subvolume, 0 where the file system has none.
    pub subvolume: u64,
    /// The inode.
    pub inode: u64,
    /// When the inode was made, in ns since 1970: its number may be used again.
    pub born_ns: u64,
}

impl Identity {
    /// Whether both files lie on one file system that is reached through one mount.
    pub fn is_beside(&self, other: &Identity) -> bool {
        let place = |it: &Identity| (it.mount, it.device, it.subvolume);
        place(self) == place(other)
    }
}

/// A file system, as far as a store needs it.
///
/// A file that is made here is 0600 and a directory 0700 whatever the umask says. No call follows a
/// symbolic link in the last component, and none blocks on a FIFO.
pub trait Disk: Send + Sync + Debug {
    /// Creates a file of `len` zero bytes; an error where the name is taken. Where the file system
    /// can, a file has its length before its name, so that no death leaves one without. Not durable
    /// before file and directory are synced.
    fn create(&self, path: &Path, len: u64) -> io::Result<()>;

    /// Creates a directory and the missing ones above it.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives the range of a file its own blocks, shared with no other file, so that a store into a
    /// map of it cannot fail.
    ///
    /// Nobody stores to the range meanwhile: a file system that cannot reserve has its zeros read
    /// and written.
    fn reserve(&self, path: &Path, start: u64, len: u64) -> io::Result<()>;

    /// Maps the first `len` bytes of a file.
    fn map(&self, path: &Path, len: usize, access: Access) -> io::Result<Region>;

    /// Whether a map is a copy in memory, which takes the time and the room of what it holds, and
    /// not the file.
    fn copies(&self) -> bool {
        false
    }

    /// Makes something durable. Callers say what by `sync_range`, `sync_file`, `sync_file_system`
    /// and `sync_directory`.
    ///
    /// # Errors
    ///
    /// `NotBegun` where the kernel was not asked yet. Any other error is final: the kernel may
    /// have called the pages clean.
    fn sync(&self, what: Synced<'_>) -> io::Result<()>;

    /// Dirties every page of the range without changing a byte, so that the next sync writes it: a
    /// sync that failed may have left it clean and missing on the disk.
    fn dirty_range(&self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        region.rewrite(start, len)
    }

    /// Begins to write a range of a file that a sync will ask for soon, so that there is less to
    /// wait for. Promises nothing: what fails here is told by the sync.
    fn write_back(&self, path: &Path, start: u64, len: u64) {
        let _ = (path, start, len);
    }

    /// Takes a range of zeros out of the page cache, so that [`Disk::next_data`] passes over it. A
    /// hint as well: where it cannot be done nothing is lost but time.
    fn drop_zeros(&self, path: &Path, start: u64, len: u64) {
        let _ = (path, start, len);
    }

    /// Reads up to `buffer.len()` bytes at `start`; fewer at the end of the file.
    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes bytes at `start` of a file, which is created where it is not there.
    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()>;

    /// [`Disk::write_at`] of a file that is there, whose descriptor stays in `kept` from the first
    /// call on: to open and close it costs as much as a quarter of a sync. A disk without
    /// descriptors leaves `kept` alone.
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

    /// Turns the range into zeros, keeping its blocks.
    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()>;

    /// Gives a file another name in place of what had that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file another name, which must be free: `AlreadyExists` where it is taken. A crash
    /// may leave it with both names.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// When a file was last written to, in ms since the epoch; `None` for a disk that does not
    /// know.
    fn modified_ms(&self, path: &Path) -> io::Result<Option<i64>> {
        let _ = path;
        Ok(None)
    }

    /// Takes a file's name away; maps of it stay good.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Takes an empty directory away.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// What is at a path; `None` where nothing is.
    fn stat(&self, path: &Path) -> io::Result<Option<Entry>>;

    /// First run of bytes at or after `start` that may be other than zero; `None` where none is.
    /// What is loaded from behind a run costs memory, and counts as data from then on.
    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>>;

    /// Bytes that may still be written to the file system of `path`.
    fn free_space(&self, path: &Path) -> io::Result<u64>;

    /// Bytes of the file system of `path` that are taken; 0 for a disk that does not know.
    fn used_space(&self, path: &Path) -> io::Result<u64> {
        let _ = path;
        Ok(0)
    }

    /// Tries to take the lock of a store at `path`, whose file is created where it is not there.
    fn lock(&self, path: &Path) -> io::Result<LockState> {
        lock::lock(path)
    }

    /// Who holds the lock at `path`; nothing is changed. Nobody does where there is no file.
    fn probe(&self, path: &Path) -> io::Result<Holder> {
        lock::probe(path)
    }

    /// What tells one start of the machine from another: the page cache does not outlive it. Zeros
    /// where the system does not say.
    fn boot_id(&self) -> [u8; 16] {
        syscall::boot_id()
    }

    /// Who a file or a directory is; `None` where the system does not say. Within one start of the
    /// machine a device can go away and come back, and its file system be mounted again: it is
    /// another mount then, and the page cache of the first one is gone.
    fn identity(&self, path: &Path) -> Option<Identity> {
        syscall::identity(path)
    }
}

/// A sync that was not begun: what it is of could not be opened, and is as dirty as it was. Unlike
/// one that failed it may be tried again.
#[derive(Debug)]
pub struct NotBegun(io::Error);

impl std::fmt::Display for NotBegun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for NotBegun {}

impl NotBegun {
    /// The error of opening a file for a sync, as one that says so.
    pub fn from(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), NotBegun(error))
    }

    /// The error of opening, or `error` itself where it is of anything else.
    pub fn cause(error: io::Error) -> Result<io::Error, io::Error> {
        error.downcast::<NotBegun>().map(|unbegun| unbegun.0)
    }
}

/// Replaces a small file as a whole, durably: a temporary file, sync, rename, sync of the
/// directory.
///
/// After a crash the file is the old or the new one, never a part of either.
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

/// Gives an open file `len` bytes with their blocks, so that a store into a map of it cannot fail.
pub fn reserve_open(file: &std::fs::File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    real::reserve(file, 0, len)
}

/// Reads a whole small file; `None` where it is not there. Of one that is replaced meanwhile, the
/// file that was there before or the one that is there after.
///
/// # Errors
///
/// `InvalidData` where it is longer than `limit` bytes or not a file.
pub fn read_small(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    loop {
        let Some(entry) = disk.stat(path)? else {
            return Ok(None);
        };
        if entry.kind != Kind::File || entry.len > limit {
            let text = format!("not a file of at most {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let len = usize::try_from(entry.len).unwrap_or_default();
        // One byte more shows whether a longer file has taken its place.
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
