//! Whether an index file is whole.

use super::{AT_SLOTS_USED, HEADER_LEN, IndexFile, whole};
use crate::error::Result;
use crate::num::low_u32;

impl IndexFile {
    /// The slots in stored bytes. All others are empty.
    fn stored_slots(&self) -> impl Iterator<Item = u32> {
        let slots = HEADER_LEN as u64..HEADER_LEN as u64 + 4 * u64::from(self.slots);
        let runs = self.file.data_runs(slots.clone());
        // If the disk cannot tell, the holes are read too.
        let runs = runs.unwrap_or_else(|_| whole(slots));
        runs.into_iter().flat_map(|run| {
            let slot = |at: u64| low_u32((at - HEADER_LEN as u64) / 4);
            slot(run.start)..slot(run.end + 3)
        })
    }

    /// For each entry below `count`, by number, whether a chain leads to it.
    pub fn reached(&self, count: u32) -> Result<Vec<bool>> {
        let mut reached = vec![false; count as usize];
        for slot in self.stored_slots() {
            let mut number = self.word(HEADER_LEN + 4 * slot as usize)?;
            let mut above = self.entries;
            // Entry numbers must decrease along a chain, so it ends. Entries above `count` are
            // being added.
            while number != 0 && number < above {
                let entry = self.entry(number)?;
                if entry.hash % self.slots != slot {
                    break;
                }
                if let Some(reached) = reached.get_mut(number as usize) {
                    *reached = true;
                }
                above = number;
                number = entry.previous;
            }
        }
        Ok(reached)
    }

    /// Whether all parts of the file are consistent: the header states the number of slots in use,
    /// they lead only to entries that it counts, a chain leads to each of these, and the positions
    /// of their records ascend between those in the header.
    pub fn is_whole(&self) -> Result<bool> {
        let (mut last, end) = self.positions()?;
        let (mut used, mut newest) = (0, 0);
        for slot in self.stored_slots() {
            let number = self.word(HEADER_LEN + 4 * slot as usize)?;
            used += u32::from(number != 0);
            newest = number.max(newest);
        }
        if used != self.word(AT_SLOTS_USED)? || newest >= self.count()? {
            return Ok(false);
        }
        let reached = self.reached(self.count()?)?;
        for (number, reached) in (1..).zip(reached.iter().skip(1)) {
            let position = self.entry(number)?.position;
            if !reached || !(last..=end).contains(&position) {
                return Ok(false);
            }
            last = position;
        }
        Ok(true)
    }
}
