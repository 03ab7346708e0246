//! Small files, which are read and replaced as a whole.

use super::{Disk, Entry, FileSystem, Kind};
use crate::error::{At, Error, Op, Result};
use std::io;
use std::path::{Path, PathBuf};

/// A long text is read in parts of this many bytes.
const PART_LEN: usize = if cfg!(test) { 16 } else { 1 << 20 };

/// Atomically and durably replaces a small file: temporary file, sync, rename, sync of the
/// directory.
///
/// After a crash the file is entirely the old or entirely the new one.
///
/// # Errors
///
/// [`Error::Io`]: a failed sync as one, any other failure as one of writing `path`.
#[cfg_attr(test, track_caller)]
pub fn replace(disk: &dyn Disk, path: &Path, contents: &[u8]) -> Result<()> {
    replace_keeping(disk, path, contents, None)
}

/// [`replace`] that first gives the file the name `kept`, if there is one.
///
/// After a crash the file may be missing while the old one has the name `kept`.
///
/// # Errors
///
/// As [`replace`].
#[cfg_attr(test, track_caller)]
pub fn replace_keeping(
    disk: &dyn Disk,
    path: &Path,
    contents: &[u8],
    kept: Option<&Path>,
) -> Result<()> {
    let io = |error: Error| error.during(Op::Write, path);
    let temporary = write_beside(disk, path, contents)?;
    disk.sync_file(&temporary).map_err(io)?;
    if let Some(kept) = kept {
        disk.rename(path, kept).map_err(io)?;
    }
    disk.rename(&temporary, path).map_err(io)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    disk.sync_directory(directory).map_err(io)
}

/// [`replace`], but nothing is durable on return: if the power fails, the file may be the old one,
/// or torn. If the process dies, it is entirely the old or entirely the new one.
///
/// # Errors
///
/// [`Error::Io`] of writing `path`.
pub fn put(disk: &dyn Disk, path: &Path, contents: &[u8]) -> Result<()> {
    let temporary = write_beside(disk, path, contents)?;
    let renamed = disk.rename(&temporary, path);
    renamed.map_err(|error| error.during(Op::Write, path))
}

/// Writes a temporary file for one that it will replace, and returns its path.
fn write_beside(disk: &dyn Disk, path: &Path, contents: &[u8]) -> Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let io = |error: Error| error.during(Op::Write, path);
    if disk.stat(&temporary).map_err(io)?.is_some() {
        disk.unlink(&temporary).map_err(io)?;
    }
    disk.write_at(&temporary, 0, contents).map_err(io)?;
    Ok(temporary)
}

/// Reads a whole small file; `None` if it is missing. If the file is replaced meanwhile, returns
/// the old or the new one, never a mix.
///
/// # Errors
///
/// [`Error::Io`] of reading; `InvalidData` if it is longer than `limit` bytes or not a regular
/// file.
pub fn read_small(disk: &dyn Disk, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    read_whole(disk.raw(), path, limit).at(Op::Read, path)
}

/// As [`read_small`], for a text whose length follows from what the store holds: it may have more
/// than `limit` bytes. A zero byte, which no text has, ends the reading of such a file: a hole
/// takes no room on the disk and would fill the memory.
///
/// # Errors
///
/// As [`read_small`].
pub fn read_text(disk: &dyn Disk, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let is_long = |entry: &Entry| entry.kind == Kind::File && entry.len > limit;
    if !disk.stat(path)?.is_some_and(|entry| is_long(&entry)) {
        return read_small(disk, path, limit);
    }
    // One open file, so that the parts are those of one file.
    let file = disk.open(path)?;
    let (mut text, mut part) = (Vec::new(), vec![0; PART_LEN]);
    loop {
        let have = file.read_at(text.len() as u64, &mut part)?;
        let read = part.get(..have).unwrap_or_default();
        text.extend_from_slice(read);
        if read.is_empty() || read.contains(&0) {
            return Ok(Some(text));
        }
    }
}

fn read_whole(disk: &dyn FileSystem, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
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
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;
    use crate::disk::{Call, HookedDisk, RealDisk};
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
            read_whole(disk.raw(), &path, 100)
        };
        for new in [&b"longer than four"[..], b"two", b""] {
            assert_eq!(replaced(Some(new))?.as_deref(), Some(new));
        }
        assert_eq!(replaced(None)?, None);
        Ok(())
    }

    /// A hole of a terabyte takes no room on the disk.
    #[test]
    fn a_long_text_is_read_as_far_as_it_has_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        let text = "a line\n".repeat(20);
        fs::write(&path, &text).unwrap();
        for limit in [10, 1000] {
            let read = read_text(&RealDisk, &path, limit).unwrap();
            assert_eq!(read.as_deref(), Some(text.as_bytes()));
        }
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let read = read_text(&RealDisk, &path, 1000).unwrap().unwrap();
        assert!(read.starts_with(text.as_bytes()) && read.contains(&0));
        assert!(read.len() <= text.len() + PART_LEN, "{}", read.len());
        assert!(read_text(&RealDisk, dir.path(), 10).is_err());
        let missing = dir.path().join("missing");
        assert!(read_text(&RealDisk, &missing, 10).unwrap().is_none());
    }
}
