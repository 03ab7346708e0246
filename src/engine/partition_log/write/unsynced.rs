//! Makes partitions durable: a few one by one, many by one sync of the file system.
//!
//! Nothing is synced when a partition or a segment is created. Its name becomes durable with the
//! first messages in it:
//!
//! ```text
//!   names of the folders, once for all partitions
//!   for each partition: complete segments --> last segment --> small files --> names of the files
//!                       --> the partition is durable up to there
//! ```

use super::ends::{End, Ends};
use super::files;
use super::indexes::Indexes;
use super::producers;
use crate::disk::{Disk, Volume};
use crate::error::Result;
use crate::mapped::MappedFile;
use crate::plant::{Bug, planted};
use crate::sync::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Up to this many syncs are made one by one. Instead of more, one sync of the whole file system is
/// made if it can be relied on, because that costs less. Tests have few partitions and need both
/// ways.
const SYNCS_MAX: usize = if cfg!(test) { 8 } else { 64 };

/// What has to be synced of a partition.
#[derive(Debug)]
pub struct Unsynced {
    /// The ends of the partition.
    pub ends: Arc<Ends>,
    /// Its end when it was taken.
    pub end: End,
    /// Segments that are complete: path and length.
    pub sealed: Vec<(PathBuf, u64)>,
    /// The last segment, and the range of its bytes.
    pub last: Option<(Arc<MappedFile>, u64, u64)>,
    /// Whether other processes have appended to the last segment, so that its file is synced
    /// instead of a map.
    pub is_shared: bool,
    /// Whether segments were begun, so that names and lengths of files may not be durable.
    pub begun: bool,
    /// Whether the small files of the partition were written.
    pub prepared: bool,
}

impl Unsynced {
    /// Number of syncs of files and folders.
    fn syncs(&self) -> usize {
        let small = usize::from(self.prepared) * files::SMALL.len();
        self.sealed.len() + 1 + small + usize::from(self.begun || self.prepared)
    }

    /// Cuts complete segments to their contents: a broker would take the zeros after them for
    /// damage.
    fn cut(&self, disk: &dyn Disk) -> Result<()> {
        let mut sealed = self.sealed.iter();
        sealed.try_for_each(|(path, len)| disk.set_len(path, *len))
    }

    /// Writes the producer snapshot at the base of a segment that was begun, for a broker.
    fn keep_producers(&self, disk: &dyn Disk) -> Result<()> {
        match self.begun && self.end.base > 0 {
            true => producers::keep(disk, &self.ends, self.end.base),
            false => Ok(()),
        }
    }

    fn sync(&self, disk: &dyn Disk) -> Result<()> {
        for (path, _) in &self.sealed {
            disk.sync_file(path)?;
        }
        match &self.last {
            Some((file, ..)) if self.begun || self.is_shared => disk.sync_file(file.path())?,
            Some((file, from, to)) if from < to => file.flush(*from, *to)?,
            _ => {}
        }
        if self.prepared {
            for name in files::SMALL {
                disk.sync_file(&self.ends.folder.join(name))?;
            }
        }
        if (self.begun || self.prepared) && !planted(Bug::NoDirectorySync) {
            disk.sync_directory(&self.ends.folder)?;
        }
        Ok(())
    }
}

/// Syncs everything in the list, and the names of folders. What is left in the list after an error
/// may be synced again.
///
/// # Errors
///
/// Those of the disk.
pub fn sync_each(
    disk: &dyn Disk,
    root: &Path,
    folders: &Folders,
    list: &mut Vec<Unsynced>,
) -> Result<()> {
    let retry = || planted(Bug::RetryFailedSync);
    for unsynced in list.iter() {
        unsynced.cut(disk)?;
        unsynced.keep_producers(disk)?;
    }
    let syncs: usize = list.iter().map(Unsynced::syncs).sum();
    if let Some(volume) = folders.volume().filter(|_| syncs > SYNCS_MAX) {
        match folders.sync_together(disk, &volume) {
            Err(_) if retry() => folders.sync_together(disk, &volume)?,
            synced => synced?,
        }
        for unsynced in list.drain(..) {
            unsynced.ends.set_durable(unsynced.end);
        }
        return Ok(());
    }
    folders.sync(disk, root)?;
    let mut done = 0;
    let mut outcome = Ok(());
    // From the oldest: a later entry may be of the same partition.
    for unsynced in list.iter() {
        outcome = match unsynced.sync(disk) {
            Err(_) if retry() => unsynced.sync(disk),
            synced => synced,
        };
        if outcome.is_err() {
            break;
        }
        unsynced.ends.set_durable(unsynced.end);
        done += 1;
    }
    list.drain(..done);
    outcome
}

/// Cuts last segments to their contents, and writes their indexes: log files, lengths and indexes.
/// Durable on return.
///
/// # Errors
///
/// Those of the disk.
pub fn complete(
    disk: &dyn Disk,
    folders: &Folders,
    last: &[(PathBuf, u64, Indexes)],
) -> Result<()> {
    /// For a log file, two indexes and their names.
    const SYNCS_EACH: usize = 4;
    let is_long = last.len() * SYNCS_EACH > SYNCS_MAX;
    let together = folders.volume().filter(|_| is_long);
    for (log, len, indexes) in last {
        disk.set_len(log, *len)?;
        if together.is_some() {
            indexes.write(disk, log)?;
            continue;
        }
        disk.sync_file(log)?;
        indexes.save(disk, log)?;
        if let Some(folder) = log.parent() {
            disk.sync_directory(folder)?;
        }
    }
    match together {
        Some(volume) => disk.sync_volume(&volume),
        None => Ok(()),
    }
}

/// Makes the small files of these partitions durable. The names of their folders already are.
///
/// # Errors
///
/// Those of the disk.
pub fn sync_small(disk: &dyn Disk, folders: &Folders, of: &[Arc<Ends>]) -> Result<()> {
    /// The files and their names.
    const SYNCS_EACH: usize = files::SMALL.len() + 1;
    let is_long = of.len() * SYNCS_EACH > SYNCS_MAX;
    if let Some(volume) = folders.volume().filter(|_| is_long) {
        return folders.sync_together(disk, &volume);
    }
    of.iter()
        .try_for_each(|ends| files::sync_small(disk, &ends.folder))
}

/// The names of the folders of partitions.
#[derive(Debug, Default)]
pub struct Folders {
    /// How often folders were made.
    made: AtomicU64,
    /// Up to which of these times the names are durable. Held during a sync.
    synced: Mutex<u64>,
    /// The file system that they are on.
    volume: Mutex<Option<Arc<Volume>>>,
}

impl Folders {
    /// The folders in the directory `root`. All names are durable.
    pub fn new(disk: &dyn Disk, root: &Path) -> Folders {
        // Where it cannot be opened, files are synced one by one.
        let volume = disk.raw().volume(root).ok().flatten();
        Folders {
            volume: Mutex::new(volume.map(Arc::new)),
            ..Folders::default()
        }
    }

    /// The file system that they are on, if the sync of it can be relied on.
    fn volume(&self) -> Option<Arc<Volume>> {
        self.volume.lock().clone()
    }

    /// Closes the handle of the file system.
    pub fn release(&self) {
        *self.volume.lock() = None;
    }

    /// Notes that folders were made.
    pub fn add(&self) {
        self.made.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the names durable.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn sync(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let mut synced = self.synced.lock();
        let made = self.made.load(Ordering::Acquire);
        if *synced < made {
            disk.sync_directory(root)?;
            *synced = made;
        }
        Ok(())
    }

    /// Makes the names durable, and everything else in the file system.
    fn sync_together(&self, disk: &dyn Disk, volume: &Volume) -> Result<()> {
        let mut synced = self.synced.lock();
        let made = self.made.load(Ordering::Acquire);
        disk.sync_volume(volume)?;
        *synced = made;
        Ok(())
    }
}
