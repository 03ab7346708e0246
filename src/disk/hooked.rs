//! The real disk with a test hook before its calls, for faults and orderings that no real file
//! system produces on demand.

use super::{Entry, FileSystem, Holder, NotBegun, OpenFile, RealDisk, Synced, Volume};
use crate::region::{Access, Region};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A call that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`FileSystem::create`].
    Create,
    /// [`FileSystem::create_directory`].
    CreateDirectory,
    /// [`FileSystem::reserve`] of a range: its start and its length.
    Reserve(u64, u64),
    /// [`FileSystem::volume`].
    Volume,
    /// [`FileSystem::map`].
    Map,
    /// A sync of a range of a map, which opens nothing.
    SyncRange,
    /// Opening a file, a directory or the file system for a sync.
    Sync,
    /// The sync after [`Call::Sync`].
    Fsync,
    /// [`FileSystem::open`] and [`FileSystem::next_data`].
    Open,
    /// [`FileSystem::list`].
    List,
    /// [`FileSystem::read_at`].
    Read,
    /// [`FileSystem::write_at`].
    Write,
    /// [`FileSystem::probe`].
    Probe,
}

type Hook = dyn Fn(Call, &Path) -> io::Result<()> + Send + Sync;

/// The real disk, with a hook; see the module header.
pub struct HookedDisk {
    before: Box<Hook>,
}

impl std::fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HookedDisk")
    }
}

impl HookedDisk {
    /// The real disk. If `before` returns an error, the call is not made and fails with it.
    pub fn shared(
        before: impl Fn(Call, &Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn super::Disk> {
        let before = Box::new(before);
        Arc::new(HookedDisk { before })
    }
}

impl FileSystem for HookedDisk {
    fn create(&self, path: &Path, len: u64) -> io::Result<()> {
        (self.before)(Call::Create, path)?;
        RealDisk.create(path, len)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        (self.before)(Call::CreateDirectory, path)?;
        RealDisk.create_directory(path)
    }

    fn reserve(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        (self.before)(Call::Reserve(start, len), path)?;
        RealDisk.reserve(path, start, len)
    }

    fn map(&self, path: &Path, len: usize, access: Access) -> io::Result<Region> {
        (self.before)(Call::Map, path)?;
        RealDisk.map(path, len, access)
    }

    fn sync(&self, what: Synced<'_>) -> io::Result<()> {
        match what {
            Synced::Range { region, .. } => (self.before)(Call::SyncRange, region.path())?,
            Synced::File(path) | Synced::FileSystem(path) | Synced::Directory(path) => {
                (self.before)(Call::Sync, path).map_err(NotBegun::from)?;
                (self.before)(Call::Fsync, path)?;
            }
            Synced::Volume(volume) => (self.before)(Call::Fsync, volume.path())?,
        }
        RealDisk.sync(what)
    }

    fn volume(&self, path: &Path) -> io::Result<Option<Volume>> {
        (self.before)(Call::Volume, path)?;
        RealDisk.volume(path)
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        (self.before)(Call::Read, path)?;
        RealDisk.read_at(path, start, buffer)
    }

    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()> {
        (self.before)(Call::Write, path)?;
        RealDisk.write_at(path, start, bytes)
    }

    fn set_len(&self, path: &Path, len: u64) -> io::Result<()> {
        (self.before)(Call::Write, path)?;
        RealDisk.set_len(path, len)
    }

    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        RealDisk.erase(path, start, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename_new(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_directory(path)
    }

    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        (self.before)(Call::Open, path)?;
        RealDisk.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        (self.before)(Call::List, path)?;
        RealDisk.list(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Entry>> {
        RealDisk.stat(path)
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        (self.before)(Call::Open, path)?;
        RealDisk.next_data(path, start)
    }

    fn probe(&self, path: &Path) -> io::Result<Holder> {
        (self.before)(Call::Probe, path)?;
        RealDisk.probe(path)
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        RealDisk.free_space(path)
    }
}
