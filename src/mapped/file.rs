//! One file of fixed size, mapped when it is first used.
//!
//! Marks, in bytes of the file, each at most the one above it:
//!
//! ```text
//! reserved     blocks exist: a store below cannot fail
//! wrote        bytes are readable (and written out: the map is the file)
//! flushed      bytes are durable
//! ```

use crate::disk::Disk;
use crate::error::{At, Op, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::region::{Access, PAGE, Region};
use crate::sync::Mutex;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One file of a sequence of files; the module header explains its marks.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    start: u64,
    len: u64,
    access: Access,
    disk: Arc<dyn Disk>,
    region: Mutex<Option<Arc<Region>>>,
    /// Whether the map was used since the last check.
    touched: AtomicBool,
    /// The descriptor, for a file that is written to instead of stored to through its map.
    written: Mutex<Option<File>>,
    wrote: AtomicU64,
    flushed: AtomicU64,
    reserved: AtomicU64,
    /// Bytes up to which pages were faulted in ahead of use.
    populated: AtomicU64,
    /// Held while blocks are reserved, so that one thread at a time reserves above the mark.
    reserving: Mutex<()>,
}

/// How much of a file is written when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it is written and durable.
    Full,
    /// This many bytes are written and durable.
    Part(u64),
}

impl MappedFile {
    /// An existing file of `len` bytes whose first byte has position `start`.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        start: u64,
        len: u64,
        access: Access,
        extent: Extent,
    ) -> MappedFile {
        let wrote = match extent {
            Extent::Full => len,
            Extent::Part(bytes) => bytes.min(len),
        };
        MappedFile {
            path,
            start,
            len,
            access,
            disk: Arc::clone(disk),
            region: Mutex::new(None),
            touched: AtomicBool::new(false),
            written: Mutex::new(None),
            wrote: AtomicU64::new(wrote),
            flushed: AtomicU64::new(wrote),
            reserved: AtomicU64::new(0),
            populated: AtomicU64::new(0),
            reserving: Mutex::new(()),
        }
    }

    /// Creates the file durably, with its full length and blocks for its first `reserve` bytes:
    /// blocks and length first, then the name. It is mapped on return. On an error the file does
    /// not exist.
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
    ) -> Result<MappedFile> {
        let file = Self::begin(disk, path, start, len, reserve)?;
        let sync = || {
            disk.sync_file(&file.path)?;
            if planted(Bug::NoDirectorySync) {
                return Ok(());
            }
            disk.sync_directory(file.path.parent().unwrap_or(Path::new(".")))
        };
        file.or_discard(sync())?;
        Ok(file)
    }

    /// [`MappedFile::create`], but neither blocks nor length nor name are durable on return.
    pub fn begin(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        start: u64,
        len: u64,
        reserve: u64,
    ) -> Result<MappedFile> {
        disk.create(&path, len)?;
        let file = Self::open(disk, path, start, len, Access::ReadWrite, Extent::Part(0));
        let made = file.reserve(reserve).and_then(|()| file.region());
        file.or_discard(made)?;
        Ok(file)
    }

    /// Removes the file if a step of its creation has failed.
    fn or_discard<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| {
            self.discard();
            error.undone(Op::Create, &self.path)
        })
    }

    /// Removes a created file that is not used: it would make the next attempt fail.
    pub fn discard(&self) {
        let _ = self.disk.unlink(&self.path);
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Position of the first byte in the sequence of files.
    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Length of the file in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Position after the last byte.
    #[inline]
    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Returns the map, mapping the file if needed. The map is valid as long as the caller keeps
    /// it.
    pub fn region(&self) -> Result<Arc<Region>> {
        let mut slot = self.region.lock();
        self.touched.store(true, Ordering::Relaxed);
        if let Some(region) = &*slot {
            return Ok(Arc::clone(region));
        }
        let len = usize::try_from(self.len).map_err(std::io::Error::other);
        let len = len.at(Op::Map, &self.path)?;
        let region = Arc::new(self.disk.map(&self.path, len, self.access)?);
        region.publish(index(self.wrote.load(Ordering::Acquire)));
        *slot = Some(Arc::clone(&region));
        Ok(region)
    }

    /// Writes bytes at `start`, which must be reserved and not yet readable. A writer does not
    /// also store to the map, except when a write fails for a transient reason.
    pub fn write(&self, start: u64, bytes: &[u8]) -> Result<()> {
        let mut kept = self.written.lock();
        match self.disk.write_kept(&mut kept, &self.path, start, bytes) {
            Err(error) if !error.ends_writing() => {
                let region = self.region();
                let region = region.map_err(|error| error.during(Op::Write, &self.path))?;
                let written = region.write(index(start), bytes);
                written.at(Op::Write, &self.path)
            }
            written => written,
        }
    }

    /// Closes the descriptor that writing keeps open.
    pub fn end_writing(&self) {
        *self.written.lock() = None;
    }

    /// Drops the map; the memory is unmapped when its last user drops it.
    pub fn unmap(&self) {
        let mut slot = self.region.lock();
        if let Some(region) = slot.take() {
            self.wrote
                .fetch_max(region.readable() as u64, Ordering::AcqRel);
        }
    }

    /// Drops the map if nobody else holds it. Returns whether the file is unmapped on return.
    pub fn unmap_idle(&self) -> bool {
        let idle = |region: &Arc<Region>| Arc::strong_count(region) == 1;
        if self.region.lock().as_ref().is_some_and(idle) {
            self.unmap();
        }
        !self.is_mapped()
    }

    /// [`MappedFile::unmap_idle`] if the map was not used since the last call.
    pub fn unmap_unused(&self) {
        if !self.touched.swap(false, Ordering::Relaxed) {
            self.unmap_idle();
        }
    }

    /// Whether there is a map.
    pub fn is_mapped(&self) -> bool {
        self.region.lock().is_some()
    }

    /// The map, if the file is mapped.
    pub fn mapped(&self) -> Option<Arc<Region>> {
        self.region.lock().clone()
    }

    /// Bytes that are written and readable.
    pub fn wrote(&self) -> u64 {
        match &*self.region.lock() {
            Some(region) => region.readable() as u64,
            None => self.wrote.load(Ordering::Acquire),
        }
    }

    /// Makes bytes below `end` of the file readable, whether it is mapped or not.
    pub fn publish(&self, end: u64) {
        let slot = self.region.lock();
        self.wrote.fetch_max(end.min(self.len), Ordering::AcqRel);
        if let Some(region) = &*slot {
            region.publish(index(end.min(self.len)));
        }
    }

    /// Bytes that have blocks.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Bytes up to which [`MappedFile::populate`] has faulted in pages.
    #[inline]
    pub fn populated(&self) -> u64 {
        self.populated.load(Ordering::Relaxed)
    }

    /// Faults in the pages of `len` bytes from `start` on, which have blocks. A hint: failure costs
    /// only speed.
    pub fn populate(&self, start: u64, len: u64) {
        if let Ok(region) = self.region() {
            let _ = region.populate(index(start), index(len));
            self.populated.fetch_max(start + len, Ordering::Relaxed);
        }
    }

    /// Allocates blocks for the bytes below `end`, and for the rest of its page, that lack them.
    ///
    /// One thread at a time, and only above the mark. Nobody stores above the mark; below it,
    /// reserving by writing zeros could overwrite stored bytes.
    pub fn reserve(&self, end: u64) -> Result<()> {
        let end = end.next_multiple_of(PAGE as u64).min(self.len);
        if end <= self.reserved() {
            return Ok(());
        }
        let _alone = self.reserving.lock();
        // Nothing is stored to written bytes again: their blocks may stay shared with a copy.
        let written = self.wrote() / PAGE as u64 * PAGE as u64;
        let from = self.reserved().max(written);
        if from < end {
            self.disk.reserve(&self.path, from, end - from)?;
            self.reserved.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// Runs of bytes in the range that are not in a hole, in order.
    pub fn data_runs(&self, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end
            && let Some(data) = self.disk.next_data(&self.path, at)?
            && data.start < range.end
        {
            let run = data.start.max(at)..data.end.min(range.end);
            at = run.end;
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// Makes `start..end` of the file durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], which says whether the map or the sync failed. A failed sync is final.
    #[cfg_attr(test, track_caller)]
    pub fn flush(&self, start: u64, end: u64) -> Result<()> {
        let region = self.region()?;
        let end = end.min(self.len);
        let len = index(end.saturating_sub(start));
        self.disk.sync_range(&region, index(start), len)?;
        self.flushed.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;
    use crate::disk::{Call, HookedDisk, fill_pausing};
    use std::sync::Barrier;

    /// The allocator thread and the appender once reserved the same range at the same time. On a
    /// file system where reserving writes zeros, the slower one overwrote records of the other.
    #[test]
    fn no_block_is_reserved_twice() {
        const THREADS: u16 = 4;
        const STEP: u64 = 4096;
        let dir = tempfile::tempdir().unwrap();
        let asked: Arc<Mutex<Vec<Range<u64>>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let disk: Arc<dyn Disk> = HookedDisk::shared(move |call, _| {
            if let Call::Reserve(start, len) = call {
                seen.lock().push(start..start + len);
                std::thread::yield_now();
            }
            Ok(())
        });
        for round in 0..50 {
            let path = dir.path().join(round.to_string());
            let file = MappedFile::create(&disk, path, 0, 100 * STEP, STEP).unwrap();
            let start = Barrier::new(usize::from(THREADS));
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (file, start) = (&file, &start);
                    scope.spawn(move || {
                        start.wait();
                        for step in 2..20 {
                            file.reserve(step * STEP + u64::from(thread)).unwrap();
                        }
                    });
                }
            });
            let mut asked = std::mem::take(&mut *asked.lock());
            asked.sort_by_key(|range| range.start);
            let follow = asked.windows(2).all(|two| two[0].end == two[1].start);
            assert!(follow, "{asked:?}");
        }
    }
    /// Where the file system cannot reserve, zeros are written to the pages that are read as zeros.
    /// Of two threads that did so for the same pages, the slower one wrote them over messages.
    #[test]
    fn reserving_by_writing_zeros_overwrites_nothing() {
        const THREADS: usize = 4;
        const PAGES: u8 = 64;
        let at = |page: u8| usize::from(page) * PAGE;
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = HookedDisk::shared(|call, path| {
            if let Call::Reserve(start, len) = call {
                let file = File::options().read(true).write(true).open(path)?;
                fill_pausing(&file, start, len, std::thread::yield_now)?;
            }
            Ok(())
        });
        for round in 0..20 {
            let path = dir.path().join(round.to_string());
            let file = MappedFile::create(&disk, path, 0, at(PAGES) as u64, 0).unwrap();
            let (region, start) = (file.region().unwrap(), Barrier::new(THREADS));
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (file, region, start, at) = (&file, &region, &start, &at);
                    scope.spawn(move || {
                        start.wait();
                        for page in (0..PAGES).skip(thread).step_by(THREADS) {
                            file.reserve(at(page + 1) as u64).unwrap();
                            region.write(at(page), &[1 + page; PAGE]).unwrap();
                        }
                    });
                }
            });
            let bytes = std::fs::read(file.path()).unwrap();
            let pages = bytes.chunks(PAGE).zip(0..PAGES);
            let lost = pages.filter(|(bytes, page)| **bytes != [1 + page; PAGE]);
            assert_eq!(lost.count(), 0);
        }
    }
}
