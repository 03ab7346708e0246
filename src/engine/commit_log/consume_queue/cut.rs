//! Cutting a queue at either end.

use super::{ConsumeQueue, ENTRY_LEN};
use crate::error::{Error, Result};
use crate::mapped::Access;
use crate::mapped::queue::file_name;
use std::sync::atomic::Ordering;

impl ConsumeQueue {
    /// Cuts the queue at `max`: later entries become zeros, later files go.
    pub fn truncate(&self, max: u64) -> Result<()> {
        let keep = max - max % self.store.file_entries;
        let mut files = self.files.lock();
        if self.store.access == Access::Read {
            // Entries in memory stay: those below the end may be among them.
            self.max.store(max, Ordering::Release);
            return Ok(());
        }
        let behind: Vec<u64> = files
            .on_disk
            .range(keep + 1..)
            .map(|(start, _)| *start)
            .collect();
        for start in behind {
            let path = self.directory.join(file_name(start * ENTRY_LEN));
            self.store
                .disk
                .unlink(&path)
                .map_err(|e| Error::io("unlink", &path, e))?;
            files.on_disk.remove(&start);
        }
        if files.on_disk.contains_key(&keep) {
            let path = self.directory.join(file_name(keep * ENTRY_LEN));
            let from = (max - keep) * ENTRY_LEN;
            let len = self.store.file_entries * ENTRY_LEN - from;
            let data = self.store.disk.next_data(&path, from);
            if data.map_err(|e| Error::io("read", &path, e))?.is_some() {
                let erased = self.store.disk.erase(&path, from, len);
                erased.map_err(|e| Error::io("erase", &path, e))?;
            }
        }
        drop(files);
        self.flushed.fetch_min(max, Ordering::AcqRel);
        self.set_bounds(self.min(), max);
        Ok(())
    }

    /// Takes away the files whose last entry leads below `min_position`, but never the last file,
    /// and moves the first offset behind what is no longer in the log.
    pub fn correct_min(&self, min_position: u64) -> Result<()> {
        let first = self.readable(self.min())?;
        let low = match first.filter(|first| first.position >= min_position) {
            Some(_) => self.min(),
            None => self.first_from(min_position)?,
        };
        self.min.store(low, Ordering::Release);
        if self.store.access == Access::ReadWrite {
            self.retire_files_below(low)?;
        }
        Ok(())
    }

    fn retire_files_below(&self, min: u64) -> Result<()> {
        let mut files = self.files.lock();
        while let Some((start, _)) = files.on_disk.first_key_value() {
            let start = *start;
            if start + self.store.file_entries > min || files.on_disk.len() == 1 {
                break;
            }
            let path = self.directory.join(file_name(start * ENTRY_LEN));
            self.store
                .disk
                .unlink(&path)
                .map_err(|e| Error::io("unlink", &path, e))?;
            if files
                .on_disk
                .remove(&start)
                .is_some_and(|file| file.region.is_some())
            {
                self.store.mapped.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
