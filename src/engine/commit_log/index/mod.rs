//! The key index of a store: a list of index files. Entries are added to the last one.

pub mod file;

use crate::disk::{Disk, Kind};
use crate::error::{Error, Result};
use crate::record::rocketmq::Record;
use crate::record::rocketmq::layout::sys_flag;
use crate::record::rocketmq::properties::{Known, index_hash};
use crate::region::Access;
use crate::sync::RwLock;
use file::IndexFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// All index files of a store.
#[derive(Debug)]
pub struct Index {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    slots: u32,
    entries: u32,
    access: Access,
    files: RwLock<Vec<Arc<IndexFile>>>,
    /// Name of the first file that was changed since the last flush; `u64::MAX` if there is none.
    dirty: AtomicU64,
    /// Whether files were removed since the directory was synced.
    unlinked: AtomicBool,
}

impl Index {
    /// An index without files.
    pub fn new(
        disk: &Arc<dyn Disk>,
        directory: PathBuf,
        (slots, entries): (u32, u32),
        access: Access,
    ) -> Index {
        Index {
            disk: Arc::clone(disk),
            directory,
            slots,
            entries,
            access,
            files: RwLock::default(),
            dirty: AtomicU64::new(u64::MAX),
            unlinked: AtomicBool::new(false),
        }
    }

    /// Opens the existing files. The first file that cannot belong to a log that ends at `end` ends
    /// the index: it and all later files are left out, and the result is `false`.
    pub fn load(&self, end: u64) -> Result<bool> {
        let names = list_names(&*self.disk, &self.directory)?;
        let mut files = self.files.write();
        let mut last_end = 0;
        for (name, len) in names {
            let file = match self.open_file(name, len) {
                // The writer has deleted it meanwhile.
                Err(error) if error.is_not_found() && self.access == Access::Read => continue,
                opened => opened?,
            };
            let Some(file) = file else {
                return Ok(false);
            };
            let (begin, last) = file.positions()?;
            let used = file.count()? > 1;
            if used && (begin < last_end || last < begin || last >= end) {
                return Ok(false);
            }
            last_end = if used { last } else { last_end };
            if used && self.access == Access::ReadWrite && file.drop_uncounted()? {
                self.dirty.fetch_min(file.name, Ordering::AcqRel);
            }
            if used {
                files.push(Arc::new(file));
            } else if self.access == Access::ReadWrite {
                // It was created but not used before the process died.
                self.unlink(file.path())?;
            }
        }
        Ok(true)
    }

    /// Reopens the files of a store that another process writes, up to `end`.
    pub fn load_again(&self, end: u64) -> Result<()> {
        let opened = self.open_behind(0, end)?;
        // Replaced in one step: concurrent readers see either the old files or the new ones.
        *self.files.write() = opened;
        Ok(())
    }

    fn open_file(&self, name: u64, len: u64) -> Result<Option<IndexFile>> {
        let path = self.directory.join(format!("{name:017}"));
        let hint = (self.slots, self.entries);
        IndexFile::open(&self.disk, path, (name, len), hint, self.access)
    }

    /// Opens a file; `None` if the writer has deleted it.
    fn open_file_if_there(&self, name: u64, len: u64) -> Result<Option<IndexFile>> {
        match self.open_file(name, len) {
            Err(error) if error.is_not_found() => Ok(None),
            opened => opened,
        }
    }

    /// Opens files that the writer has added since.
    pub fn join_new_files(&self, end: u64) -> Result<()> {
        let last = self.files.read().last().map_or(0, |file| file.name);
        let mut added = self.open_behind(last, end)?;
        if !added.is_empty() {
            let mut files = self.files.write();
            // Another thread may have joined them meanwhile.
            let last = files.last().map_or(0, |file| file.name);
            added.retain(|file| file.name > last);
            files.append(&mut added);
        }
        Ok(())
    }

    /// Opens the files with names above `last` that have records below `end`.
    fn open_behind(&self, last: u64, end: u64) -> Result<Vec<Arc<IndexFile>>> {
        let mut opened = Vec::new();
        for (name, len) in list_names(&*self.disk, &self.directory)? {
            if name > last
                && let Some(file) = self.open_file_if_there(name, len)?
                && file.count()? > 1
                && file.positions()?.0 < end
            {
                opened.push(Arc::new(file));
            }
        }
        Ok(opened)
    }

    /// The files, oldest first.
    pub fn files(&self) -> Vec<Arc<IndexFile>> {
        self.files.read().clone()
    }

    /// Name of each file and number of its next entry, oldest first.
    pub fn listing(&self) -> Result<Vec<(String, u32)>> {
        let files = self.files.read();
        let listed = files.iter().map(|file| {
            let name = file.path().file_name().unwrap_or_default();
            Ok((name.to_string_lossy().into_owned(), file.count()?))
        });
        listed.collect()
    }

    /// Position of the last record that has an entry; `None` for an empty index.
    pub fn end_position(&self) -> Result<Option<u64>> {
        let last = self.files.read().last().cloned();
        last.map(|file| Ok(file.positions()?.1)).transpose()
    }

    /// The file for the next entry. Creates one if the last is full.
    pub fn current(&self) -> Result<Arc<IndexFile>> {
        let last = self.files.read().last().cloned();
        match last {
            Some(file) if !file.is_full()? => Ok(file),
            last => self.add_file(last.as_deref()),
        }
    }

    fn add_file(&self, last: Option<&IndexFile>) -> Result<Arc<IndexFile>> {
        self.disk.create_directory(&self.directory)?;
        let name = file_name_now().max(last.map_or(0, |file| file.name + 1));
        let path = self.directory.join(format!("{name:017}"));
        let geometry = (self.slots, self.entries);
        let end = match last {
            None => None,
            Some(last) => Some((last.times()?.1, last.positions()?.1)),
        };
        let file = Arc::new(IndexFile::create(&self.disk, path, name, geometry, end)?);
        self.files.write().push(Arc::clone(&file));
        Ok(file)
    }

    /// Adds the entry of a key at the end.
    #[inline]
    pub fn put(&self, hash: u32, position: u64, time: i64) -> Result<()> {
        let file = self.current()?;
        file.put(hash, position, time)?;
        // After the stores: otherwise a flush in between could clear the mark and miss them.
        self.dirty.fetch_min(file.name, Ordering::AcqRel);
        Ok(())
    }

    /// Puts those keys of a record that the index lacks, and returns how many.
    pub fn put_missing(
        &self,
        record: &Record<'_>,
        known: &Known<'_>,
        position: u64,
    ) -> Result<u64> {
        let mut put = 0;
        let last = self.end_position()?;
        for key in known.index_keys() {
            let hash = index_hash(record.topic(), key);
            // A process that died between two keys of a record leaves the first in the index.
            let mut there = false;
            if last == Some(position) {
                for file in self.files().iter().rev().take(2) {
                    there = there || file.contains(hash, position)?;
                }
            }
            if !there && last.is_none_or(|last| position >= last) {
                self.put(hash, position, record.store_timestamp())?;
                put += 1;
            }
        }
        Ok(put)
    }

    /// [`Index::put`] for many keys: hash, position and store time of each. Returns how many were
    /// put; without an error, all. The current file is looked up once for all keys that fit it.
    pub fn put_all(&self, keys: impl Iterator<Item = (u32, u64, i64)>) -> (usize, Result<()>) {
        let (mut put, mut first) = (0, u64::MAX);
        let put_each = || {
            let mut file = self.current()?;
            first = file.name;
            for (hash, position, time) in keys {
                if file.is_full()? {
                    file = self.current()?;
                }
                file.put(hash, position, time)?;
                put += 1;
            }
            Ok(())
        };
        let result = put_each();
        self.dirty.fetch_min(first, Ordering::AcqRel);
        (put, result)
    }

    /// Removes all files, so that the index can be rebuilt from the log.
    pub fn clear(&self) -> Result<()> {
        self.files.write().clear();
        for (name, _) in list_names(&*self.disk, &self.directory)? {
            self.unlink(&self.directory.join(format!("{name:017}")))?;
        }
        Ok(())
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        match self.disk.unlink(path) {
            Err(error) if error.is_not_found() => {}
            gone => gone?,
        }
        self.unlinked.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the file that contains `position` and all later ones. Returns the position from
    /// which the log must be indexed again.
    pub fn cut(&self, position: u64) -> Result<Option<u64>> {
        let mut files = self.files.write();
        let mut from = None;
        while let Some(file) = files.last() {
            let (begin, end) = file.positions()?;
            if end < position {
                break;
            }
            from = Some(begin);
            self.unlink(file.path())?;
            files.pop();
        }
        Ok(from)
    }

    /// Removes the file of this name and all later ones, so that they can be rebuilt.
    pub fn drop_from(&self, name: u64) -> Result<()> {
        let mut files = self.files.write();
        while let Some(file) = files.last().filter(|file| file.name >= name) {
            self.unlink(file.path())?;
            files.pop();
        }
        Ok(())
    }

    /// Removes files whose records are all deleted, but never the last file. In a read-only store
    /// the files are only closed.
    pub fn retire_below(&self, position: u64) -> Result<()> {
        let mut files = self.files.write();
        while files.len() > 1 {
            let Some(file) = files.first() else { break };
            if file.positions()?.1 >= position {
                break;
            }
            if self.access == Access::ReadWrite {
                self.unlink(file.path())?;
            }
            files.remove(0);
        }
        Ok(())
    }

    /// Makes entries durable, and the removal of files: a file that came back would point to
    /// deleted records.
    pub fn flush(&self) -> Result<()> {
        if self.unlinked.swap(false, Ordering::AcqRel) {
            let synced = self.disk.sync_directory(&self.directory);
            synced.inspect_err(|_| self.unlinked.store(true, Ordering::Release))?;
        }
        if self.access == Access::Read {
            return Ok(());
        }
        let first = self.dirty.swap(u64::MAX, Ordering::AcqRel);
        let files = self.files.read().clone();
        for file in files.iter().filter(|file| file.name >= first) {
            file.flush().inspect_err(|_| {
                self.dirty.fetch_min(first, Ordering::AcqRel);
            })?;
        }
        Ok(())
    }

    /// Whether anything changed since the last flush.
    pub fn is_behind(&self) -> bool {
        self.unlinked.load(Ordering::Acquire) || self.dirty.load(Ordering::Acquire) != u64::MAX
    }

    /// Makes the next flush write everything that existed when the index was opened.
    pub fn doubt(&self) {
        if let Some(first) = self.files.read().first() {
            self.dirty.fetch_min(first.name, Ordering::AcqRel);
        }
    }

    /// Marks the pages of entries at or after `position` dirty, so that the next flush writes them
    /// even if the kernel considers them clean.
    pub fn dirty_from(&self, position: u64) -> Result<()> {
        let files = self.files.read().clone();
        for file in files {
            if file.positions()?.1 >= position {
                file.dirty_from(&*self.disk, position)?;
                self.dirty.fetch_min(file.name, Ordering::AcqRel);
            }
        }
        Ok(())
    }
}

/// Whether the keys of a record are indexed. As in RocketMQ, keys of prepared messages are indexed,
/// keys of rolled-back messages are not.
#[inline]
pub fn is_indexed(record: &Record<'_>) -> bool {
    record.sys_flag() & sys_flag::TRANSACTION != sys_flag::ROLLBACK
}

/// Names and lengths of the index files in a directory, oldest first.
fn list_names(disk: &dyn Disk, directory: &Path) -> Result<Vec<(u64, u64)>> {
    if disk.stat(directory)?.is_none() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in disk.list(directory)? {
        let digits = |name: &String| name.len() == 17 && name.bytes().all(|b| b.is_ascii_digit());
        let Some(name) = entry.name.filter(digits) else {
            continue;
        };
        if entry.kind != Kind::File {
            let what = format!("{} is not a regular file", directory.join(name).display());
            return Err(Error::Unsupported { what });
        }
        names.extend(name.parse::<u64>().ok().map(|name| (name, entry.len)));
    }
    names.sort_unstable();
    Ok(names)
}

/// The name of a file created now: local time in milliseconds.
fn file_name_now() -> u64 {
    chrono::Local::now()
        .format("%Y%m%d%H%M%S%3f")
        .to_string()
        .parse()
        .unwrap_or(0)
}
