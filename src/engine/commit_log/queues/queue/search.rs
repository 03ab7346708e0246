//! Searches for entries by position, and for the last ones written.

use super::{ConsumeQueue, ENTRY_LEN, FILLER_SIZE, QueueEntry};
use crate::error::Result;
use crate::mapped::queue::file_name;
use crate::num::index;
use std::ops::Range;
use std::path::Path;

/// Whether an entry that was stored points to a record.
fn is_readable(entry: &QueueEntry) -> bool {
    entry.size != FILLER_SIZE && entry.position < 1 << 62
}

impl ConsumeQueue {
    /// Entry `number` if it points to a record: it is readable and not a filler.
    pub fn readable(&self, number: u64) -> Result<Option<QueueEntry>> {
        Ok(self.entry(number)?.filter(is_readable))
    }

    /// The first number of a range with such an entry, and the entry. Fillers that take no memory
    /// take no time: a gap of many of them may come from a single record.
    pub fn next_readable(&self, numbers: Range<u64>) -> Result<Option<(u64, QueueEntry)>> {
        let (mut number, size) = (numbers.start, self.store.file_entries);
        while number < numbers.end {
            let Some(map) = self.map_of(number)? else {
                // A file is missing, or the entries in memory end here.
                number = (number / size + 1) * size;
                continue;
            };
            let end = map.end.min(numbers.end);
            if !self.store.spill.is_fillers(&map.region, map.base) {
                for number in number..end {
                    let entry = map.entry(number)?;
                    if entry.size != 0 && is_readable(&entry) {
                        return Ok(Some((number, entry)));
                    }
                }
            }
            number = end;
        }
        Ok(None)
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
            match self.next_readable(middle..high)? {
                Some((probe, entry)) if entry.position < position => low = probe + 1,
                Some((probe, _)) => (found, high) = (probe, middle),
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
        let found = self.next_readable(offset.max(self.min())..self.max())?;
        Ok(found.map(|(_, entry)| entry.position))
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::QueueStore;
    use super::*;
    use crate::disk::RealDisk;
    use crate::options::DelayLevels;
    use crate::region::Access;
    use std::sync::Arc;

    #[test]
    fn searches_pass_over_fillers_in_files_and_in_memory() {
        const NUMBERS: [u64; 6] = [3, 4, 70, 700, 701, 2_000];
        for access in [Access::Read, Access::ReadWrite] {
            let folder = tempfile::tempdir().unwrap();
            let store = Arc::new(QueueStore {
                disk: Arc::new(RealDisk),
                directory: folder.path().to_owned(),
                file_entries: 64,
                delays: DelayLevels::default(),
                access,
                spill: Default::default(),
                mapped: Default::default(),
            });
            let queue = ConsumeQueue::absent(&store, "t", 0);
            for number in NUMBERS {
                let entry = QueueEntry {
                    position: 1_000 * number,
                    size: 100,
                    tags_code: 0,
                };
                queue.put(number, entry).unwrap();
            }
            let first = |is_it: &dyn Fn(u64) -> bool| NUMBERS.into_iter().find(|it| is_it(*it));
            for from in 0..=queue.max() {
                let found = queue.next_readable(from..queue.max()).unwrap();
                let number = found.map(|(number, _)| number);
                assert_eq!(number, first(&|it| it >= from), "{access:?}: {from}");
                for position in [1_000 * from, 1_000 * from + 1] {
                    let expected = first(&|it| 1_000 * it >= position);
                    let found = queue.first_from(position).unwrap();
                    assert_eq!(found, expected.unwrap_or(queue.max()), "{position}");
                }
            }
        }
    }
}
