//! Queue entries that are kept in memory because the store is read-only.

use super::{ENTRY_LEN, EntryMap, QueueEntry};
use crate::error::{Error, Result};
use crate::mapped::spill::Spill;
use crate::num::index;
use crate::region::Region;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Entries per chunk.
const CHUNK_ENTRIES: u64 = 512;

/// The entries of a queue from a number on. A gap between two of them, whose length comes from a
/// record on the disk, takes no memory: a missing chunk consists of fillers.
#[derive(Debug)]
pub struct Overlay {
    pub from: u64,
    /// By number of the chunk: a region, and the byte at which the chunk begins in it.
    chunks: BTreeMap<u64, (Arc<Region>, usize)>,
}

impl Overlay {
    pub fn new(from: u64) -> Overlay {
        let chunks = BTreeMap::new();
        Overlay { from, chunks }
    }

    /// The map that contains entry `number`, at or after the first; `None` after the last chunk.
    pub fn map_of(&self, spill: &Spill, number: u64) -> Result<Option<EntryMap>> {
        let chunk = (number - self.from) / CHUNK_ENTRIES;
        let found = match self.chunks.get(&chunk) {
            Some(found) => Some(found.clone()),
            None => match self.chunks.last_key_value() {
                Some((last, _)) if chunk < *last => Some(fillers(spill)?),
                _ => None,
            },
        };
        Ok(found.map(|found| self.map(chunk, found)))
    }

    fn map(&self, chunk: u64, (region, base): (Arc<Region>, usize)) -> EntryMap {
        let first = self.from + chunk * CHUNK_ENTRIES;
        let end = first + CHUNK_ENTRIES;
        EntryMap {
            region,
            base,
            first,
            end,
        }
    }

    /// A map into which entry `number` may be stored.
    pub fn writable_map(
        &mut self,
        directory: &Path,
        spill: &Spill,
        number: u64,
    ) -> Result<EntryMap> {
        let Some(at) = number.checked_sub(self.from) else {
            // Entries come in log order, so the overlay begins at the first wrong one. A lower
            // number after that means that the record is a stale copy.
            let reason = format!("queue offset {number} follows {} in the log", self.from);
            return Err(Error::corrupt(directory, number, reason));
        };
        let chunk = at / CHUNK_ENTRIES;
        if let Some(found) = self.chunks.get(&chunk) {
            return Ok(self.map(chunk, found.clone()));
        }
        let in_gap = self
            .chunks
            .last_key_value()
            .is_some_and(|(last, _)| chunk < *last);
        let made = match in_gap {
            true => filled(spill)?,
            false => spill.take(index(CHUNK_ENTRIES * ENTRY_LEN))?,
        };
        self.chunks.insert(chunk, made.clone());
        Ok(self.map(chunk, made))
    }

    /// Stores fillers for the numbers of a gap, after which another entry follows. Whole chunks of
    /// fillers are left out.
    pub fn fill(&mut self, directory: &Path, spill: &Spill, gap: Range<u64>) -> Result<()> {
        let mut number = gap.start;
        while number < gap.end {
            let in_chunk = number.saturating_sub(self.from) % CHUNK_ENTRIES;
            let end = number + CHUNK_ENTRIES - in_chunk;
            if in_chunk == 0 && number >= self.from && end <= gap.end {
                number = gap.end - (gap.end - self.from) % CHUNK_ENTRIES;
                continue;
            }
            let map = self.writable_map(directory, spill, number)?;
            for number in number..end.min(gap.end) {
                map.store(number, QueueEntry::FILLER)?;
            }
            number = end;
        }
        Ok(())
    }
}

/// A new chunk of fillers.
fn filled(spill: &Spill) -> Result<(Arc<Region>, usize)> {
    let (region, base) = spill.take(index(CHUNK_ENTRIES * ENTRY_LEN))?;
    let map = EntryMap {
        region: Arc::clone(&region),
        base,
        first: 0,
        end: CHUNK_ENTRIES,
    };
    (0..CHUNK_ENTRIES).try_for_each(|number| map.store(number, QueueEntry::FILLER))?;
    Ok((region, base))
}

/// The chunk of fillers that all gaps share.
fn fillers(spill: &Spill) -> Result<(Arc<Region>, usize)> {
    if let Some(shared) = &*spill.fillers.lock() {
        return Ok(shared.clone());
    }
    let made = filled(spill)?;
    Ok(spill.fillers.lock().get_or_insert(made).clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    /// A record whose queue offset is far after the last one took a gigabyte of memory.
    #[test]
    fn a_gap_takes_no_memory_whatever_its_length() {
        let (path, spill) = (Path::new("queue"), Spill::default());
        let mut overlay = Overlay::new(7);
        let entry = |position| QueueEntry {
            position,
            size: 100,
            tags_code: 5,
        };
        let store = |overlay: &mut Overlay, number, entry| {
            let map = overlay.writable_map(path, &spill, number).unwrap();
            map.store(number, entry).unwrap();
        };
        let load = |overlay: &Overlay, number| {
            let map = overlay.map_of(&spill, number).unwrap()?;
            assert!((map.first..map.end).contains(&number));
            Some(map.entry(number).unwrap())
        };
        let last = (1 << 40) + 700;
        store(&mut overlay, 7, entry(1));
        overlay.fill(path, &spill, 8..last).unwrap();
        store(&mut overlay, last, entry(2));
        assert_eq!(overlay.chunks.len(), 2);
        assert_eq!(load(&overlay, 7), Some(entry(1)));
        for number in [8, 518, 519, 520, 1 << 30, last - 200, last - 1] {
            assert_eq!(load(&overlay, number), Some(QueueEntry::FILLER), "{number}");
        }
        assert_eq!(load(&overlay, last), Some(entry(2)));
        assert_eq!(load(&overlay, last + 1000), None);

        // A record that comes later for an offset of the gap.
        store(&mut overlay, 1 << 30, entry(3));
        assert_eq!(load(&overlay, 1 << 30), Some(entry(3)));
        assert_eq!(load(&overlay, (1 << 30) + 1), Some(QueueEntry::FILLER));
        // A gap that ends with a chunk, and one within a chunk.
        for gap in [
            last + 1..7 + (1 << 41),
            7 + (1 << 41) + 3..7 + (1 << 41) + 9,
        ] {
            overlay.fill(path, &spill, gap.clone()).unwrap();
            store(&mut overlay, gap.end, entry(4));
            for number in [gap.start, gap.end - 1] {
                assert_eq!(load(&overlay, number), Some(QueueEntry::FILLER), "{number}");
            }
            assert_eq!(load(&overlay, gap.end), Some(entry(4)));
        }
        assert!(overlay.chunks.len() <= 5);
    }
}
