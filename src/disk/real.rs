//! The real file system.

use super::blocks::{reserve, write_zeros};
use super::open_file::read_full;
use super::opening::{create_unnamed, directory, make_private, open, open_with_len, options};
use super::{Entry, FileSystem, Kind, NotBegun, OpenFile, Synced, Volume, syscall};
use crate::region::{Access, Region};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;

/// The operating system's file calls. Keeps no descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// Whether a directory has this path, perhaps through a symbolic link. `Path::is_dir` would take an
/// error, for example of a file system that has shut down, for absence.
fn is_directory(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes all files and names in a directory and below it durable; on Windows files only.
#[cfg(not(target_os = "linux"))]
fn sync_below(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_below(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    #[cfg(unix)]
    File::open(path)?.sync_all()?;
    Ok(())
}

fn entry(name: Option<String>, kind: fs::FileType, len: u64) -> Entry {
    let kind = match kind {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        _ => Kind::Other,
    };
    Entry { name, kind, len }
}

impl FileSystem for RealDisk {
    fn create(&self, path: &Path, len: u64) -> io::Result<()> {
        // If the process dies in between, no file is left without its length: RocketMQ 4 would
        // refuse the whole directory.
        if create_unnamed(path, len).is_ok() {
            return Ok(());
        }
        let file = options(true, true).create_new(true).open(path)?;
        let made = make_private(&file, 0o600).and_then(|()| file.set_len(len));
        if made.is_err() {
            // A file of the wrong length would make the next attempt fail.
            let _ = fs::remove_file(path);
        }
        made
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || is_directory(path)? {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_directory(parent)?;
        }
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        match builder.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                match is_directory(path)? {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            Err(error) => Err(error),
            #[cfg(unix)]
            Ok(()) => {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            }
            #[cfg(not(unix))]
            Ok(()) => Ok(()),
        }
    }

    fn reserve(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        reserve(&open(path, true)?, start, len)
    }

    fn map(&self, path: &Path, len: usize, access: Access) -> io::Result<Region> {
        let file = open(path, access == Access::ReadWrite)?;
        let mut region = Region::map(&file, path, len, access)?;
        if syscall::has_costly_holes(&file, len as u64)? {
            region.ask_for_pages();
        }
        Ok(region)
    }

    fn sync(&self, what: Synced<'_>) -> io::Result<()> {
        match what {
            Synced::Range { region, start, len } => region.sync(start, len),
            Synced::File(path) => open(path, false).map_err(NotBegun::from)?.sync_all(),
            #[cfg(target_os = "linux")]
            Synced::FileSystem(path) => {
                let opened = File::open(directory(path));
                syscall::sync_file_system(&opened.map_err(NotBegun::from)?)
            }
            #[cfg(not(target_os = "linux"))]
            Synced::FileSystem(path) => sync_below(path),
            Synced::Volume(volume) => volume.sync(),
            #[cfg(unix)]
            Synced::Directory(path) => {
                let opened = File::open(directory(path));
                opened.map_err(NotBegun::from)?.sync_all()
            }
            #[cfg(not(unix))]
            Synced::Directory(_) => Ok(()),
        }
    }

    fn volume(&self, path: &Path) -> io::Result<Option<Volume>> {
        Volume::open(directory(path))
    }

    fn write_back(&self, path: &Path, start: u64, len: u64) {
        if let Ok(file) = open(path, false) {
            syscall::write_back(&file, start, len);
        }
    }

    fn drop_zeros(&self, path: &Path, start: u64, len: u64) {
        if let Ok(file) = open(path, true) {
            let _ = syscall::erase(&file, start, len);
        }
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        read_full(&open(path, false)?, start, buffer)
    }

    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        let (file, len) = open_with_len(path, false)?;
        Ok(OpenFile::new(file, path).with_first_len(len))
    }

    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()> {
        let file = match open(path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = options(true, true).create_new(true).open(path)?;
                make_private(&file, 0o600)?;
                file
            }
            opened => opened?,
        };
        syscall::write_all_at(&file, bytes, start)
    }

    fn write_kept(
        &self,
        kept: &mut Option<File>,
        path: &Path,
        start: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let file = match kept {
            Some(file) => file,
            None => kept.insert(open(path, true)?),
        };
        syscall::write_all_at(file, bytes, start)
    }

    fn set_len(&self, path: &Path, len: u64) -> io::Result<()> {
        open(path, true)?.set_len(len)
    }

    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        let file = open(path, true)?;
        match syscall::erase(&file, start, len) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                write_zeros(&file, start, len)
            }
            done => done,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match syscall::rename_new(from, to) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            done => return done,
        }
        // `link` fails if the name is taken, on every file system that has links. A process that
        // dies here leaves both names.
        fs::hard_link(from, to)?;
        fs::remove_file(from).inspect_err(|_| drop(fs::remove_file(to)))
    }

    fn modified_ms(&self, path: &Path) -> io::Result<Option<i64>> {
        let modified = fs::symlink_metadata(path)?.modified()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH);
        Ok(since
            .ok()
            .and_then(|since| i64::try_from(since.as_millis()).ok()))
    }

    fn set_modified_ms(&self, path: &Path, modified: i64) -> io::Result<()> {
        let since = std::time::Duration::from_millis(u64::try_from(modified).unwrap_or_default());
        open(path, true)?.set_modified(std::time::UNIX_EPOCH + since)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.list_some(path, &|_| true)
    }

    fn list_some(&self, path: &Path, has_len: &dyn Fn(&str) -> bool) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(path)? {
            let found = found?;
            let name = found.file_name().into_string().ok();
            let listed = match name.as_deref().is_some_and(has_len) {
                true => found.metadata().map(|it| (it.file_type(), it.len())),
                // Most file systems list the type with the name.
                false => found.file_type().map(|kind| (kind, 0)),
            };
            match listed {
                Ok((kind, len)) => entries.push(entry(name, kind, len)),
                // Removed between the listing and the stat.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Entry>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .map(str::to_owned);
                Ok(Some(entry(name, metadata.file_type(), metadata.len())))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        let file = open(path, false)?;
        if start >= file.metadata()?.len() {
            return Ok(None);
        }
        syscall::next_data(&file, start)
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        Ok(syscall::space(path)?.free)
    }

    fn used_space(&self, path: &Path) -> io::Result<u64> {
        Ok(syscall::space(path)?.used)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    #[test]
    fn a_listing_without_lengths_has_the_same_names_and_kinds() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.log", "a.index", "b.log"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("folder.log")).unwrap();
        std::os::unix::fs::symlink("a.log", dir.path().join("link.log")).unwrap();
        let sorted = |mut entries: Vec<Entry>| {
            entries.sort_by_key(|entry| entry.name.clone());
            entries
        };
        let all = sorted(RealDisk.list(dir.path()).unwrap());
        let kinds: Vec<Kind> = all.iter().map(|entry| entry.kind).collect();
        let (file, folder, link) = (Kind::File, Kind::Directory, Kind::Other);
        assert_eq!(kinds, [file, file, file, folder, link]);
        let some = RealDisk.list_some(dir.path(), &|name| name.ends_with(".index"));
        let (some, index) = (sorted(some.unwrap()), Some("a.index"));
        for (entry, known) in some.iter().zip(&all) {
            assert_eq!((&entry.name, entry.kind), (&known.name, known.kind));
            let has_len = entry.name.as_deref() == index;
            assert_eq!(entry.len, if has_len { 7 } else { 0 });
        }
        assert_eq!(some.len(), all.len());
    }

    /// Creating the directory would fail with "File exists" and hide the cause.
    #[test]
    fn a_directory_whose_stat_fails_is_not_taken_for_missing() {
        let dir = tempfile::tempdir().unwrap();
        let looped = dir.path().join("loop");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        for path in [looped.clone(), looped.join("below")] {
            let error = RealDisk.create_directory(&path).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{error}");
        }
    }
}
