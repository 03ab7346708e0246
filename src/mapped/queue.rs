//! A row of files of one size, each named by the position of its first byte.

use super::{Extent, MappedFile};
use crate::disk::{Disk, Kind};
use crate::error::{Error, Op, Result};
use crate::region::{Access, Region};
use crate::sync::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Length of a file name: 20 decimal digits.
pub const NAME_LEN: usize = 20;

/// No file begins behind this position: what can be added to it is still a position.
const START_MAX: u64 = 1 << 62;

/// Bytes of files that are kept mapped where each map is a copy in memory.
const COPIES_LEN_MAX: u64 = 2 << 30;

/// The files of a directory that together are one long stretch of bytes. Only damage leaves gaps.
#[derive(Debug)]
pub struct MappedFileQueue {
    directory: PathBuf,
    file_len: u64,
    disk: Arc<dyn Disk>,
    files: RwLock<Vec<Arc<MappedFile>>>,
    /// Those that are kept mapped where maps are copies, in the order in which they were mapped.
    copies: Mutex<Vec<Arc<MappedFile>>>,
}

/// A file found in a directory of such files.
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

/// Files of `directory` whose names are positions, in their order. Other names are passed over.
///
/// # Errors
///
/// [`Error::Unsupported`] where such a name is no regular file: a symbolic link or a FIFO would
/// lead out of the store, or hang.
pub fn list_files(disk: &dyn Disk, directory: &Path) -> Result<Vec<FoundFile>> {
    if disk
        .stat(directory)
        .map_err(|e| Error::io(Op::Stat, directory, e))?
        .is_none()
    {
        return Ok(Vec::new());
    }
    let entries = disk
        .list(directory)
        .map_err(|e| Error::io(Op::List, directory, e))?;
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
    /// An empty row of files of `file_len` bytes in `directory`.
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

    /// Adds files that are on the disk. `extent` says how much of each is written.
    pub fn load(&self, found: &[FoundFile], access: Access, extent: impl Fn(&FoundFile) -> Extent) {
        let mut files = self.files.write();
        for file in found {
            let path = self.directory.join(file_name(file.start));
            let (start, extent) = (file.start, extent(file));
            // A file that was cut short is mapped as far as it goes.
            let len = file.len.min(self.file_len);
            let opened = MappedFile::open(&self.disk, path, start, len, access, extent);
            files.push(Arc::new(opened));
        }
    }

    /// The disk that the files are on.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
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

    /// Where the file that begins at `start` is, or would be.
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

    /// The map of one of the files.
    ///
    /// Where maps are copies, few are kept that nobody uses.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where it cannot be mapped.
    #[inline]
    pub fn map(&self, file: &Arc<MappedFile>) -> Result<Arc<Region>> {
        if self.disk.copies() {
            self.keep_copy(file);
        }
        file.region()
            .map_err(|e| Error::io(Op::Map, file.path(), e))
    }

    /// Makes a file one of those whose copies are kept. The oldest go, but for those that are in
    /// use: they would be copied a second time.
    #[cold]
    fn keep_copy(&self, file: &Arc<MappedFile>) {
        let mut copies = self.copies.lock();
        if copies.iter().any(|kept| Arc::ptr_eq(kept, file)) {
            return;
        }
        let mut len = file.len() + copies.iter().map(|kept| kept.len()).sum::<u64>();
        copies.retain(|kept| {
            let goes = len > COPIES_LEN_MAX && kept.unmap_idle();
            len -= if goes { kept.len() } else { 0 };
            !goes
        });
        copies.push(Arc::clone(file));
    }

    /// Lets go of the maps of files that lie below `position` as a whole, if nobody has asked for
    /// them since the last call.
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

    /// All files in their order.
    pub fn all(&self) -> Vec<Arc<MappedFile>> {
        self.files.read().clone()
    }

    /// Adds the file after the last one.
    pub fn push(&self, file: Arc<MappedFile>) {
        let mut files = self.files.write();
        debug_assert!(files.last().is_none_or(|last| last.end() <= file.start()));
        files.push(file);
    }

    /// Puts a file in the place of the one that begins where it does, or where one is missing. Maps
    /// of the other stay good for those who hold them.
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
    /// [`Error::Io`]; the failure is final for the pages it met, see the flush service.
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

    /// Takes the first file away if it lies below `position` as a whole and is not the last: its
    /// name is gone durably, and only then it leaves the row. Maps of it stay good for those who
    /// hold them. `None` where there is no such file.
    ///
    /// One file a call, for names that go together may come back one by one after a power loss, and
    /// what is left would have a gap.
    pub fn retire_first(&self, position: u64) -> Result<Option<Arc<MappedFile>>> {
        let Some(file) = self.first_below(position) else {
            return Ok(None);
        };
        match self.disk.unlink(file.path()) {
            // A call before this one got no further.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            gone => gone.map_err(|e| Error::io(Op::Unlink, file.path(), e))?,
        }
        let synced = self.disk.sync_directory(&self.directory);
        synced.map_err(|e| Error::io(Op::Sync, &self.directory, e))?;
        self.files.write().remove(0);
        Ok(Some(file))
    }

    /// Lets go of the files that another process took away: those below `position`, but never the
    /// last.
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
