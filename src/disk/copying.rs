//! A disk that reads by copying, for a directory whose live owner may truncate its files: loads
//! from a map of a truncated file raise SIGBUS.

use crate::disk::{Entry, FileSystem, OpenFile, RealDisk, Synced};
use crate::num::index;
use crate::region::{Access, Region};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Reads like [`RealDisk`], but a map is a copy of the file's bytes at that time. All changes are
/// refused.
#[derive(Clone, Copy, Debug)]
pub struct CopyingDisk;

const CHUNK: usize = 1 << 20;

fn refuse<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl FileSystem for CopyingDisk {
    fn map(&self, path: &Path, len: usize, _: Access) -> io::Result<Region> {
        let region = Region::anonymous(len, path)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while let Some(data) = RealDisk.next_data(path, at)?
            && data.start < len as u64
        {
            let start = data.start;
            let part = index(data.end.min(len as u64) - start).min(CHUNK);
            let have = RealDisk.read_at(path, start, buffer.get_mut(..part).unwrap_or_default())?;
            if have == 0 {
                break;
            }
            region.write(index(start), buffer.get(..have).unwrap_or_default())?;
            at = start + have as u64;
        }
        Ok(region)
    }

    fn copies(&self) -> bool {
        true
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        RealDisk.read_at(path, start, buffer)
    }

    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        RealDisk.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Entry>> {
        RealDisk.stat(path)
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        RealDisk.next_data(path, start)
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        RealDisk.free_space(path)
    }

    fn create(&self, _: &Path, _: u64) -> io::Result<()> {
        refuse()
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn reserve(&self, _: &Path, _: u64, _: u64) -> io::Result<()> {
        refuse()
    }

    fn sync(&self, _: Synced<'_>) -> io::Result<()> {
        refuse()
    }

    fn write_at(&self, _: &Path, _: u64, _: &[u8]) -> io::Result<()> {
        refuse()
    }

    fn erase(&self, _: &Path, _: u64, _: u64) -> io::Result<()> {
        refuse()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn rename_new(&self, _: &Path, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove_directory(&self, _: &Path) -> io::Result<()> {
        refuse()
    }
}
