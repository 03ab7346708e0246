//! Cutting a queue at either end.

use super::{ConsumeQueue, ENTRY_LEN, Files};
use crate::error::Result;
use crate::mapped::queue::file_name;
use crate::plant::{Bug, planted};
use crate::region::Access;
use std::sync::atomic::Ordering;

impl ConsumeQueue {
    /// Cuts the queue at `max`: erases later entries and deletes later files. Durable with the next
    /// flush.
    pub fn truncate(&self, max: u64) -> Result<()> {
        let keep = max - max % self.store.file_entries;
        let mut files = self.files.lock();
        if self.store.access == Access::Read {
            // Entries in memory stay, because some of them may be below the end.
            self.bounds.max.store(max, Ordering::Release);
            return Ok(());
        }
        let later: Vec<u64> = files
            .on_disk
            .range(keep + 1..)
            .map(|(start, _)| *start)
            .collect();
        for start in later {
            self.remove(&mut files, start)?;
        }
        if files.on_disk.contains_key(&keep) {
            let path = self.directory.join(file_name(keep * ENTRY_LEN));
            let from = (max - keep) * ENTRY_LEN;
            let len = self.store.file_entries * ENTRY_LEN - from;
            if self.store.disk.next_data(&path, from)?.is_some() {
                self.store.disk.erase(&path, from, len)?;
                let end = keep + self.store.file_entries;
                self.erased.fetch_max(end, Ordering::AcqRel);
            }
        }
        drop(files);
        self.flushed.fetch_min(max, Ordering::AcqRel);
        self.set_bounds(self.min(), max);
        Ok(())
    }

    /// Empties the queue: its next message gets offset `next`, at or below the end.
    pub fn empty_at(&self, next: u64) -> Result<()> {
        self.truncate(next)?;
        self.set_bounds(next, next);
        Ok(())
    }

    /// First offset whose entry does not point below `min_position`. Trusts the entries.
    pub fn first_in_log(&self, min_position: u64) -> Result<u64> {
        let first = self.readable(self.min())?;
        match first.filter(|first| first.position >= min_position) {
            Some(_) => Ok(self.min()),
            None => self.first_from(min_position),
        }
    }

    /// Raises the first offset past messages below `min_position` of the log.
    pub fn raise_min(&self, min_position: u64) -> Result<()> {
        let low = self.first_in_log(min_position)?;
        // Never lowers it: another thread may meanwhile have followed a log that begins later.
        self.raise_min_to(low);
        Ok(())
    }

    /// Raises the first offset to `number`, unless it is already higher.
    pub fn raise_min_to(&self, number: u64) {
        self.bounds.min.fetch_max(number, Ordering::AcqRel);
    }

    /// [`ConsumeQueue::raise_min`] for a reader, while the writer deletes files. Does nothing if
    /// the minimum was followed before.
    pub fn follow_min(&self, min_position: u64) -> Result<()> {
        if self.followed.load(Ordering::Acquire) < min_position {
            self.refresh_files()?;
            self.raise_min(min_position)?;
            self.followed.fetch_max(min_position, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Deletes the files before the first offset, but never the last file: it keeps the next offset
    /// of a queue without messages.
    pub fn retire_files(&self) -> Result<()> {
        if self.store.access == Access::Read {
            return Ok(());
        }
        let min = self.min();
        let mut files = self.files.lock();
        while let Some((start, _)) = files.on_disk.first_key_value() {
            let start = *start;
            if start + self.store.file_entries > min || files.on_disk.len() == 1 {
                break;
            }
            self.remove(&mut files, start)?;
        }
        Ok(())
    }

    /// Whether the files found so far are remnants of a removal: no entry points into a log that
    /// begins at `min_position`. After a power failure, names need not disappear in order, so an
    /// older file may remain although many later ones are gone.
    pub(super) fn is_removed(&self, min_position: u64) -> Result<bool> {
        if planted(Bug::EndAtRemoved) {
            return Ok(false);
        }
        let first = self.first_on_disk().unwrap_or(0);
        for number in (first..self.last_on_disk()?).rev() {
            if let Some(entry) = self.readable(number)? {
                return Ok(entry.end() <= min_position);
            }
        }
        Ok(true)
    }

    /// Deletes all files; a reader forgets them.
    pub(super) fn remove_all(&self) -> Result<()> {
        let mut files = self.files.lock();
        while let Some((start, _)) = files.on_disk.first_key_value() {
            let start = *start;
            match self.store.access {
                Access::ReadWrite => self.remove(&mut files, start)?,
                Access::Read => self.forget(&mut files, start),
            }
        }
        Ok(())
    }

    /// Deletes the file that begins with entry `start`.
    fn remove(&self, files: &mut Files, start: u64) -> Result<()> {
        self.unlink(start)?;
        self.forget(files, start);
        Ok(())
    }

    fn forget(&self, files: &mut Files, start: u64) {
        let gone = files.on_disk.remove(&start);
        if gone.is_some_and(|file| file.region.is_some()) {
            self.store.mapped.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Unlinks the file that begins with entry `start`. Durable with the next flush.
    pub fn unlink(&self, start: u64) -> Result<()> {
        let path = self.directory.join(file_name(start * ENTRY_LEN));
        match self.store.disk.unlink(&path) {
            Err(error) if error.is_not_found() => {}
            gone => gone?,
        }
        self.names_changed.store(true, Ordering::Release);
        Ok(())
    }
}
