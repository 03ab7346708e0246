//! The disk: names, lengths, blocks and durability of files.
//!
//! All code above reaches the file system through [`Disk`], so that a simulator can replace it: it
//! implements [`FileSystem`], and the disk adds operation and path to its errors. The hot paths
//! (stores to a map, loads from it) do not pass through here.

mod blocks;
mod byte_lock;
pub mod copying;
mod durable;
mod event;
mod file_system;
#[cfg(test)]
mod hooked;
mod lock;
mod open_file;
mod opening;
mod process;
mod real;
mod small;
mod syscall;
mod volume;

#[cfg(test)]
pub use blocks::fill_pausing;
pub use blocks::reserve_open;
#[cfg(test)]
pub use durable::site;
pub use durable::{NotBegun, Synced};
pub use event::Event;
pub use file_system::FileSystem;
#[cfg(test)]
pub use hooked::{Call, HookedDisk};
#[cfg(test)]
pub use lock::SimulatedLocks;
pub use lock::{ByteLocks, FileLock, LockState, SIGNATURE_LEN_MAX, signer};
pub use open_file::{OpenFile, ReadAt};
pub use real::RealDisk;
pub use small::{put, read_small, read_text, replace, replace_keeping};
pub use syscall::{
    ByteLock, Holder, coarse_ms, fork_generation, host_address, now_ns, steady_ms, thread_time,
    watch_forks,
};
pub use volume::Volume;

use crate::error::{At, Op, Result};
use crate::region::{Access, Region};
use std::fmt::Debug;
use std::fs::File;
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

/// A [`FileSystem`] whose errors carry operation and path. Every file system is a disk.
///
/// Each call is the call of the same name.
pub trait Disk: Send + Sync + Debug {
    /// The calls themselves.
    fn raw(&self) -> &dyn FileSystem;

    /// [`FileSystem::create`].
    fn create(&self, path: &Path, len: u64) -> Result<()> {
        self.raw().create(path, len).at(Op::Create, path)
    }

    /// [`FileSystem::create_directory`].
    fn create_directory(&self, path: &Path) -> Result<()> {
        self.raw().create_directory(path).at(Op::Create, path)
    }

    /// [`FileSystem::reserve`].
    fn reserve(&self, path: &Path, start: u64, len: u64) -> Result<()> {
        self.raw().reserve(path, start, len).at(Op::Reserve, path)
    }

    /// [`FileSystem::map`].
    fn map(&self, path: &Path, len: usize, access: Access) -> Result<Region> {
        self.raw().map(path, len, access).at(Op::Map, path)
    }

    /// [`FileSystem::copies`].
    fn copies(&self) -> bool {
        self.raw().copies()
    }

    /// [`FileSystem::dirty_range`].
    fn dirty_range(&self, region: &Region, start: usize, len: usize) -> Result<()> {
        let dirtied = self.raw().dirty_range(region, start, len);
        dirtied.at(Op::Store, region.path())
    }

    /// [`FileSystem::write_back`].
    fn write_back(&self, path: &Path, start: u64, len: u64) {
        self.raw().write_back(path, start, len);
    }

    /// [`FileSystem::drop_zeros`].
    fn drop_zeros(&self, path: &Path, start: u64, len: u64) {
        self.raw().drop_zeros(path, start, len);
    }

    /// [`FileSystem::read_at`].
    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> Result<usize> {
        self.raw().read_at(path, start, buffer).at(Op::Read, path)
    }

    /// [`FileSystem::open`].
    fn open(&self, path: &Path) -> Result<OpenFile> {
        self.raw().open(path).at(Op::Open, path)
    }

    /// [`FileSystem::write_at`].
    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> Result<()> {
        self.raw().write_at(path, start, bytes).at(Op::Write, path)
    }

    /// [`FileSystem::write_kept`].
    fn write_kept(
        &self,
        kept: &mut Option<File>,
        path: &Path,
        start: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let written = self.raw().write_kept(kept, path, start, bytes);
        written.at(Op::Write, path)
    }

    /// [`FileSystem::set_len`].
    fn set_len(&self, path: &Path, len: u64) -> Result<()> {
        self.raw().set_len(path, len).at(Op::Write, path)
    }

    /// [`FileSystem::erase`].
    fn erase(&self, path: &Path, start: u64, len: u64) -> Result<()> {
        self.raw().erase(path, start, len).at(Op::Erase, path)
    }

    /// [`FileSystem::rename`]. The error carries the path `from`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.raw().rename(from, to).at(Op::Rename, from)
    }

    /// [`FileSystem::rename_new`]. The error carries the path `from`.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.raw().rename_new(from, to).at(Op::Rename, from)
    }

    /// [`FileSystem::modified_ms`].
    fn modified_ms(&self, path: &Path) -> Result<Option<i64>> {
        self.raw().modified_ms(path).at(Op::Stat, path)
    }

    /// [`FileSystem::set_modified_ms`].
    fn set_modified_ms(&self, path: &Path, modified: i64) -> Result<()> {
        let done = self.raw().set_modified_ms(path, modified);
        done.at(Op::Write, path)
    }

    /// [`FileSystem::unlink`].
    fn unlink(&self, path: &Path) -> Result<()> {
        self.raw().unlink(path).at(Op::Unlink, path)
    }

    /// [`FileSystem::remove_directory`].
    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.raw().remove_directory(path).at(Op::Unlink, path)
    }

    /// [`FileSystem::list`].
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.raw().list(path).at(Op::List, path)
    }

    /// [`FileSystem::list_some`].
    fn list_some(&self, path: &Path, has_len: &dyn Fn(&str) -> bool) -> Result<Vec<Entry>> {
        self.raw().list_some(path, has_len).at(Op::List, path)
    }

    /// [`FileSystem::stat`].
    fn stat(&self, path: &Path) -> Result<Option<Entry>> {
        self.raw().stat(path).at(Op::Stat, path)
    }

    /// [`FileSystem::next_data`].
    fn next_data(&self, path: &Path, start: u64) -> Result<Option<Range<u64>>> {
        self.raw().next_data(path, start).at(Op::Read, path)
    }

    /// [`FileSystem::free_space`].
    fn free_space(&self, path: &Path) -> Result<u64> {
        self.raw().free_space(path).at(Op::Stat, path)
    }

    /// [`FileSystem::used_space`].
    fn used_space(&self, path: &Path) -> Result<u64> {
        self.raw().used_space(path).at(Op::Stat, path)
    }

    /// [`FileSystem::lock`].
    fn lock(&self, path: &Path) -> Result<LockState> {
        self.raw().lock(path).at(Op::Lock, path)
    }

    /// [`FileSystem::byte_locks`].
    fn byte_locks(&self, path: &Path) -> Result<ByteLocks> {
        self.raw().byte_locks(path).at(Op::Lock, path)
    }

    /// [`FileSystem::is_byte_locked`].
    fn is_byte_locked(&self, path: &Path, byte: u32) -> Result<bool> {
        self.raw().is_byte_locked(path, byte).at(Op::Stat, path)
    }

    /// [`FileSystem::probe`].
    fn probe(&self, path: &Path) -> Result<Holder> {
        self.raw().probe(path).at(Op::Stat, path)
    }

    /// [`FileSystem::boot_id`].
    fn boot_id(&self) -> [u8; 16] {
        self.raw().boot_id()
    }

    /// [`FileSystem::identity`].
    fn identity(&self, path: &Path) -> Option<Identity> {
        self.raw().identity(path)
    }
}

impl<F: FileSystem> Disk for F {
    fn raw(&self) -> &dyn FileSystem {
        self
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::error::Error;
    use std::io;

    #[test]
    fn a_sync_that_did_not_begin_fails_like_an_opening() {
        for number in [libc::ENOMEM, libc::EMFILE, libc::EIO] {
            let disk = HookedDisk::shared(move |call, _| match call {
                Call::Sync => Err(io::Error::from_raw_os_error(number)),
                _ => Ok(()),
            });
            let Err(error) = disk.sync_file(Path::new("file")) else {
                unreachable!("the disk fails it")
            };
            assert!(matches!(error, Error::Io { op: Op::Open, .. }));
            assert_eq!(error.ends_writing(), number == libc::EIO);
        }
    }
}
