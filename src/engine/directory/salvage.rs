//! Saves damaged bytes beside the log before they are replaced.
//!
//! Each damaged range becomes a file, named after its source. An existing file is never changed:
//! other bytes with the same name get a number.

use crate::disk::Disk;
use crate::error::{Error, Op, Result};
use crate::num::index;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;
/// Up to this many files are synced one by one. Instead of more, the file system is, if that can be
/// relied on.
const SYNCS_MAX: usize = if cfg!(test) { 8 } else { 64 };

/// Durably creates a directory for damaged bytes.
pub fn make_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.create_directory(path)?;
    match path.parent() {
        Some(above) => disk.sync_directory(above),
        None => Ok(()),
    }
}

/// Durably saves a range of a file as `name` in `directory`, which is created if necessary.
/// Returns the path; `None` if the file does not exist or the range holds only zeros.
pub fn save(
    disk: &dyn Disk,
    (from, range): (&Path, Range<u64>),
    (directory, name): (&Path, &str),
) -> Result<Option<PathBuf>> {
    let mut pieces = Pieces::new(disk, from, directory);
    let saved = pieces.add(range, name)?;
    pieces.sync()?;
    Ok(saved)
}

/// Ranges of a file that are saved together.
pub struct Pieces<'a> {
    disk: &'a dyn Disk,
    from: &'a Path,
    directory: &'a Path,
    /// Files that may not be durable, in a directory that is.
    unsynced: Vec<PathBuf>,
}

impl<'a> Pieces<'a> {
    /// No range of a file, to be saved in a directory, which is created if necessary.
    pub fn new(disk: &'a dyn Disk, from: &'a Path, directory: &'a Path) -> Pieces<'a> {
        Pieces {
            disk,
            from,
            directory,
            unsynced: Vec::new(),
        }
    }

    fn error(&self, error: Error) -> Error {
        error.during(Op::Save, self.from)
    }

    /// Saves a range as `name`. Returns the path; `None` if the file does not exist or the range
    /// holds only zeros. Durable once [`Pieces::sync`] returns.
    pub fn add(&mut self, range: Range<u64>, name: &str) -> Result<Option<PathBuf>> {
        let (disk, from) = (self.disk, self.from);
        let io = |error: Error| error.during(Op::Save, from);
        let found = disk.stat(from).map_err(io)?;
        let end = found.map_or(0, |entry| entry.len).min(range.end);
        if !has_data(disk, from, range.start..end).map_err(io)? {
            return Ok(None);
        }
        if self.unsynced.is_empty() {
            make_directory(disk, self.directory)?;
        }
        let mut path = self.directory.join(name);
        let len = end - range.start;
        let (mut number, mut is_saved) = (1, false);
        while let Some(there) = disk.stat(&path).map_err(io)? {
            is_saved =
                there.len == len && is_same(disk, from, range.start, &path, len).map_err(io)?;
            if is_saved {
                break;
            }
            // It is synced, too: an earlier repair may have saved it and died before its sync.
            let next = self.directory.join(format!("{name}.{number}"));
            self.unsynced.push(std::mem::replace(&mut path, next));
            number += 1;
        }
        if !is_saved {
            disk.create(&path, len).map_err(io)?;
            if let Err(error) = copy(disk, from, range.start..end, &path) {
                let _ = disk.unlink(&path);
                return Err(io(error));
            }
        }
        self.unsynced.push(path.clone());
        Ok(Some(path))
    }

    /// Makes what was saved durable.
    pub fn sync(&mut self) -> Result<()> {
        let all = std::mem::take(&mut self.unsynced);
        if all.is_empty() {
            return Ok(());
        }
        let volume = match all.len() > SYNCS_MAX {
            true => self.disk.raw().volume(self.directory).ok().flatten(),
            false => None,
        };
        let synced = match volume {
            Some(volume) => self.disk.sync_volume(&volume),
            None => all.iter().try_for_each(|path| self.disk.sync_file(path)),
        };
        synced.map_err(|error| self.error(error))?;
        let synced = self.disk.sync_directory(self.directory);
        synced.map_err(|error| self.error(error))
    }
}

/// Copies the bytes of a range that are not zero to the start of a file of zeros.
pub fn copy(disk: &dyn Disk, from: &Path, range: Range<u64>, to: &Path) -> Result<()> {
    each_chunk(disk, from, range.clone(), &mut |at, bytes| {
        disk.write_at(to, at - range.start, bytes).map(|()| true)
    })
}

fn has_data(disk: &dyn Disk, path: &Path, range: Range<u64>) -> Result<bool> {
    let mut found = false;
    each_chunk(disk, path, range, &mut |_, _| {
        found = true;
        Ok(false)
    })?;
    Ok(found)
}

fn is_same(disk: &dyn Disk, one: &Path, start: u64, two: &Path, len: u64) -> Result<bool> {
    let mut at = 0;
    while at < len {
        let [mut a, mut b] = [(); 2].map(|()| vec![0; index(CHUNK.min(len - at))]);
        let have = disk.read_at(one, start + at, &mut a)?;
        if have == 0 || disk.read_at(two, at, &mut b)? != have || a != b {
            return Ok(false);
        }
        at += have as u64;
    }
    Ok(true)
}

/// Passes every chunk that is not all zeros to `visit`, until it returns false.
fn each_chunk(
    disk: &dyn Disk,
    path: &Path,
    range: Range<u64>,
    visit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
) -> Result<()> {
    let mut buffer = vec![0; index(CHUNK)];
    let mut at = range.start;
    while at < range.end {
        let data = disk.next_data(path, at)?;
        let Some(data) = data.filter(|data| data.start < range.end) else {
            break;
        };
        at = at.max(data.start);
        let len = index(CHUNK.min(range.end.min(data.end) - at));
        let chunk = buffer.get_mut(..len).unwrap_or_default();
        let have = disk.read_at(path, at, chunk)?;
        let bytes = buffer.get(..have).unwrap_or_default();
        if have == 0 || bytes.iter().any(|byte| *byte != 0) && !visit(at, bytes)? {
            break;
        }
        at += have as u64;
    }
    Ok(())
}
