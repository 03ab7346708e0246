//! How many slots and entries an index file has, which it does not state.

use super::{
    AT_BEGIN_POSITION, AT_COUNT, AT_SLOTS_USED, ENTRY_LEN, HEADER_LEN, IndexEntry, IndexFile,
    Reserved,
};
use crate::disk::Disk;
use crate::error::{At, Op, Result};
use crate::mapped::MappedFile;
use crate::num::{index, low_u32};
use crate::region::Region;
use std::sync::Arc;

/// Finds the numbers of slots and entries of a file, which it does not state.
///
/// If the numbers of the store give this file length, only they are tried. Otherwise the slots of
/// the store are tried first, then RocketMQ's default, then one slot per four entries. Then every
/// number of slots is tried for which the first entry lies in stored bytes. Each guess is checked
/// against the first and the last entry and the header. `None` if nothing fits: the file is
/// damaged.
pub(super) fn find(
    disk: &Arc<dyn Disk>,
    file: &Arc<MappedFile>,
    region: &Arc<Region>,
    name: u64,
    hint: (u32, u32),
) -> Result<Option<(u32, u32)>> {
    let len = file.len() - HEADER_LEN as u64;
    let with_slots = |slots: u64| -> Option<(u32, u32)> {
        let rest = len.checked_sub(4 * slots)?;
        let entries = rest / ENTRY_LEN as u64;
        (slots > 0 && entries > 1 && rest.is_multiple_of(ENTRY_LEN as u64))
            .then_some((low_u32(slots), low_u32(entries)))
    };
    let fits = |(slots, entries): (u32, u32)| {
        let (file, region) = (Arc::clone(file), Arc::clone(region));
        IndexFile {
            disk: Arc::clone(disk),
            file,
            region,
            slots,
            entries,
            name,
            opened_at: 1,
            reserved: Reserved::none(0),
        }
        .is_consistent()
    };
    let guesses = [u64::from(hint.0), 5_000_000, len / 84].into_iter();
    let len_with = |(slots, entries): (u32, u32)| 4 * u64::from(slots) + 20 * u64::from(entries);
    if len_with(hint) == len {
        return Ok(fits(hint)?.then_some(hint));
    }
    for guess in guesses.filter_map(with_slots) {
        if fits(guess)? {
            return Ok(Some(guess));
        }
    }
    // Entry 1 follows the slots, and has the first position of the header.
    let load = |at| region.words::<8>(at).at(Op::Read, file.path());
    let first = load(AT_BEGIN_POSITION)?;
    let at = |slots: u64| HEADER_LEN + 4 * index(slots) + ENTRY_LEN + 4;
    let runs = file.data_runs(at(1) as u64..file.len())?;
    let slots = runs.into_iter().flat_map(|run| {
        let slots = |byte: u64| (byte - at(0) as u64) / 4;
        slots(run.start)..slots(run.end + 3).min(len / 4)
    });
    for slots in slots {
        if load(at(slots))? == first
            && let Some(guess) = with_slots(slots)
            && fits(guess)?
        {
            return Ok(Some(guess));
        }
    }
    Ok(None)
}

impl IndexFile {
    /// Whether the header and the first and last entries agree, given this number of slots.
    fn is_consistent(&self) -> Result<bool> {
        let count = self.word(AT_COUNT)?;
        if count <= 1 {
            return Ok(true);
        }
        if count > self.entries || self.word(AT_SLOTS_USED)? > self.slots {
            return Ok(false);
        }
        let (begin, end) = self.positions()?;
        let (first, last) = (self.entry(1)?, self.entry(count - 1)?);
        // A process that dies while it puts an entry leaves one that is not counted.
        let pending = (count < self.entries).then(|| self.entry(count));
        let pending = pending.transpose()?;
        let newest = self.word(self.slot_at(last.hash))?;
        let chained = newest == count - 1
            || pending.is_some_and(|next| newest == count && next.previous == count - 1);
        let ended =
            last.position == end || pending.is_some_and(|next| next.position == end && end > 0);
        let unused = IndexEntry {
            hash: 0,
            position: 0,
            seconds: 0,
            previous: 0,
        };
        Ok(self.entry(0)? == unused
            && (first.position, first.previous) == (begin, 0)
            && chained
            && ended)
    }
}
