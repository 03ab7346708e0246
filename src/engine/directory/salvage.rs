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
    let io = |error: Error| error.during(Op::Save, from);
    let found = disk.stat(from).map_err(io)?;
    let end = found.map_or(0, |entry| entry.len).min(range.end);
    if !has_data(disk, from, range.start..end).map_err(io)? {
        return Ok(None);
    }
    make_directory(disk, directory)?;
    let mut path = directory.join(name);
    let len = end - range.start;
    let (mut number, mut is_saved, mut others) = (1, false, Vec::new());
    while let Some(there) = disk.stat(&path).map_err(io)? {
        is_saved = there.len == len && is_same(disk, from, range.start, &path, len).map_err(io)?;
        if is_saved {
            break;
        }
        others.push(path);
        path = directory.join(format!("{name}.{number}"));
        number += 1;
    }
    if !is_saved {
        disk.create(&path, len).map_err(io)?;
        if let Err(error) = copy(disk, from, range.start..end, &path) {
            let _ = disk.unlink(&path);
            return Err(io(error));
        }
    }
    // Also syncs what an earlier repair has saved, because it may have died before its sync.
    for path in others.iter().chain([&path]) {
        disk.sync_file(path).map_err(io)?;
    }
    disk.sync_directory(directory).map_err(io)?;
    Ok(Some(path))
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
