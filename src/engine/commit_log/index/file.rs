//! One file of the key index: hash chains from a key to the positions of its records.
//!
//! A file is a header, slots and entries, all big-endian:
//!
//! ```text
//! at                width  field
//! 0                 i64    store time of the first entry (ms)
//! 8                 i64    store time of the last entry
//! 16                i64    position of the first entry's record
//! 24                i64    position of the last entry's record
//! 32                i32    slots in use
//! 36                i32    number of the next entry; entry 0 is never used
//! 40                i32[]  slots: number of the newest entry of the chain, 0 if none
//! 40+4s             20[]   entries: i32 hash, i64 position, i32 seconds since the header's first
//!                          time, i32 number of the entry before it in the chain
//! ```
//!
//! Different keys may share a hash, so callers compare the keys themselves.

mod check;
mod geometry;

use crate::disk::Disk;
use crate::error::{At, Error, Op, Result};
use crate::mapped::{Extent, MappedFile};
use crate::num::index;
use crate::record::rocketmq::layout::{be_u32, be_u64};
use crate::region::{Access, Region};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the header.
pub const HEADER_LEN: usize = 40;
/// Bytes of an entry.
pub const ENTRY_LEN: usize = 20;
const AT_BEGIN_TIME: usize = 0;
const AT_END_TIME: usize = 8;
const AT_BEGIN_POSITION: usize = 16;
const AT_END_POSITION: usize = 24;
const AT_SLOTS_USED: usize = 32;
const AT_COUNT: usize = 36;
/// Disk blocks of entries are reserved in steps of this many bytes.
const RESERVE_STEP: u64 = 4 << 20;
/// Disk blocks of slots are reserved in pieces of this many bytes, each before its first slot is
/// used. All slots of a file take 20 MB, and a store with few keys needs few of them.
const SLOT_STEP: u64 = 64 << 10;

/// One index file.
#[derive(Debug)]
pub struct IndexFile {
    disk: Arc<dyn Disk>,
    file: Arc<MappedFile>,
    region: Arc<Region>,
    slots: u32,
    entries: u32,
    /// Its name as a number. Later files have higher numbers.
    pub name: u64,
    /// Number of the next entry when the file was opened.
    pub opened_at: u32,
    reserved: Reserved,
}

/// Which parts of a file are known to have disk blocks.
#[derive(Debug)]
struct Reserved {
    /// One bit per piece of [`SLOT_STEP`] bytes.
    slots: Box<[AtomicU64]>,
    /// Entries before this byte of the file.
    entries: AtomicU64,
}

impl Reserved {
    /// Nothing is reserved except the header.
    fn none(slots: u32) -> Reserved {
        let pieces = slots_end(slots).div_ceil(SLOT_STEP);
        Reserved {
            slots: (0..pieces.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            entries: AtomicU64::new(0),
        }
    }

    /// The word and the bit of a piece.
    #[inline]
    fn piece(&self, number: u64) -> Option<(&AtomicU64, u64)> {
        Some((self.slots.get(index(number / 64))?, 1 << (number % 64)))
    }
}

/// Byte after the slots.
fn slots_end(slots: u32) -> u64 {
    HEADER_LEN as u64 + 4 * u64::from(slots)
}

/// One entry as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Hash of `topic#key`.
    pub hash: u32,
    /// Position of the record.
    pub position: u64,
    /// Seconds since the header's first time.
    pub seconds: i32,
    /// Number of the previous entry in its chain.
    pub previous: u32,
}

impl IndexFile {
    /// Opens a file of `len` bytes; `None` if it cannot be an index file. `hint`: the expected
    /// numbers of slots and entries.
    ///
    /// Entries that the header counts must lie in stored bytes, not in a hole. So visiting all of
    /// them takes time in proportion to the disk space of the file, whatever the header says.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        (name, len): (u64, u64),
        hint: (u32, u32),
        access: Access,
    ) -> Result<Option<IndexFile>> {
        if len < (HEADER_LEN + 4 + 2 * ENTRY_LEN) as u64 || len > 1 << 32 {
            return Ok(None);
        }
        let file = MappedFile::open(disk, path.clone(), 0, len, access, Extent::Part(0));
        let region = file.region()?;
        let file = Arc::new(file);
        let Some(geometry) = geometry::find(disk, &file, &region, name, hint)? else {
            return Ok(None);
        };
        let mut found = IndexFile::new(disk, (file, region), geometry, name);
        found.opened_at = found.count()?;
        let counted = found.entry_at(1) as u64..found.entry_at(found.opened_at) as u64;
        if found.file.data_runs(counted.clone())? != whole(counted) {
            return Ok(None);
        }
        if access == Access::ReadWrite {
            // In a store made by another system, used parts of the file may lack disk blocks.
            found.reserve(0..HEADER_LEN as u64)?;
            let used = (found.entry_at(found.count()?) + ENTRY_LEN) as u64;
            // If the disk is full, blocks for the entries in use are enough to open the file.
            let reserved = found.reserve_entries(used + RESERVE_STEP);
            reserved.or_else(|_| found.reserve_entries(used))?;
        }
        Ok(Some(found))
    }

    /// Creates an empty file. `last`: time and position of the last entry in the previous file.
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        name: u64,
        (slots, entries): (u32, u32),
        last: Option<(i64, u64)>,
    ) -> Result<IndexFile> {
        let slots_end = slots_end(slots);
        let len = slots_end + ENTRY_LEN as u64 * u64::from(entries);
        let file = MappedFile::create(disk, path, 0, len, HEADER_LEN as u64)?;
        let file = Arc::new(file);
        let region = file.region()?;
        let io = |error| Error::io(Op::Store, file.path(), error);
        if let Some((time, position)) = last {
            for at in [AT_BEGIN_TIME, AT_END_TIME] {
                region.set_words(at, &time.to_be_bytes()).map_err(io)?;
            }
            for at in [AT_BEGIN_POSITION, AT_END_POSITION] {
                region.set_words(at, &position.to_be_bytes()).map_err(io)?;
            }
        }
        region
            .set_words(AT_COUNT, &1u32.to_be_bytes())
            .map_err(io)?;
        Ok(IndexFile::new(disk, (file, region), (slots, entries), name))
    }

    fn new(
        disk: &Arc<dyn Disk>,
        (file, region): (Arc<MappedFile>, Arc<Region>),
        (slots, entries): (u32, u32),
        name: u64,
    ) -> IndexFile {
        IndexFile {
            disk: Arc::clone(disk),
            file,
            region,
            slots,
            entries,
            name,
            opened_at: 1,
            reserved: Reserved::none(slots),
        }
    }

    fn reserve(&self, range: Range<u64>) -> Result<()> {
        let path = self.file.path();
        self.disk
            .reserve(path, range.start, range.end - range.start)
    }

    /// Reserves disk blocks for the entries before byte `end` of the file.
    #[cold]
    fn reserve_entries(&self, end: u64) -> Result<()> {
        let end = end.min(self.file.len());
        let known = self.reserved.entries.load(Ordering::Relaxed);
        let from = known.max(slots_end(self.slots));
        if from < end {
            self.reserve(from..end)?;
            self.reserved.entries.store(end, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reserves disk blocks for the piece in which a slot lies.
    #[inline]
    fn reserve_slot(&self, slot_at: usize) -> Result<()> {
        let number = slot_at as u64 / SLOT_STEP;
        let Some((word, bit)) = self.reserved.piece(number) else {
            unreachable!("a slot lies before the end of the slots")
        };
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        let start = number * SLOT_STEP;
        self.reserve(start..(start + SLOT_STEP).min(self.file.len()))?;
        word.fetch_or(bit, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn load<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        self.region.words(at).at(Op::Read, self.file.path())
    }

    #[inline]
    fn store(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let stored = self.region.set_words(at, bytes);
        stored.at(Op::Store, self.file.path())
    }

    #[inline]
    fn long(&self, at: usize) -> Result<i64> {
        self.load(at).map(i64::from_be_bytes)
    }

    #[inline]
    fn word(&self, at: usize) -> Result<u32> {
        self.load(at).map(u32::from_be_bytes)
    }

    #[inline]
    fn set_word(&self, at: usize, value: u32) -> Result<()> {
        self.store(at, &value.to_be_bytes())
    }

    /// Number of the next entry, at least 1.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be read, here and in the methods below.
    #[inline]
    pub fn count(&self) -> Result<u32> {
        Ok(self.word(AT_COUNT)?.max(1))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// First and last store time.
    pub fn times(&self) -> Result<(i64, i64)> {
        Ok((self.long(AT_BEGIN_TIME)?, self.long(AT_END_TIME)?))
    }

    /// Positions of the first and the last record.
    pub fn positions(&self) -> Result<(u64, u64)> {
        Ok((
            self.long(AT_BEGIN_POSITION)? as u64,
            self.long(AT_END_POSITION)? as u64,
        ))
    }

    /// Whether the file has no room for another entry.
    pub fn is_full(&self) -> Result<bool> {
        Ok(self.count()? >= self.entries)
    }

    #[inline]
    fn entry_at(&self, number: u32) -> usize {
        HEADER_LEN + 4 * self.slots as usize + ENTRY_LEN * number as usize
    }

    /// Entry `number`.
    #[inline]
    pub fn entry(&self, number: u32) -> Result<IndexEntry> {
        let bytes: [u8; ENTRY_LEN] = self.load(self.entry_at(number))?;
        Ok(IndexEntry {
            hash: be_u32(&bytes, 0),
            position: be_u64(&bytes, 4),
            seconds: be_u32(&bytes, 12).cast_signed(),
            previous: be_u32(&bytes, 16),
        })
    }

    #[inline]
    fn slot_at(&self, hash: u32) -> usize {
        HEADER_LEN + 4 * (hash % self.slots) as usize
    }

    /// Loads the slot of a hash, so that it is in the processor's cache when the entry is put.
    #[inline]
    pub fn touch(&self, hash: u32) -> Result<u32> {
        self.word(self.slot_at(hash))
    }

    /// Adds an entry. The file must not be full, and only one thread may put.
    ///
    /// The stores are ordered (entry, slot, header), so that every complete entry is reachable if
    /// the process dies between two of them.
    pub fn put(&self, hash: u32, position: u64, time: i64) -> Result<()> {
        let count = self.count()?;
        let end = (self.entry_at(count) + ENTRY_LEN) as u64;
        if end > self.reserved.entries.load(Ordering::Relaxed) {
            self.reserve_entries(end + RESERVE_STEP)?;
        }
        let slot_at = self.slot_at(hash);
        self.reserve_slot(slot_at)?;
        let slot = self.word(slot_at)?;
        let previous = if slot as i32 <= 0 || slot > count {
            0
        } else {
            slot
        };
        let begin = self.long(AT_BEGIN_TIME)?;
        let seconds = if begin <= 0 {
            0
        } else {
            i32::try_from(((time - begin) / 1000).max(0)).unwrap_or(i32::MAX)
        };
        let mut bytes = [0; ENTRY_LEN];
        bytes[..4].copy_from_slice(&hash.to_be_bytes());
        bytes[4..12].copy_from_slice(&position.to_be_bytes());
        bytes[12..16].copy_from_slice(&seconds.to_be_bytes());
        bytes[16..].copy_from_slice(&previous.to_be_bytes());
        self.store(self.entry_at(count), &bytes)?;
        self.set_word(slot_at, count)?;
        if count <= 1 {
            self.store(AT_BEGIN_POSITION, &position.to_be_bytes())?;
            self.store(AT_BEGIN_TIME, &time.to_be_bytes())?;
        }
        if previous == 0 {
            self.set_word(AT_SLOTS_USED, self.word(AT_SLOTS_USED)?.wrapping_add(1))?;
        }
        self.store(AT_END_POSITION, &position.to_be_bytes())?;
        self.store(AT_END_TIME, &time.to_be_bytes())?;
        self.set_word(AT_COUNT, count + 1)
    }

    /// Undoes an entry that a dying process began but did not count. Returns whether there was one.
    pub fn drop_uncounted(&self) -> Result<bool> {
        let count = self.count()?;
        if count >= self.entries {
            return Ok(false);
        }
        let begun: [u8; ENTRY_LEN] = self.load(self.entry_at(count))?;
        let entry = self.entry(count)?;
        let slot_at = self.slot_at(entry.hash);
        let is_chained = self.word(slot_at)? == count;
        let last = self.entry(count - 1)?.position;
        if begun == [0; ENTRY_LEN] && !is_chained && self.positions()?.1 == last {
            return Ok(false);
        }
        if is_chained {
            self.reserve_slot(slot_at)?;
            self.set_word(slot_at, entry.previous)?;
        }
        self.store(AT_END_POSITION, &last.to_be_bytes())?;
        self.store(self.entry_at(count), &[0; ENTRY_LEN])?;
        Ok(true)
    }

    /// Follows the chain of a hash, newest entry first, until `visit` returns false. Returns
    /// `false` if the chain is damaged: it leads to a later entry, out of the file, or to an entry
    /// of another slot.
    pub fn chain(&self, hash: u32, mut visit: impl FnMut(IndexEntry) -> bool) -> Result<bool> {
        let count = self.count()?;
        let mut number = self.word(self.slot_at(hash))?;
        // Entry numbers must decrease along a chain, so it ends.
        let mut above = count;
        while number != 0 {
            if number >= above {
                return Ok(false);
            }
            let entry = self.entry(number)?;
            if entry.hash % self.slots != hash % self.slots {
                return Ok(false);
            }
            if entry.hash == hash && !visit(entry) {
                return Ok(true);
            }
            above = number;
            number = entry.previous;
        }
        Ok(true)
    }

    /// First byte of an entry in the file.
    pub fn byte_of(&self, number: u32) -> u64 {
        self.entry_at(number) as u64
    }

    /// Whether the record at `position` is in the chain of a hash.
    pub fn contains(&self, hash: u32, position: u64) -> Result<bool> {
        let mut found = false;
        self.chain(hash, |entry| {
            found = entry.position == position;
            !found && entry.position > position
        })?;
        Ok(found)
    }

    /// Marks the pages of entries at or after `position`, and of their slots, dirty.
    pub fn dirty_from(&self, disk: &dyn Disk, position: u64) -> Result<()> {
        let dirty = |at, len| disk.dirty_range(&self.region, at, len);
        for number in (1..self.count()?).rev() {
            let entry = self.entry(number)?;
            if entry.position < position {
                break;
            }
            dirty(self.entry_at(number), ENTRY_LEN)?;
            dirty(self.slot_at(entry.hash), 4)?;
        }
        dirty(0, HEADER_LEN)
    }

    /// Makes the file durable.
    #[cfg_attr(test, track_caller)]
    pub fn flush(&self) -> Result<()> {
        let end = self.entry_at(self.count()?) + ENTRY_LEN;
        self.file.flush(0, end as u64)
    }
}

/// The range as a list of one run; no runs if it is empty.
fn whole(range: Range<u64>) -> Vec<Range<u64>> {
    match range.is_empty() {
        true => Vec::new(),
        false => Vec::from([range]),
    }
}
