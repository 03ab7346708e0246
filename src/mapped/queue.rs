//! A sequence of files of one size, each named by the position of its first byte.

use super::{Extent, MappedFile};
use crate::disk::{Disk, Kind};
use crate::error::{Error, Result};
use crate::plant::{Bug, planted};
use crate::region::{Access, Region};
use crate::sync::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Length of a file name: 20 decimal digits.
pub const NAME_LEN: usize = 20;

/// No file begins after this position, so that adding a length to a position cannot overflow.
const START_MAX: u64 = 1 << 62;

/// Limit for the bytes of mapped files on a disk whose maps are copies in memory.
const COPIES_LEN_MAX: u64 = 2 << 30;

/// The files of a directory, which form one range of bytes. Only damage leaves gaps.
#[derive(Debug)]
pub struct MappedFileQueue {
    directory: PathBuf,
    file_len: u64,
    disk: Arc<dyn Disk>,
    files: RwLock<Vec<Arc<MappedFile>>>,
    /// Mapped files on a disk whose maps are copies, in the order in which they were mapped.
    copies: Mutex<Vec<Arc<MappedFile>>>,
}

/// A file found in the directory of such a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Position of its first byte, from its name.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The name of the file that begins at `start`.
pub fn file_name(start: u64) -> String {
    format!("{start:020}")
}

/// Lists the files of `directory` whose names are positions, in order. Ignores other names.
///
/// # Errors
///
/// [`Error::Unsupported`] if such a name is not a regular file: a symbolic link could lead out of
/// the store, and a FIFO could hang.
pub fn list_files(disk: &dyn Disk, directory: &Path) -> Result<Vec<FoundFile>> {
    if disk.stat(directory)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(directory)?;
    let mut files = Vec::new();
    for entry in entries {
        let Some(name) = entry.name else { continue };
        let digits = name.len() == NAME_LEN && name.bytes().all(|b| b.is_ascii_digit());
        let start = digits.then(|| name.parse::<u64>().ok()).flatten();
        let Some(start) = start.filter(|start| *start <= START_MAX) else {
            continue;
        };
        if entry.kind != Kind::File {
            let what = format!("{} is not a regular file", directory.join(name).display());
            return Err(Error::Unsupported { what });
        }
        files.push(FoundFile {
            start,
            len: entry.len,
        });
    }
    files.sort_by_key(|file| file.start);
    Ok(files)
}

impl MappedFileQueue {
    /// An empty sequence of files of `file_len` bytes in `directory`.
    pub fn new(disk: &Arc<dyn Disk>, directory: PathBuf, file_len: u64) -> MappedFileQueue {
        let files = RwLock::new(Vec::new());
        MappedFileQueue {
            directory,
            file_len,
            disk: Arc::clone(disk),
            files,
            copies: Mutex::default(),
        }
    }

    /// Adds existing files. `extent` says how much of each is written.
    pub fn load(&self, found: &[FoundFile], access: Access, extent: impl Fn(&FoundFile) -> Extent) {
        let mut files = self.files.write();
        for file in found {
            let path = self.directory.join(file_name(file.start));
            let (start, extent) = (file.start, extent(file));
            // A truncated file is mapped up to its end.
            let len = file.len.min(self.file_len);
            let opened = MappedFile::open(&self.disk, path, start, len, access, extent);
            files.push(Arc::new(opened));
        }
    }

    /// The disk of the files.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The disk of the files, for files that outlive a call.
    pub fn shared_disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Length of each file.
    #[inline]
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Path of the file that begins at `start`, whether it exists or not.
    pub fn path_of(&self, start: u64) -> PathBuf {
        self.directory.join(file_name(start))
    }

    /// Start of the file that `position` lies in.
    #[inline]
    pub fn start_of(&self, position: u64) -> u64 {
        position - position % self.file_len
    }

    /// The file that `position` lies in.
    #[inline]
    pub fn find(&self, position: u64) -> Option<Arc<MappedFile>> {
        let files = self.files.read();
        let first = files.first()?.start();
        let index = usize::try_from(position.checked_sub(first)? / self.file_len).ok()?;
        let found = match files.get(index) {
            Some(file) if file.start() <= position => Some(file),
            // A file before this one is missing.
            _ => files
                .partition_point(|file| file.start() <= position)
                .checked_sub(1)
                .and_then(|index| files.get(index)),
        };
        found.filter(|file| position < file.end()).cloned()
    }

    /// Maps one of the files.
    ///
    /// On a disk whose maps are copies, unused ones are dropped above a limit.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be mapped.
    #[inline]
    pub fn map(&self, file: &Arc<MappedFile>) -> Result<Arc<Region>> {
        if self.disk.copies() {
            self.keep_copy(file);
        }
        file.region()
    }

    /// Adds a file to the mapped copies. Above the limit, drops the oldest that are not in use:
    /// dropping a copy in use would only make another copy of it.
    #[cold]
    fn keep_copy(&self, file: &Arc<MappedFile>) {
        let mut copies = self.copies.lock();
        if copies.iter().any(|kept| Arc::ptr_eq(kept, file)) {
            return;
        }
        let mut len = file.len() + copies.iter().map(|kept| kept.len()).sum::<u64>();
        copies.retain(|kept| {
            let dropped = len > COPIES_LEN_MAX && kept.unmap_idle();
            len -= if dropped { kept.len() } else { 0 };
            !dropped
        });
        copies.push(Arc::clone(file));
    }

    /// Unmaps files that lie entirely below `position`, if nobody has used their maps since the
    /// last call.
    pub fn unmap_unused(&self, position: u64) {
        let files = self.files.read().clone();
        let below = files.iter().filter(|file| file.end() <= position);
        below.for_each(|file| file.unmap_unused());
    }

    /// The first file.
    pub fn first(&self) -> Option<Arc<MappedFile>> {
        self.files.read().first().cloned()
    }

    /// The last file.
    pub fn last(&self) -> Option<Arc<MappedFile>> {
        self.files.read().last().cloned()
    }

    /// All files in order.
    pub fn all(&self) -> Vec<Arc<MappedFile>> {
        self.files.read().clone()
    }

    /// Adds the file after the last one.
    pub fn push(&self, file: Arc<MappedFile>) {
        let mut files = self.files.write();
        debug_assert!(files.last().is_none_or(|last| last.end() <= file.start()));
        files.push(file);
    }

    /// Replaces the file with the same start, or fills a gap. Maps of the replaced file stay valid
    /// for their holders.
    pub fn replace(&self, file: &Arc<MappedFile>) {
        let mut files = self.files.write();
        let at = files.partition_point(|other| other.start() < file.start());
        match files.get_mut(at) {
            Some(other) if other.start() == file.start() => *other = Arc::clone(file),
            _ => files.insert(at, Arc::clone(file)),
        }
    }

    /// Makes `from..to` durable, file by file in order.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the failure is final for the affected pages, see the flush service.
    pub fn flush(&self, from: u64, to: u64) -> Result<()> {
        let files = self.files.read().clone();
        for file in files
            .iter()
            .filter(|file| file.end() > from && file.start() < to)
        {
            let start = from.saturating_sub(file.start());
            let end = to.min(file.end()) - file.start();
            file.flush(start, end)?;
        }
        Ok(())
    }

    /// Removes the first file if it lies entirely below `position` and is not the last. The file
    /// leaves the sequence only when its unlink is durable. Its maps stay valid for their holders.
    /// Returns `None` if there is no such file.
    ///
    /// Removes one file per call: of several unlinked together, any may reappear after a power
    /// loss, which would leave a gap.
    pub fn retire_first(&self, position: u64) -> Result<Option<Arc<MappedFile>>> {
        let Some(file) = self.first_below(position) else {
            return Ok(None);
        };
        match self.disk.unlink(file.path()) {
            // An earlier call failed after the unlink.
            Err(error) if error.is_not_found() => {}
            gone => gone?,
        }
        if !planted(Bug::RetireTogether) {
            self.disk.sync_directory(&self.directory)?;
        }
        self.files.write().remove(0);
        Ok(Some(file))
    }

    /// Forgets files that another process removed: those below `position`, but never the last.
    pub fn forget_below(&self, position: u64) {
        while self.first_below(position).is_some() {
            self.files.write().remove(0);
        }
    }

    /// The first file, if it lies below `position` and is not the last.
    fn first_below(&self, position: u64) -> Option<Arc<MappedFile>> {
        let files = self.files.read();
        let first = files.first().filter(|_| files.len() > 1)?;
        (first.end() <= position).then(|| Arc::clone(first))
    }
}
