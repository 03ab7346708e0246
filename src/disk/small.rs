//! Small files, which are read and replaced as a whole.

use super::{Disk, FileSystem, Kind};
use crate::error::{At, Error, Op, Result};
use std::io;
use std::path::{Path, PathBuf};

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
mod test {
    use super::*;
    use crate::disk::{Call, HookedDisk};
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
}
