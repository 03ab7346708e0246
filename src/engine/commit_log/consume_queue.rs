//! A consume queue: for each message of one queue of a topic, where its record lies in the log.
//!
//! Entry `k` is at byte `20 k` of a row of files, see [`QueueEntry`]. Entries are read and written
//! as words, because a rebuild corrects them in place.

pub use super::queue_entry::{ENTRY_LEN, EntryMap, FILLER_SIZE, QueueEntry};
use crate::disk::{Disk, Kind};
use crate::error::{Error, Result};
use crate::mapped::queue::{file_name, list_files};
use crate::mapped::{Access, Region};
use crate::num::index;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks are reserved in steps of this many bytes.
const RESERVE_STEP: u64 = 64 << 10;
/// The largest gap of offsets that is bridged by fillers; a larger one is damage of the record.
const GAP_MAX: u64 = 1 << 26;

/// Most files that may be missing between two of a queue.
const FILE_GAP_MAX: u64 = 64;

/// What all queues of a store share.
#[derive(Debug)]
pub struct QueueStore {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory `consumequeue`.
    pub directory: PathBuf,
    /// Entries of a file.
    pub file_entries: u64,
    /// Whether files are written, or all that is missing is kept in memory.
    pub access: Access,
    /// Memory for what is missing on disk.
    pub spill: super::spill::Spill,
    /// Files that are mapped, of all queues.
    pub mapped: AtomicU64,
}

/// One queue.
#[derive(Debug)]
pub struct ConsumeQueue {
    store: Arc<QueueStore>,
    directory: PathBuf,
    /// Number of the queue in its topic.
    pub id: u32,
    min: AtomicU64,
    max: AtomicU64,
    /// Number behind the last entry that is durable, as far as entries were added behind the
    /// others.
    flushed: AtomicU64,
    /// First entry that was corrected in place since the last flush; `u64::MAX` without one.
    dirty: AtomicU64,
    /// Whether a file was made since the last flush, whose name is not durable yet.
    made: AtomicBool,
    touched: AtomicBool,
    files: Mutex<Files>,
}

/// Entries of a queue that are not durable yet.
#[derive(Clone, Copy, Debug)]
pub struct Unflushed {
    from: u64,
    /// Number behind the last of them.
    pub max: u64,
    /// Whether the name of a file is not durable yet.
    made: bool,
}

#[derive(Debug, Default)]
struct Files {
    /// By number of the first entry: whether the file is there, and its map.
    on_disk: BTreeMap<u64, QueueFile>,
    /// Entries from here on are in memory, for a store that may not be written.
    overlay: Option<Overlay>,
}

#[derive(Debug, Default)]
struct QueueFile {
    region: Option<Arc<Region>>,
    reserved: u64,
}

#[derive(Debug)]
struct Overlay {
    from: u64,
    /// Each with room for [`OVERLAY_ENTRIES`] from a byte of the region on.
    chunks: Vec<(Arc<Region>, usize)>,
}

/// Entries of a chunk of an overlay.
const OVERLAY_ENTRIES: u64 = 512;

impl Overlay {
    fn map_of(&self, number: u64) -> Option<EntryMap> {
        let chunk = (number - self.from) / OVERLAY_ENTRIES;
        let (region, base) = self.chunks.get(chunk as usize)?;
        let first = self.from + chunk * OVERLAY_ENTRIES;
        let region = Arc::clone(region);
        Some(EntryMap {
            region,
            base: *base,
            first,
            end: first + OVERLAY_ENTRIES,
        })
    }
}

impl ConsumeQueue {
    /// A queue whose files, if any, are listed but not yet looked into.
    pub fn open(store: &Arc<QueueStore>, topic: &str, id: u32) -> Result<ConsumeQueue> {
        let directory = store.directory.join(topic).join(id.to_string());
        let queue = ConsumeQueue::absent(store, topic, id);
        let file_len = store.file_entries * ENTRY_LEN;
        let mut files = queue.files.lock();
        let mut end = None;
        for file in list_files(&*store.disk, &directory)? {
            // A file of another length, or one that does not begin where one can, holds nothing
            // that the log would not give back; nor does one that lies far behind all others.
            let gap = end.map_or(0, |end| file.start.saturating_sub(end));
            let near = gap <= FILE_GAP_MAX * file_len;
            if file.len == file_len && file.start % file_len == 0 && near {
                end = Some(file.start + file_len);
                files
                    .on_disk
                    .insert(file.start / ENTRY_LEN, QueueFile::default());
            } else if store.access == Access::ReadWrite {
                let path = directory.join(file_name(file.start));
                store
                    .disk
                    .unlink(&path)
                    .map_err(|e| Error::io("unlink", &path, e))?;
            }
        }
        drop(files);
        Ok(queue)
    }

    /// A queue of which nothing is on disk.
    pub fn absent(store: &Arc<QueueStore>, topic: &str, id: u32) -> ConsumeQueue {
        ConsumeQueue {
            store: Arc::clone(store),
            directory: store.directory.join(topic).join(id.to_string()),
            id,
            min: AtomicU64::new(0),
            max: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            dirty: AtomicU64::new(u64::MAX),
            made: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            files: Mutex::new(Files::default()),
        }
    }

    /// First offset that has a message.
    #[inline]
    pub fn min(&self) -> u64 {
        self.min.load(Ordering::Acquire)
    }

    /// Next offset to be written.
    #[inline]
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Acquire)
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sets the bounds, as found by a look at the files.
    pub fn set_bounds(&self, min: u64, max: u64) {
        self.max.store(max, Ordering::Release);
        self.min.store(min.min(max), Ordering::Release);
    }

    /// First number that the files could hold.
    pub fn first_on_disk(&self) -> Option<u64> {
        self.files.lock().on_disk.keys().next().copied()
    }

    /// The map that holds entry `number`; `None` where no file does.
    pub fn map_of(&self, number: u64) -> Result<Option<EntryMap>> {
        let mut files = self.files.lock();
        if let Some(overlay) = files
            .overlay
            .as_ref()
            .filter(|overlay| number >= overlay.from)
        {
            return Ok(overlay.map_of(number));
        }
        let limit = files
            .overlay
            .as_ref()
            .map_or(u64::MAX, |overlay| overlay.from);
        let first = number - number % self.store.file_entries;
        let Some(file) = files.on_disk.get_mut(&first) else {
            return Ok(None);
        };
        let region = self.map(first, file)?;
        let end = limit.min(first + self.store.file_entries);
        Ok(Some(EntryMap {
            region,
            base: 0,
            first,
            end,
        }))
    }

    fn map(&self, start: u64, file: &mut QueueFile) -> Result<Arc<Region>> {
        self.touched.store(true, Ordering::Relaxed);
        if let Some(region) = &file.region {
            return Ok(Arc::clone(region));
        }
        let path = self.directory.join(file_name(start * ENTRY_LEN));
        let len = index(self.store.file_entries * ENTRY_LEN);
        let mapped = self.store.disk.map(&path, len, self.store.access);
        let region = Arc::new(mapped.map_err(|e| Error::io("map", &path, e))?);
        self.store.mapped.fetch_add(1, Ordering::Relaxed);
        file.region = Some(Arc::clone(&region));
        Ok(region)
    }

    /// Lets go of the maps if the queue was not used since the last call.
    pub fn unmap_idle(&self) {
        if !self.touched.swap(false, Ordering::Relaxed) {
            self.unmap();
        }
    }

    /// Lets go of the maps. They stay good for those who hold them.
    pub fn unmap(&self) {
        for file in self.files.lock().on_disk.values_mut() {
            if file.region.take().is_some() {
                self.store.mapped.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Entry `number`, from disk or memory; `None` where no file holds it or it was never written.
    pub fn entry(&self, number: u64) -> Result<Option<QueueEntry>> {
        let Some(map) = self.map_of(number)? else {
            return Ok(None);
        };
        Ok(Some(map.entry(number)).filter(|entry| entry.size != 0))
    }

    /// Puts entry `number`: behind the last one, behind a gap that fillers bridge, or in place of a
    /// wrong one. Returns whether something was stored.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Corrupt`] where the number is so far off that the record that
    /// asks for it is not to be believed.
    pub fn put(&self, number: u64, entry: QueueEntry) -> Result<bool> {
        let max = self.max();
        if number == max {
            self.store_entry(number, entry)?;
            self.max.store(number + 1, Ordering::Release);
            return Ok(true);
        }
        if number < max {
            if self.entry(number)? == Some(entry) {
                return Ok(false);
            }
            self.store_entry(number, entry)?;
            self.dirty.fetch_min(number, Ordering::AcqRel);
            self.min.fetch_min(number, Ordering::AcqRel);
            return Ok(true);
        }
        if self.is_untouched()? {
            // The first message that is there: those before it were retired with their queue.
            self.dirty.store(0, Ordering::Release);
            let start = number - number % self.store.file_entries;
            for filler in start..number {
                self.store_entry(filler, QueueEntry::FILLER)?;
            }
            self.min.store(number, Ordering::Release);
        } else if number - max > GAP_MAX {
            let reason = format!("queue offset {number} behind {max}");
            return Err(Error::corrupt(&self.directory, entry.position, reason));
        } else {
            for filler in max..number {
                self.store_entry(filler, QueueEntry::FILLER)?;
            }
        }
        self.store_entry(number, entry)?;
        self.max.store(number + 1, Ordering::Release);
        Ok(true)
    }

    /// [`ConsumeQueue::put`] by the one that dispatches, which keeps the map of the next entries at
    /// hand.
    #[inline]
    pub fn put_with(
        &self,
        number: u64,
        entry: QueueEntry,
        map: &mut Option<EntryMap>,
    ) -> Result<bool> {
        if let Some(map) = map
            && number == self.max.load(Ordering::Relaxed)
            && number >= map.first
            && number < map.end
        {
            map.region.set_words(map.byte_of(number), &entry.to_bytes());
            self.touched.store(true, Ordering::Relaxed);
            self.max.store(number + 1, Ordering::Release);
            return Ok(true);
        }
        let stored = self.put(number, entry)?;
        *map = match self.store.access {
            Access::ReadWrite => Some(self.writable_map(number)?),
            Access::Read => None,
        };
        Ok(stored)
    }

    #[inline]
    fn store_entry(&self, number: u64, entry: QueueEntry) -> Result<()> {
        let map = self.writable_map(number)?;
        map.region.set_words(map.byte_of(number), &entry.to_bytes());
        Ok(())
    }

    /// The map that entry `number` may be stored to; it ends where the blocks do.
    fn writable_map(&self, number: u64) -> Result<EntryMap> {
        let mut files = self.files.lock();
        if self.store.access == Access::Read {
            let overlay = files.overlay.get_or_insert_with(|| Overlay {
                from: number,
                chunks: Vec::new(),
            });
            return self.overlay_map(overlay, number);
        }
        let start = number - number % self.store.file_entries;
        let file = match files.on_disk.entry(start) {
            std::collections::btree_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                self.create_file(start)?;
                vacant.insert(QueueFile::default())
            }
        };
        let end = (number + 1 - start) * ENTRY_LEN;
        if end > file.reserved {
            let path = self.directory.join(file_name(start * ENTRY_LEN));
            let file_len = self.store.file_entries * ENTRY_LEN;
            let until = end.next_multiple_of(RESERVE_STEP).min(file_len);
            let reserved = self
                .store
                .disk
                .reserve(&path, file.reserved, until - file.reserved);
            reserved.map_err(|e| Error::io("reserve", &path, e))?;
            file.reserved = until;
        }
        let end = start + file.reserved / ENTRY_LEN;
        let region = self.map(start, file)?;
        // A store into a page that is not there yet would make the kernel read ahead around it: 128
        // KiB of zeros for each of many queues, where one page is wanted.
        region.advise_random();
        Ok(EntryMap {
            region,
            base: 0,
            first: start,
            end,
        })
    }

    fn overlay_map(&self, overlay: &mut Overlay, number: u64) -> Result<EntryMap> {
        let Some(at) = number.checked_sub(overlay.from) else {
            // Entries come in the order of the log, so the overlay begins at the first wrong one;
            // an earlier one still says that the record is a stale copy.
            let reason = format!("queue offset {number} comes after {}", overlay.from);
            return Err(Error::corrupt(&self.directory, number, reason));
        };
        let chunk = (at / OVERLAY_ENTRIES) as usize;
        while overlay.chunks.len() <= chunk {
            let len = index(OVERLAY_ENTRIES * ENTRY_LEN);
            overlay.chunks.push(self.store.spill.take(len)?);
        }
        let Some(map) = overlay.map_of(number) else {
            unreachable!("the chunk was just added")
        };
        Ok(map)
    }

    fn create_file(&self, start: u64) -> Result<()> {
        let disk = &self.store.disk;
        let made = disk.create_directory(&self.directory);
        made.map_err(|e| Error::io("create", &self.directory, e))?;
        let path = self.directory.join(file_name(start * ENTRY_LEN));
        let created = disk.create(&path, self.store.file_entries * ENTRY_LEN);
        created.map_err(|e| Error::io("create", &path, e))?;
        self.made.store(true, Ordering::Release);
        Ok(())
    }

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

    /// Number behind the last entry on disk that is not all zeros, whatever it says.
    pub fn last_on_disk(&self) -> Result<u64> {
        let starts: Vec<u64> = self.files.lock().on_disk.keys().rev().copied().collect();
        for start in starts {
            let path = self.directory.join(file_name(start * ENTRY_LEN));
            if let Some(entries) = self.written_entries(&path)? {
                return Ok(start + entries);
            }
        }
        Ok(self.first_on_disk().unwrap_or(0))
    }

    /// Entries of a file up to the last that is not zero; `None` where all are. Reads backwards, so
    /// a page of zeros in the middle hides nothing.
    fn written_entries(&self, path: &Path) -> Result<Option<u64>> {
        const CHUNK: u64 = 20 * 1024;
        let disk = &self.store.disk;
        let io = |error| Error::io("read", path, error);
        let file_len = self.store.file_entries * ENTRY_LEN;
        let mut chunks = Vec::new();
        let mut at = 0;
        while let Some(data) = disk
            .next_data(path, at)
            .map_err(io)?
            .filter(|at| *at < file_len)
        {
            let chunk = data - data % CHUNK;
            chunks.push(chunk);
            at = chunk + CHUNK;
        }
        let mut buffer = vec![0; index(CHUNK)];
        for chunk in chunks.into_iter().rev() {
            let have = disk.read_at(path, chunk, &mut buffer).map_err(io)?;
            let bytes = buffer.get(..have).unwrap_or_default();
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                return Ok(Some((chunk + last as u64) / ENTRY_LEN + 1));
            }
        }
        Ok(None)
    }

    /// Makes what was stored durable; returns whether there was something.
    pub fn flush(&self) -> Result<bool> {
        let Some(Unflushed { from, max, made }) = self.take_unflushed() else {
            return Ok(false);
        };
        let mut number = from;
        while number < max {
            let Some(map) = self.map_of(number)? else {
                number = number - number % self.store.file_entries + self.store.file_entries;
                continue;
            };
            let end = max.min(map.end);
            let (from, len) = (map.byte_of(number), index((end - number) * ENTRY_LEN));
            let synced = self.store.disk.sync_range(&map.region, from, len);
            synced.map_err(|e| Error::io("sync", map.region.path(), e))?;
            number = end;
        }
        if made {
            let parts = self.directory.ancestors().take(3);
            for directory in parts {
                let synced = self.store.disk.sync_directory(directory);
                synced.map_err(|e| Error::io("sync", directory, e))?;
            }
        }
        self.set_flushed(max);
        Ok(true)
    }

    /// What was stored since the last flush, for the caller to make durable; then
    /// [`ConsumeQueue::set_flushed`] with its end.
    pub fn take_unflushed(&self) -> Option<Unflushed> {
        if self.store.access == Access::Read {
            return None;
        }
        let made = self.made.swap(false, Ordering::AcqRel);
        let corrected = self.dirty.swap(u64::MAX, Ordering::AcqRel);
        let max = self.max();
        let from = self.flushed.load(Ordering::Acquire).min(corrected);
        let from = from.max(self.first_on_disk().unwrap_or(0));
        (from < max).then_some(Unflushed { from, max, made })
    }

    /// Says that the entries below `max` are durable.
    pub fn set_flushed(&self, max: u64) {
        self.flushed.store(max, Ordering::Release);
    }

    /// Whether something was added since the last flush.
    pub fn is_behind(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.max()
            || self.dirty.load(Ordering::Acquire) != u64::MAX
    }

    /// Entry `number` if it leads to a record: no filler, and not unreadable.
    fn readable(&self, number: u64) -> Result<Option<QueueEntry>> {
        let entry = self.entry(number)?;
        Ok(entry.filter(|entry| entry.size != FILLER_SIZE && entry.position < 1 << 62))
    }

    /// First number whose entry leads to `position` or behind it; the end where none does.
    ///
    /// Positions grow with the offset. Fillers and unreadable entries say nothing about either side
    /// and are looked over.
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

    /// Position behind the last record that an entry leads to below `position`; `None` where no
    /// entry does.
    pub fn last_end_below(&self, position: u64) -> Result<Option<u64>> {
        for number in (self.min()..self.first_from(position)?).rev() {
            if let Some(entry) = self.readable(number)? {
                return Ok(Some(entry.end()));
            }
        }
        Ok(None)
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

    /// Whether nothing was ever found of the queue: no entry, no file.
    pub fn is_untouched(&self) -> Result<bool> {
        Ok(self.max() == self.min() && self.entry(self.max())?.is_none())
    }

    /// Numbers of the first and the last entry of each file, within the bounds: a look at these
    /// finds most of what can go wrong with a file as a whole.
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

    /// Whether files hold every entry from `min` to the end.
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

    /// Numbers of the entries that lead into a stretch of the log.
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

    /// Puts fillers up to `next`, so that no offset below it is given again. A gap that is too
    /// large to be believed stays.
    pub fn bridge_to(&self, next: u64) -> Result<()> {
        let max = self.max();
        if self.is_untouched()? {
            self.set_bounds(next.max(max), next.max(max));
            return Ok(());
        }
        if next > max && next - max <= GAP_MAX {
            for filler in max..next {
                self.store_entry(filler, QueueEntry::FILLER)?;
            }
            self.max.store(next, Ordering::Release);
        }
        Ok(())
    }

    /// Lets go of the entries in memory; whether there were any. The bounds have to be found again.
    pub fn forget_overlay(&self) -> bool {
        self.files.lock().overlay.take().is_some()
    }

    /// Takes what is there for durable, as a clean close left it.
    pub fn trust_durable(&self) {
        self.flushed.store(self.max(), Ordering::Release);
    }

    /// Looks for files that another process has added.
    pub fn refresh_files(&self) -> Result<()> {
        let file_len = self.store.file_entries * ENTRY_LEN;
        let found = list_files(&*self.store.disk, &self.directory)?;
        let mut files = self.files.lock();
        for file in found {
            if file.len == file_len && file.start % file_len == 0 {
                files.on_disk.entry(file.start / ENTRY_LEN).or_default();
            }
        }
        Ok(())
    }
}

/// Numbers of queues are below this; a table by number stays small.
pub const QUEUES_MAX: u32 = 1 << 20;

/// Topics that have a directory in `directory`, which may not be there.
///
/// # Errors
///
/// [`Error::Unsupported`] where such a name is no directory: a link would lead out of the store.
pub fn list_topics(disk: &dyn Disk, directory: &Path) -> Result<Vec<String>> {
    let io = |error| Error::io("list", directory, error);
    if disk.look(directory).map_err(io)?.is_none() {
        return Ok(Vec::new());
    }
    let is_topic = |name: &str| super::dispatch::is_directory_name(name);
    let mut topics = names(disk, directory, is_topic)?;
    topics.sort_unstable();
    Ok(topics)
}

/// Queues of a topic that have a directory: names that are numbers. Errors as [`list_topics`].
pub fn list_queues(disk: &dyn Disk, directory: &Path) -> Result<Vec<u32>> {
    let number = |name: &str| -> Option<u32> {
        let number = name
            .parse::<u32>()
            .ok()
            .filter(|number| *number < QUEUES_MAX)?;
        (number.to_string() == name).then_some(number)
    };
    let names = names(disk, directory, |name| number(name).is_some())?;
    let mut queues: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
    queues.sort_unstable();
    Ok(queues)
}

fn names(disk: &dyn Disk, directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let entries = disk
        .list(directory)
        .map_err(|e| Error::io("list", directory, e))?;
    let mut found = Vec::new();
    for entry in entries {
        let Some(name) = entry.name.filter(|name| wanted(name)) else {
            continue;
        };
        // What a file manager leaves behind has a dot in its name, which no topic has.
        if entry.kind == Kind::File && name.contains('.') {
            continue;
        }
        if entry.kind != Kind::Directory {
            let what = format!("{} is not a directory", directory.join(name).display());
            return Err(Error::Unsupported { what });
        }
        found.push(name);
    }
    Ok(found)
}
