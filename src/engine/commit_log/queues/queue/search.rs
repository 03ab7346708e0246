//! Searches for entries by position, and for the last ones written.

use super::{ConsumeQueue, ENTRY_LEN, FILLER_SIZE, QueueEntry};
use crate::error::Result;
use crate::mapped::queue::file_name;
use crate::num::index;
use std::ops::Range;
use std::path::Path;

impl ConsumeQueue {
    /// Entry `number` if it points to a record: it is readable and not a filler.
    pub fn readable(&self, number: u64) -> Result<Option<QueueEntry>> {
        let entry = self.entry(number)?;
        Ok(entry.filter(|entry| entry.size != FILLER_SIZE && entry.position < 1 << 62))
    }

    /// First number whose entry points to `position` or after it; the end if there is none.
    ///
    /// Positions ascend with the offsets. Fillers and unreadable entries say nothing and are
    /// skipped.
    pub fn first_from(&self, position: u64) -> Result<u64> {
        let (mut low, mut high) = (self.min(), self.max());
        let mut found = high;
        while low < high {
            let middle = low + (high - low) / 2;
            let mut probe = middle;
            let mut entry = self.readable(probe)?;
            while entry.is_none() && probe + 1 < high {
                probe += 1;
                entry = self.readable(probe)?;
            }
            match entry {
                Some(entry) if entry.position < position => low = probe + 1,
                Some(_) => (found, high) = (probe, middle),
                None => high = middle,
            }
        }
        Ok(found)
    }

    /// Position after the last record below `position` that an entry points to; `None` if there is
    /// none.
    pub fn last_end_below(&self, position: u64) -> Result<Option<u64>> {
        for number in (self.min()..self.first_from(position)?).rev() {
            if let Some(entry) = self.readable(number)? {
                return Ok(Some(entry.end()));
            }
        }
        Ok(None)
    }

    /// Number after the last entry whose record lies entirely below `position`. Entries without a
    /// record count with those before them.
    pub fn end_below(&self, position: u64) -> Result<u64> {
        let from = self.first_from(position)?;
        for number in (self.min()..from).rev() {
            match self.readable(number)? {
                Some(entry) if entry.end() > position => return Ok(number),
                Some(_) => break,
                None => {}
            }
        }
        Ok(from)
    }

    /// How many records from `range.start` on fit into `bytes`: the number after the last that
    /// fits, and the bytes of all that fit.
    pub fn fit(&self, range: Range<u64>, bytes: u64) -> Result<(u64, u64)> {
        let mut taken = 0;
        let mut number = range.start.max(self.min());
        let end = range.end.min(self.max());
        while number < end {
            let Some(map) = self.map_of(number)? else {
                break;
            };
            let until = map.end.min(end);
            while number < until {
                let entry = map.entry(number)?;
                let size = match entry.is_filler() {
                    true => 0,
                    false => u64::from(entry.size),
                };
                if size > bytes - taken {
                    return Ok((number, taken));
                }
                taken += size;
                number += 1;
            }
        }
        Ok((number.max(end), taken))
    }

    /// Position of the first record at or after an offset; `None` if there is none.
    pub fn position_from(&self, offset: u64) -> Result<Option<u64>> {
        for number in offset.max(self.min())..self.max() {
            if let Some(entry) = self.readable(number)? {
                return Ok(Some(entry.position));
            }
        }
        Ok(None)
    }

    /// Numbers of the entries that point into a range of the log.
    pub fn entries_in(&self, positions: &std::ops::Range<u64>) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for number in self.first_from(positions.start)?..self.max() {
            match self.readable(number)? {
                Some(entry) if entry.position < positions.end => found.push(number),
                Some(_) => break,
                None => {}
            }
        }
        Ok(found)
    }

    /// Numbers of the first and last entries of each file, within the bounds. Checking these finds
    /// most problems with a file as a whole.
    pub fn corners(&self) -> Vec<u64> {
        let (min, max, size) = (self.min(), self.max(), self.store.file_entries);
        let files = self.files.lock();
        let starts = files.on_disk.keys().copied();
        let bounds = starts.map(|start| (start.max(min), (start + size).min(max)));
        let mut corners: Vec<u64> = bounds
            .filter(|(first, end)| first < end)
            .flat_map(|(first, end)| [first, end - 1])
            .collect();
        corners.dedup();
        corners
    }

    /// Whether all entries of a range are fillers; true for an empty range.
    pub fn is_filled(&self, numbers: Range<u64>) -> Result<bool> {
        for number in numbers {
            if !self.entry(number)?.is_some_and(|entry| entry.is_filler()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the files cover every entry from `min` to the end.
    pub fn covers(&self, min: u64) -> bool {
        let files = self.files.lock();
        let size = self.store.file_entries;
        let mut start = min - min % size;
        while start < self.max() {
            if !files.on_disk.contains_key(&start) {
                return false;
            }
            start += size;
        }
        true
    }

    /// Number after the last entry on disk that is not all zeros, valid or not.
    pub fn last_on_disk(&self) -> Result<u64> {
        let starts: Vec<u64> = self.files.lock().on_disk.keys().rev().copied().collect();
        for start in starts {
            let path = self.directory.join(file_name(start * ENTRY_LEN));
            match self.written_entries(&path) {
                // Another process has deleted it.
                Err(error) if error.is_not_found() => {}
                found => {
                    if let Some(entries) = found? {
                        return Ok(start + entries);
                    }
                }
            }
        }
        Ok(self.first_on_disk().unwrap_or(0))
    }

    /// Number of entries up to the last that is not zero; `None` if all are zero. Reads backwards,
    /// so that a page of zeros in the middle hides nothing.
    fn written_entries(&self, path: &Path) -> Result<Option<u64>> {
        const CHUNK: u64 = 20 * 1024;
        let disk = &self.store.disk;
        let file_len = self.store.file_entries * ENTRY_LEN;
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(data) = disk.next_data(path, at)?
            && data.start < file_len
        {
            at = data.end;
            runs.push(data.start..data.end.min(file_len));
        }
        let mut buffer = Vec::new();
        for mut run in runs.into_iter().rev() {
            while !run.is_empty() {
                let start = run.end.saturating_sub(CHUNK).max(run.start);
                buffer.resize(index(run.end - start), 0);
                let have = disk.read_at(path, start, &mut buffer)?;
                let bytes = buffer.get(..have).unwrap_or_default();
                if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                    return Ok(Some((start + last as u64) / ENTRY_LEN + 1));
                }
                run.end = start;
            }
        }
        Ok(None)
    }
}
