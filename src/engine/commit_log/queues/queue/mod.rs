//! A queue: for each message of one queue of a topic, the position of its record in the log.
//!
//! Entry `k` is at byte `20 k` of a sequence of files; see [`QueueEntry`]. Entries are read and
//! written in words, because a rebuild corrects them in place.

mod cut;
pub mod entry;
mod flush;
mod names;
mod overlay;
mod search;
pub mod told;

use crate::damage::{Damage, DamageKind};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::mapped::queue::{file_name, list_files};
use crate::num::index;
use crate::options::DelayLevels;
use crate::record::rocketmq::layout::RECORD_LEN_MIN;
use crate::region::{Access, Region};
use crate::sync::Mutex;
pub use entry::{ENTRY_LEN, EntryMap, FILLER_SIZE, QueueEntry};
pub use names::{is_directory_name, list_queues, list_topics};
use overlay::Overlay;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use told::Told;

/// Disk blocks are reserved in steps of this many bytes.
const RESERVE_STEP: u64 = 64 << 10;
/// The largest gap of offsets that is filled with fillers. A larger one means a damaged record.
pub const GAP_MAX: u64 = 1 << 26;
/// Gaps up to this length are always filled. A longer one is filled only if the log has room for
/// that many records.
const GAP_SHORT: u64 = 1 << 16;

/// Maximum number of files that may be missing between two files of a queue.
const FILE_GAP_MAX: u64 = 64;

/// State that all queues of a store share.
#[derive(Debug)]
pub struct QueueStore {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory `consumequeue`.
    pub directory: PathBuf,
    /// Entries per file.
    pub file_entries: u64,
    /// How long the messages of each delay level wait.
    pub delays: DelayLevels,
    /// Whether files are written. If not, missing entries are kept in memory.
    pub access: Access,
    /// Memory for entries that are missing on disk.
    pub spill: crate::mapped::spill::Spill,
    /// Number of mapped files, of all queues.
    pub mapped: AtomicU64,
}

/// One queue.
#[derive(Debug)]
pub struct ConsumeQueue {
    store: Arc<QueueStore>,
    directory: PathBuf,
    /// Number of the queue in its topic.
    pub id: u32,
    bounds: Bounds,
    /// Number after the last durable entry, not counting entries corrected in place.
    flushed: AtomicU64,
    /// First entry that was corrected in place since the last flush; `u64::MAX` if there is none.
    dirty: AtomicU64,
    /// Number after the last entry that was erased since the last flush; 0 if there is none.
    erased: AtomicU64,
    /// Whether the names of the files may not be durable: a file was created or removed since the
    /// last flush, or by a process that died before its own flush.
    names_changed: AtomicBool,
    /// First position of the writer's log when the first offset was last raised; used by readers.
    followed: AtomicU64,
    files: Mutex<Files>,
    /// Fillers whose lost messages were reported to readers.
    pub told: Told,
}

/// What each new entry changes, on one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bounds {
    min: AtomicU64,
    max: AtomicU64,
    /// Whether the maps were used since the last check.
    touched: AtomicBool,
}

#[derive(Debug, Default)]
struct Files {
    /// Files that exist, by number of the first entry, with their maps.
    on_disk: BTreeMap<u64, QueueFile>,
    /// Entries that are only in memory, from a number on; used if the store is read-only.
    overlay: Option<Overlay>,
}

#[derive(Debug, Default)]
struct QueueFile {
    region: Option<Arc<Region>>,
    reserved: u64,
}

impl ConsumeQueue {
    /// A queue whose files, if any, are listed. The log begins at `min_position`.
    pub fn open(
        store: &Arc<QueueStore>,
        topic: &str,
        id: u32,
        min_position: u64,
    ) -> Result<ConsumeQueue> {
        let directory = store.directory.join(topic).join(id.to_string());
        let queue = ConsumeQueue::absent(store, topic, id);
        let file_len = store.file_entries * ENTRY_LEN;
        let mut end = None;
        for file in list_files(&*store.disk, &directory)? {
            // A file of another length, with an impossible start, or far after all others holds
            // nothing that cannot be rebuilt from the log.
            let is_sound = file.len == file_len && file.start % file_len == 0;
            let gap = end.map_or(0, |end| file.start.saturating_sub(end));
            let mut is_near = gap <= FILE_GAP_MAX * file_len;
            if is_sound && !is_near && queue.is_removed(min_position)? {
                queue.remove_all()?;
                is_near = true;
            }
            if is_sound && is_near {
                end = Some(file.start + file_len);
                let mut files = queue.files.lock();
                let start = file.start / ENTRY_LEN;
                files.on_disk.insert(start, QueueFile::default());
            } else if store.access == Access::ReadWrite {
                queue.unlink(file.start / ENTRY_LEN)?;
            }
        }
        Ok(queue)
    }

    /// A queue without files.
    pub fn absent(store: &Arc<QueueStore>, topic: &str, id: u32) -> ConsumeQueue {
        ConsumeQueue {
            store: Arc::clone(store),
            directory: store.directory.join(topic).join(id.to_string()),
            id,
            bounds: Bounds::default(),
            flushed: AtomicU64::new(0),
            dirty: AtomicU64::new(u64::MAX),
            erased: AtomicU64::new(0),
            names_changed: AtomicBool::new(false),
            followed: AtomicU64::new(0),
            files: Mutex::new(Files::default()),
            told: Told::default(),
        }
    }

    /// First offset that has a message.
    #[inline]
    pub fn min(&self) -> u64 {
        self.bounds.min.load(Ordering::Acquire)
    }

    /// Next offset to be written.
    #[inline]
    pub fn max(&self) -> u64 {
        self.bounds.max.load(Ordering::Acquire)
    }

    /// File and byte of entry `number`, whether it exists or not.
    pub fn place_of(&self, number: u64) -> (PathBuf, u64) {
        let first = number - number % self.store.file_entries;
        let path = self.directory.join(file_name(first * ENTRY_LEN));
        (path, (number - first) * ENTRY_LEN)
    }

    /// Describes damage of entry `number`.
    #[cold]
    pub fn damage(&self, number: u64, reason: impl ToString) -> Damage {
        let (path, at) = self.place_of(number);
        Damage::new(DamageKind::Queue, path, at..at + ENTRY_LEN, reason)
    }

    /// Sets the bounds found in the files of a queue that is being opened. Its entries count as
    /// durable until [`ConsumeQueue::doubt`] is called.
    pub fn load_bounds(&self, min: u64, max: u64) {
        self.set_bounds(min, max);
        self.set_flushed(max);
    }

    /// Sets the bounds found in the files.
    pub fn set_bounds(&self, min: u64, max: u64) {
        self.bounds.max.store(max, Ordering::Release);
        self.bounds.min.store(min.min(max), Ordering::Release);
    }

    /// Raises the end past entries that another process has added.
    pub fn extend_to(&self, max: u64) {
        self.bounds.max.fetch_max(max, Ordering::AcqRel);
    }

    /// Lowest number that the files can hold.
    pub fn first_on_disk(&self) -> Option<u64> {
        self.files.lock().on_disk.keys().next().copied()
    }

    /// The map that contains entry `number`; `None` if there is no such file.
    pub fn map_of(&self, number: u64) -> Result<Option<EntryMap>> {
        let mut files = self.files.lock();
        if let Some(overlay) = files
            .overlay
            .as_ref()
            .filter(|overlay| number >= overlay.from)
        {
            return overlay.map_of(&self.store.spill, number);
        }
        let limit = files
            .overlay
            .as_ref()
            .map_or(u64::MAX, |overlay| overlay.from);
        let first = number - number % self.store.file_entries;
        let Some(file) = files.on_disk.get_mut(&first) else {
            return Ok(None);
        };
        let region = match self.map(first, file) {
            Err(error) if self.store.access == Access::Read && error.is_not_found() => {
                // The writer has deleted it.
                files.on_disk.remove(&first);
                return Ok(None);
            }
            mapped => mapped?,
        };
        let end = limit.min(first + self.store.file_entries);
        Ok(Some(EntryMap {
            region,
            base: 0,
            first,
            end,
        }))
    }

    fn map(&self, start: u64, file: &mut QueueFile) -> Result<Arc<Region>> {
        self.bounds.touched.store(true, Ordering::Relaxed);
        if let Some(region) = &file.region {
            return Ok(Arc::clone(region));
        }
        let path = self.directory.join(file_name(start * ENTRY_LEN));
        let len = index(self.store.file_entries * ENTRY_LEN);
        let region = self.store.disk.map(&path, len, self.store.access)?;
        let region = Arc::new(region);
        self.store.mapped.fetch_add(1, Ordering::Relaxed);
        file.region = Some(Arc::clone(&region));
        Ok(region)
    }

    /// Releases the maps if the queue was not used since the last call.
    pub fn unmap_idle(&self) {
        if !self.bounds.touched.swap(false, Ordering::Relaxed) {
            self.unmap();
        }
    }

    /// Releases the maps. They stay valid for current holders.
    pub fn unmap(&self) {
        for file in self.files.lock().on_disk.values_mut() {
            if file.region.take().is_some() {
                self.store.mapped.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Entry `number`, from disk or memory; `None` if it was never written.
    pub fn entry(&self, number: u64) -> Result<Option<QueueEntry>> {
        let Some(map) = self.map_of(number)? else {
            return Ok(None);
        };
        Ok(Some(map.entry(number)?).filter(|entry| entry.size != 0))
    }

    /// Puts entry `number`: at the end, after a gap that is filled with fillers, or in place of a
    /// wrong entry. Returns whether anything was stored.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Corrupt`] if the number is so far off that the record with it
    /// must be damaged.
    pub fn put(&self, number: u64, entry: QueueEntry) -> Result<bool> {
        let max = self.max();
        if number == max {
            self.store_entry(number, entry)?;
            self.bounds.max.store(number + 1, Ordering::Release);
            return Ok(true);
        }
        if number < max {
            if self.entry(number)? == Some(entry) {
                return Ok(false);
            }
            self.store_entry(number, entry)?;
            self.dirty.fetch_min(number, Ordering::AcqRel);
            self.bounds.min.fetch_min(number, Ordering::AcqRel);
            return Ok(true);
        }
        if self.is_untouched()? {
            // The first message that exists. Those before it were deleted together with the files
            // of the queue.
            self.dirty.store(0, Ordering::Release);
            let start = number - number % self.store.file_entries;
            self.store_fillers(start..number)?;
            self.bounds.min.store(number, Ordering::Release);
        } else if number - max > GAP_MAX || !self.has_log_for(number - max, entry.position)? {
            let reason = format!("queue offset {number} is too far after the end, {max}");
            return Err(Error::corrupt(&self.directory, entry.position, reason));
        } else {
            self.store_fillers(max..number)?;
        }
        self.store_entry(number, entry)?;
        self.bounds.max.store(number + 1, Ordering::Release);
        Ok(true)
    }

    /// [`ConsumeQueue::put`] for dispatch, which caches the map for the next entries.
    #[inline]
    pub fn put_with(
        &self,
        number: u64,
        entry: QueueEntry,
        map: &mut Option<EntryMap>,
    ) -> Result<bool> {
        if let Some(map) = map
            && number == self.bounds.max.load(Ordering::Relaxed)
            && number >= map.first
            && number < map.end
        {
            map.store(number, entry)?;
            self.bounds.touched.store(true, Ordering::Relaxed);
            self.bounds.max.store(number + 1, Ordering::Release);
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
        map.store(number, entry)
    }

    /// Whether the log has room for the records of a gap that ends at `position`. A short gap is
    /// cheap, and not checked: one record may hold many messages.
    fn has_log_for(&self, gap: u64, position: u64) -> Result<bool> {
        if gap <= GAP_SHORT {
            return Ok(true);
        }
        let before = self.last_end_below(u64::MAX)?.unwrap_or(0);
        let records = position.saturating_sub(before) / RECORD_LEN_MIN as u64;
        Ok(gap <= records)
    }

    /// Stores fillers for the numbers of a gap.
    fn store_fillers(&self, mut gap: Range<u64>) -> Result<()> {
        if self.store.access == Access::Read {
            let mut files = self.files.lock();
            let overlay = files.overlay.get_or_insert_with(|| Overlay::new(gap.start));
            return overlay.fill(&self.directory, &self.store.spill, gap);
        }
        gap.try_for_each(|number| self.store_entry(number, QueueEntry::FILLER))
    }

    /// A map into which entry `number` may be stored. It ends with the reserved blocks.
    fn writable_map(&self, number: u64) -> Result<EntryMap> {
        let mut files = self.files.lock();
        if self.store.access == Access::Read {
            let overlay = files.overlay.get_or_insert_with(|| Overlay::new(number));
            return overlay.writable_map(&self.directory, &self.store.spill, number);
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
            self.store
                .disk
                .reserve(&path, file.reserved, until - file.reserved)?;
            file.reserved = until;
        }
        let end = start + file.reserved / ENTRY_LEN;
        let region = self.map(start, file)?;
        // A store into a page that is not in memory would make the kernel read ahead around it: 128
        // KiB of zeros for each of many queues, where one page is needed.
        region.advise_random();
        Ok(EntryMap {
            region,
            base: 0,
            first: start,
            end,
        })
    }

    fn create_file(&self, start: u64) -> Result<()> {
        let disk = &self.store.disk;
        disk.create_directory(&self.directory)?;
        let path = self.directory.join(file_name(start * ENTRY_LEN));
        disk.create(&path, self.store.file_entries * ENTRY_LEN)?;
        self.names_changed.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the queue holds no entries: its bounds are equal, and no entry is stored at its end.
    pub fn is_untouched(&self) -> Result<bool> {
        Ok(self.max() == self.min() && self.entry(self.max())?.is_none())
    }

    /// Puts fillers up to `next`, so that no lower offset is assigned again. A gap that is too
    /// large to be plausible remains.
    pub fn bridge_to(&self, next: u64) -> Result<()> {
        let max = self.max();
        if self.is_untouched()? {
            self.set_bounds(next.max(max), next.max(max));
            return Ok(());
        }
        if next > max && next - max <= GAP_MAX {
            self.store_fillers(max..next)?;
            self.bounds.max.store(next, Ordering::Release);
        }
        Ok(())
    }

    /// Drops the entries in memory. Returns whether there were any; the bounds must then be found
    /// again.
    pub fn forget_overlay(&self) -> bool {
        self.files.lock().overlay.take().is_some()
    }

    /// Finds files that another process has added, and releases those that it has deleted at the
    /// front.
    pub fn refresh_files(&self) -> Result<()> {
        let file_len = self.store.file_entries * ENTRY_LEN;
        let mut files = self.files.lock();
        let found = list_files(&*self.store.disk, &self.directory)?;
        let mut first = None;
        for file in found {
            if file.len == file_len && file.start % file_len == 0 {
                let start = file.start / ENTRY_LEN;
                first.get_or_insert(start);
                files.on_disk.entry(start).or_default();
            }
        }
        let kept = files.on_disk.split_off(&first.unwrap_or(0));
        let gone = std::mem::replace(&mut files.on_disk, kept);
        let mapped = gone.values().filter(|file| file.region.is_some()).count();
        self.store
            .mapped
            .fetch_sub(mapped as u64, Ordering::Relaxed);
        if let Some(first) = first {
            self.bounds.max.fetch_max(first, Ordering::AcqRel);
            self.bounds.min.fetch_max(first, Ordering::AcqRel);
        }
        Ok(())
    }
}
