//! Searches of a segment for batches: by its indexes, and byte by byte where damage hides where the
//! next one begins.

use super::index::OffsetIndex;
use super::reader::{Here, Reader, Stated};
use crate::disk::Disk;
use crate::error::Result;
use crate::num::index;
use crate::record::kafka::Header;
use std::ops::Range;

/// How many entries of an index are tried near damaged bytes.
const ENTRIES_TRIED: usize = 16;
/// Bytes of the offset with which a batch begins.
const OFFSET_LEN: usize = 8;

/// Consecutive batches: each begins where the one before ends, and their offsets rise.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Where they are.
    pub bytes: Range<u64>,
    /// Their offsets.
    pub offsets: Range<u64>,
    /// Whether its first batch states only its last offset, as packed ones of the old formats do.
    is_first_unknown: bool,
}

impl Stated {
    /// Whether a run seems to lie in a message of this batch. One that starts with the offset after
    /// the batch and [leads on](Reader::leads_on) does not.
    pub(super) fn holds(&self, reader: &mut Reader, run: &Run, data_end: u64) -> Result<bool> {
        if run.bytes.end > self.end {
            return Ok(false);
        }
        let is_next =
            run.offsets.start == self.after || run.is_first_unknown && run.offsets.end > self.after;
        Ok(!(is_next && reader.leads_on(run, data_end)?))
    }
}

impl Reader {
    /// The position of a batch at or before the one that holds `offset`: from the index if its
    /// entry leads to a batch, otherwise the first.
    pub fn seek(&mut self, disk: &dyn Disk, offset: u64) -> Result<u64> {
        let Some(found) = OffsetIndex::open(disk, &self.segment)? else {
            return Ok(0);
        };
        let Some(entry) = found.floor(offset)? else {
            return Ok(0);
        };
        match self.here(entry.position)? {
            Here::Batch(header) if header.last_offset() == entry.last_offset => Ok(entry.position),
            _ => Ok(0),
        }
    }

    /// The position of a whole batch near the end of the segment: the last one that the index
    /// names, or one before it if that is damaged; otherwise the first. A walk from here finds the
    /// end.
    pub fn seek_end(&mut self, disk: &dyn Disk) -> Result<u64> {
        let Some(found) = OffsetIndex::open(disk, &self.segment)? else {
            return Ok(0);
        };
        for number in (0..found.len()).rev().take(ENTRIES_TRIED) {
            let entry = found.get(number)?;
            if let Here::Batch(header) = self.here(entry.position)?
                && header.last_offset() == entry.last_offset
                && self.is_whole(entry.position, &header)?
            {
                return Ok(entry.position);
            }
        }
        Ok(0)
    }

    /// The first whole batch after damaged bytes, of those that the index names. `left`: how many
    /// bytes may be checked for it.
    pub(super) fn after(
        &mut self,
        disk: &dyn Disk,
        damaged: u64,
        left: &mut u64,
    ) -> Result<Option<u64>> {
        let Some(found) = OffsetIndex::open(disk, &self.segment)? else {
            return Ok(None);
        };
        let mut position = damaged;
        for _ in 0..ENTRIES_TRIED {
            let Some(entry) = found.after(position)? else {
                return Ok(None);
            };
            // A damaged index is not in order.
            if entry.position <= position {
                return Ok(None);
            }
            if let Here::Batch(header) = self.here(entry.position)?
                && header.last_offset() == entry.last_offset
                && self.is_whole_within(entry.position, &header, left)?
            {
                return Ok(Some(entry.position));
            }
            position = entry.position;
        }
        Ok(None)
    }

    /// The first whole batch within `bytes` whose last offset is one of these.
    pub(super) fn within(
        &mut self,
        bytes: Range<u64>,
        offsets: Range<u64>,
        left: &mut u64,
    ) -> Result<Option<u64>> {
        let mut position = bytes.start;
        while position < bytes.end {
            if let Here::Batch(header) = self.here(position)?
                && offsets.contains(&header.last_offset())
                && position + u64::from(header.len) <= bytes.end
                && self.is_whole_within(position, &header, left)?
            {
                return Ok(Some(position));
            }
            position += self.zeros(position).max(1);
        }
        Ok(None)
    }

    /// All runs of whole batches that begin in `bytes`, with offsets of at least `next_offset`.
    /// `left`: how many bytes may be checked for them. Also returns where the search ended: before
    /// the end of `bytes` if `left` was used up.
    pub(super) fn runs(
        &mut self,
        bytes: Range<u64>,
        next_offset: u64,
        left: &mut u64,
    ) -> Result<(Vec<Run>, u64)> {
        let mut runs = Vec::new();
        let mut position = bytes.start;
        while position < bytes.end {
            if let Here::Batch(header) = self.here(position)?
                && header.last_offset() >= next_offset
            {
                if *left < self.stored(position, &header) {
                    return Ok((runs, position));
                }
                if self.is_whole_within(position, &header, left)? {
                    let run = self.run(position, header, left)?;
                    position = run.bytes.end;
                    runs.push(run);
                    continue;
                }
            }
            position += self.zeros(position).max(1);
        }
        Ok((runs, bytes.end))
    }

    /// Whether a run leads to the end of the data, or to the begin of a batch with the next offset:
    /// a crash may have cut that one short.
    fn leads_on(&mut self, run: &Run, data_end: u64) -> Result<bool> {
        // Even of the offset only a part may be there.
        let have = index(data_end.saturating_sub(run.bytes.end)).min(OFFSET_LEN);
        let next = self.bytes(run.bytes.end, have)?;
        if run.offsets.end.to_be_bytes().starts_with(&next) {
            return Ok(true);
        }
        let stated = self.stated(run.bytes.end)?;
        Ok(run.is_first_unknown && stated.is_some_and(|it| it.after > run.offsets.end))
    }

    /// The run of whole batches that begins with this one.
    fn run(&mut self, position: u64, header: Header, left: &mut u64) -> Result<Run> {
        let (mut end, mut last) = (position + u64::from(header.len), header);
        while let Here::Batch(next) = self.here(end)?
            && next.last_offset() > last.last_offset()
            && self.is_whole_within(end, &next, left)?
        {
            last = next;
            end += u64::from(next.len);
        }
        Ok(Run {
            bytes: position..end,
            offsets: header.first_offset()..last.last_offset() + 1,
            is_first_unknown: header.magic < 2 && header.first_offset() == 0,
        })
    }

    /// [`Reader::is_whole`], which takes the batch's bytes off `left`; `false` if too few are left.
    pub(super) fn is_whole_within(
        &self,
        position: u64,
        header: &Header,
        left: &mut u64,
    ) -> Result<bool> {
        match left.checked_sub(self.stored(position, header)) {
            None => Ok(false),
            Some(rest) => {
                *left = rest;
                self.is_whole(position, header)
            }
        }
    }
}
