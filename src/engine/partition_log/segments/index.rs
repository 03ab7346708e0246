//! The sparse indexes beside a segment. An index is a hint: an entry is compared with the batch
//! that it names before it is used, and a missing or damaged index costs time, never a message.
//!
//! | file | entry |
//! |---|---|
//! | `.index` | `i32` last offset of a batch, from the base; `i32` position where it begins |
//! | `.timeindex` | `i64` largest time so far; `i32` last offset of the batch that has it |
//!
//! A broker creates an index at its full length, so the entries may be followed by zeros.

use super::names::beside;
use super::segment::Segment;
use crate::disk::{Disk, Entry, Kind, OpenFile};
use crate::error::Result;
use crate::num::{be_u32, be_u64};

/// An entry of the offset index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    pub last_offset: u64,
    pub position: u64,
}

/// An entry of the time index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    pub timestamp: i64,
    pub offset: u64,
}

/// An index file of either kind.
struct Entries<const LEN: usize> {
    file: OpenFile,
    base: u64,
    len: u64,
}

impl<const LEN: usize> Entries<LEN> {
    /// Opens the index of a segment; `None` if it is missing or not a file.
    fn open(disk: &dyn Disk, segment: &Segment, ending: &str) -> Result<Option<Self>> {
        let path = beside(&segment.path, ending);
        let is_file = |entry: &Entry| entry.kind == Kind::File && entry.len > 0;
        if !disk.stat(&path)?.as_ref().is_some_and(is_file) {
            return Ok(None);
        }
        let file = match disk.open(&path) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        let slots = file.first_len()? / LEN as u64;
        let mut entries = Entries {
            file,
            base: segment.base,
            len: slots,
        };
        entries.len = entries.first(|bytes| bytes.iter().all(|byte| *byte == 0))?;
        Ok(Some(entries))
    }

    fn read(&self, number: u64) -> Result<[u8; LEN]> {
        let mut bytes = [0; LEN];
        self.file.read_at(number * LEN as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Number of the first entry for which `is_after` holds, which must hold for all after it.
    fn first(&self, is_after: impl Fn(&[u8; LEN]) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, self.len);
        // Most indexes have no zeros at the end, and most searches are near the end.
        if let Some(last) = high.checked_sub(1)
            && !is_after(&self.read(last)?)
        {
            return Ok(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match is_after(&self.read(middle)?) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(low)
    }
}

/// The offset index of a segment.
pub struct OffsetIndex(Entries<8>);

impl OffsetIndex {
    /// Opens it; `None` if the segment has none.
    pub fn open(disk: &dyn Disk, segment: &Segment) -> Result<Option<OffsetIndex>> {
        Ok(Entries::open(disk, segment, ".index")?.map(OffsetIndex))
    }

    fn entry(base: u64, bytes: &[u8]) -> OffsetEntry {
        OffsetEntry {
            last_offset: base.saturating_add(be_u32(bytes, 0).into()),
            position: be_u32(bytes, 4).into(),
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// An entry by its number.
    pub fn get(&self, number: u64) -> Result<OffsetEntry> {
        Ok(OffsetIndex::entry(self.0.base, &self.0.read(number)?))
    }

    /// The last entry whose batch ends at or before `offset`.
    pub fn floor(&self, offset: u64) -> Result<Option<OffsetEntry>> {
        let base = self.0.base;
        let after = self
            .0
            .first(|bytes| OffsetIndex::entry(base, bytes).last_offset > offset)?;
        match after.checked_sub(1) {
            Some(number) => self.get(number).map(Some),
            None => Ok(None),
        }
    }

    /// The first entry after a position.
    pub fn after(&self, position: u64) -> Result<Option<OffsetEntry>> {
        let after = self
            .0
            .first(|bytes| u64::from(be_u32(bytes, 4)) > position)?;
        match after < self.0.len {
            true => self.get(after).map(Some),
            false => Ok(None),
        }
    }
}

/// The time index of a segment.
pub struct TimeIndex(Entries<12>);

impl TimeIndex {
    /// Opens it; `None` if the segment has none.
    pub fn open(disk: &dyn Disk, segment: &Segment) -> Result<Option<TimeIndex>> {
        Ok(Entries::open(disk, segment, ".timeindex")?.map(TimeIndex))
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// The last entry.
    pub fn last(&self) -> Result<Option<TimeEntry>> {
        match self.0.len.checked_sub(1) {
            Some(number) => self.get(number).map(Some),
            None => Ok(None),
        }
    }

    /// An entry by its number.
    pub fn get(&self, number: u64) -> Result<TimeEntry> {
        let bytes = self.0.read(number)?;
        Ok(TimeEntry {
            timestamp: be_u64(&bytes, 0).cast_signed(),
            offset: self.0.base.saturating_add(be_u32(&bytes, 8).into()),
        })
    }

    /// The last entry before a time: all batches up to its offset have earlier times.
    pub fn before(&self, time: i64) -> Result<Option<TimeEntry>> {
        let after = self
            .0
            .first(|bytes| be_u64(bytes, 0).cast_signed() >= time)?;
        match after.checked_sub(1) {
            Some(number) => self.get(number).map(Some),
            None => Ok(None),
        }
    }
}
