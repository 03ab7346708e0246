//! A mapped file, or anonymous memory in its place: the only module that touches mapped bytes.
//!
//! Two kinds of access, never mixed in one range:
//!
//! - **Records.** Bytes are written once, at or above the *readable* mark ([`Region::write`]), and
//!   become readable by [`Region::publish`], which only raises the mark. [`Region::slice`] returns
//!   a `&[u8]` only below the mark: those bytes never change again.
//! - **Words.** Queue entries, index slots and marks change in place. They are read and written as
//!   aligned atomic words, so a race yields an old or a new word and never undefined behaviour.
//!
//! Three rules avoid faults: a mapped file is never shrunk while it can be mapped (it is retired
//! by unlink); its blocks are reserved before they are stored to; where a load can also allocate a
//! page, the page is populated first (see `presence.rs`). An access can still fault: the device
//! fails, a shared extent needs a block on a full disk, or another process truncates the file. So
//! each access runs under [`guard`] and returns an error that holds a [`Fault`]. A returned slice
//! has been touched page by page; later loads from it are not guarded, so it is used at once.

#![allow(unsafe_code)]

pub mod guard;
mod mark;
mod presence;
#[cfg(test)]
mod reuse;
mod window;
mod words;

pub use guard::{Fault, PAGE};
pub use window::Window;

use guard::Faulted;
use mark::ReadableMark;
#[cfg(unix)]
use memmap2::Advice;
use memmap2::{MmapOptions, MmapRaw};
use presence::Presence;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::Arc;

/// The mapped bytes. On the simulated disk all maps of a file share one memory.
#[cfg(not(test))]
type Memory = MmapRaw;
#[cfg(test)]
type Memory = Arc<reuse::Memory>;

#[cfg(not(test))]
fn memory(map: MmapRaw) -> Memory {
    map
}

#[cfg(test)]
fn memory(map: MmapRaw) -> Memory {
    Arc::new(reuse::Memory::of_file(map))
}

fn anonymous_map(len: usize) -> io::Result<MmapRaw> {
    Ok(MmapRaw::from(MmapOptions::new().len(len).map_anon()?))
}

#[cfg(not(test))]
fn anonymous_memory(len: usize) -> io::Result<Memory> {
    anonymous_map(len)
}

#[cfg(test)]
fn anonymous_memory(len: usize) -> io::Result<Memory> {
    Ok(Arc::new(reuse::Memory::anonymous(len, || {
        anonymous_map(len)
    })?))
}

/// Mapped bytes that many owners share. They are unmapped when the last owner drops them.
#[derive(Debug)]
pub struct Region {
    map: Memory,
    path: PathBuf,
    readable: ReadableMark,
    writable: bool,
    /// Whether the memory has no file.
    anonymous: bool,
    /// Tracks populated pages, where a load may find no room for a page.
    presence: Option<Box<Presence>>,
}

/// Whether a map may be stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only; a store would fault and is refused.
    Read,
    /// Loads and stores, shared with all other maps of the file.
    ReadWrite,
}

impl Region {
    /// Maps the first `len` bytes of `file`, which must have at least that length. The readable
    /// mark starts at 0.
    pub fn map(file: &File, path: &Path, len: usize, access: Access) -> io::Result<Region> {
        let have = file.metadata()?.len();
        if have < len as u64 {
            let text = format!("cannot map {len} bytes of a file of {have} bytes");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        guard::renew();
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match access {
            Access::Read => options.map_raw_read_only(file)?,
            Access::ReadWrite => options.map_raw(file)?,
        };
        let writable = access == Access::ReadWrite;
        Ok(Region {
            map: memory(map),
            path: path.to_owned(),
            readable: ReadableMark::default(),
            writable,
            anonymous: false,
            presence: None,
        })
    }

    /// Populates each page before it is loaded from, for files whose holes allocate memory on read.
    pub fn ask_for_pages(&mut self) {
        self.presence = Some(Box::new(Presence::new(self.len())));
    }

    /// Returns how many bytes from the start of the range can be loaded. The range is in the map.
    #[inline]
    fn reach(&self, bytes: Range<usize>) -> usize {
        match &self.presence {
            None => bytes.len(),
            Some(presence) => presence.reach(&bytes, |pages| self.populate_read(pages)),
        }
    }

    /// Faults pages in for loads. Returns `false` for a hole, which reads as zeros, that cannot get
    /// a page. On any other failure the page may hold data: the load itself reports the error.
    #[cold]
    fn populate_read(&self, pages: Range<usize>) -> bool {
        #[cfg(target_os = "linux")]
        {
            let len = pages.end.min(self.len()) - pages.start;
            let asked = self
                .map
                .advise_range(Advice::PopulateRead, pages.start, len);
            // Kernels before 5.14 do not have this advice.
            match asked {
                Err(no) if no.raw_os_error() != Some(libc::EINVAL) => {
                    len <= PAGE && !self.reads_as_zeros(pages.start, len)
                }
                _ => true,
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = pages;
            true
        }
    }

    /// Whether the file holds zeros in a range within one page, as far as it can be read. `read`
    /// allocates nothing, even in a hole.
    #[cfg(target_os = "linux")]
    fn reads_as_zeros(&self, start: usize, len: usize) -> bool {
        use std::os::unix::fs::FileExt;
        let mut page = [1; PAGE];
        let bytes = page.get_mut(..len).unwrap_or_default();
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(bytes, start as u64));
        read.is_ok() && bytes.iter().all(|byte| *byte == 0)
    }

    /// Memory without a file, for engines and overlays that keep nothing on disk.
    pub fn anonymous(len: usize, name: &Path) -> io::Result<Region> {
        let map = anonymous_memory(len.max(1))?;
        let readable = ReadableMark::default();
        Ok(Region {
            map,
            path: name.to_owned(),
            readable,
            writable: true,
            anonymous: true,
            presence: None,
        })
    }

    /// Path of the file, for error messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte, for proofs that nothing was copied.
    pub fn address(&self) -> usize {
        self.map.as_ptr() as usize
    }

    /// End of the bytes that [`Region::slice`] can return.
    #[inline]
    pub fn readable(&self) -> usize {
        self.readable.get()
    }

    /// Makes all bytes below `end` readable. Does nothing if they already are.
    #[inline]
    pub fn publish(&self, end: usize) {
        debug_assert!(end <= self.len());
        self.readable.raise(end.min(self.len()));
    }

    /// [`Region::publish`] for the only thread that publishes: a plain store.
    #[inline]
    pub fn publish_alone(&self, end: usize) {
        debug_assert!(end <= self.len() && end >= self.readable.get_own());
        self.readable.raise_alone(end.min(self.len()));
    }

    /// The bytes from the readable mark on, to be stored to in place; none of a mapped file. They
    /// are zeros, or what the region held before [`Region::reuse`].
    pub fn room(&mut self) -> &mut [u8] {
        let (start, len) = (self.readable.get_own(), self.len());
        if !self.anonymous {
            return &mut [];
        }
        // SAFETY: `start..len` lies within the map because `publish` keeps the mark within it. The
        // memory has no file, so no load of it faults and no other map shares it; `&mut self`
        // proves that nobody has a slice of it or stores to it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(start), len - start) }
    }

    /// Resets the readable mark so that the region can be filled again.
    pub fn reuse(&mut self) {
        self.readable.reset();
    }

    /// The error for an access that faulted at an address of this map.
    #[cold]
    fn fault(&self, at: Faulted) -> io::Error {
        let position = at.saturating_sub(self.address()) as u64;
        io::Error::other(Fault { position })
    }

    /// Returns the readable bytes at `start`, each page of which was just loaded from; `None` if
    /// some of them are not readable.
    ///
    /// # Errors
    ///
    /// An error that holds a [`Fault`] if a page cannot be loaded.
    #[inline]
    pub fn slice(&self, start: usize, len: usize) -> io::Result<Option<&[u8]>> {
        self.slice_below(self.readable(), start, len)
    }

    /// Returns the bytes at `start` below `mark`, an earlier or the current readable mark.
    #[inline]
    fn slice_below(&self, mark: usize, start: usize, len: usize) -> io::Result<Option<&[u8]>> {
        let Some(bytes) = self.untouched_below(mark, start, len) else {
            return Ok(None);
        };
        if self.anonymous {
            // No load of memory without a file can fail.
            return Ok(Some(bytes));
        }
        // SAFETY: the bytes lie within the map.
        let touched = unsafe { guard::touch(bytes.as_ptr(), len) };
        touched.map_err(|at| self.fault(at))?;
        Ok(Some(bytes))
    }

    /// [`Region::slice`] without touching the pages: the caller has just got them from `slice`.
    #[inline]
    pub fn slice_again(&self, start: usize, len: usize) -> Option<&[u8]> {
        self.untouched_below(self.readable(), start, len)
    }

    /// All readable bytes, as [`Region::slice_again`] returns parts of them; `None` if a load may
    /// find no room for a page, so that only those that were read before may be loaded.
    #[inline]
    pub fn all_again(&self) -> Option<&[u8]> {
        let mark = self.readable();
        match self.presence {
            None => self.untouched_below(mark, 0, mark),
            Some(_) => None,
        }
    }

    #[inline]
    fn untouched_below(&self, mark: usize, start: usize, len: usize) -> Option<&[u8]> {
        let end = start.checked_add(len)?;
        if end > mark || self.reach(start..end) < len {
            return None;
        }
        // SAFETY: `start..end` lies within the map because `publish` keeps the mark within it. No
        // byte below the mark is stored to again: `write` refuses it. The mark only grows, so an
        // earlier value is also valid. The map lives as long as `self`.
        Some(unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(start), len) })
    }

    /// Returns readable bytes from `start`, at most `len`; empty at or above the mark.
    ///
    /// # Errors
    ///
    /// As [`Region::slice`].
    #[inline]
    pub fn run(&self, start: usize, len: usize) -> io::Result<&[u8]> {
        self.run_below(self.readable(), start, len)
    }

    #[inline]
    fn run_below(&self, mark: usize, start: usize, len: usize) -> io::Result<&[u8]> {
        let start = start.min(mark);
        let len = self.reach(start..start + len.min(mark - start));
        let bytes = self.slice_below(mark, start, len)?;
        Ok(bytes.unwrap_or_default())
    }

    /// Copies the readable bytes at `start` to `to`. Returns `false` if not all are readable.
    ///
    /// # Errors
    ///
    /// As [`Region::slice`]; `to` may then be partly filled.
    pub fn copy_out(&self, start: usize, to: &mut [u8]) -> io::Result<bool> {
        let Some(from) = self.untouched_below(self.readable(), start, to.len()) else {
            return Ok(false);
        };
        // SAFETY: `from` lies within the map and `to`, which is as long, is the caller's alone.
        let copied = unsafe { guard::copy(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        copied.map_err(|at| self.fault(at))?;
        Ok(true)
    }

    /// Copies `bytes` to `start`. The caller must be the only writer: it holds the append lock.
    ///
    /// # Errors
    ///
    /// An error that holds a [`Fault`] if the kernel has no room for a page or cannot read it. The
    /// bytes may then be partly written.
    ///
    /// # Panics
    ///
    /// If part of the range is already readable or outside the map: a bug of the caller that would
    /// otherwise change bytes that readers hold.
    #[inline]
    #[allow(clippy::panic)]
    pub fn write(&self, start: usize, bytes: &[u8]) -> io::Result<()> {
        let fits = start
            .checked_add(bytes.len())
            .is_some_and(|end| end <= self.len());
        if !fits || !self.writable || start < self.readable.get_own() {
            panic!(
                "write of {} bytes at {start} of {}",
                bytes.len(),
                self.path.display()
            );
        }
        let to = self.map.as_mut_ptr().wrapping_add(start);
        // SAFETY: the range lies within the map, is writable and is above the readable mark, so no
        // `&[u8]` covers it; the caller is the only writer.
        let copied = unsafe { guard::copy(bytes.as_ptr(), to, bytes.len()) };
        copied.map_err(|at| self.fault(at))
    }

    /// Whether the map can be stored to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Prefetches the cache lines of a range that is about to be used. A hint.
    #[inline]
    pub fn prefetch(&self, start: usize, len: usize) {
        #[cfg(target_arch = "x86_64")]
        for at in (start / 64 * 64..start.saturating_add(len).min(self.len())).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch does not access memory, and the address lies within the map.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.map.as_ptr().add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, len);
    }

    /// Waits until the bytes of the range are durable (`msync`, which on a shared map is
    /// `fdatasync` of the range). The range is clipped to the map.
    pub fn sync(&self, start: usize, len: usize) -> io::Result<()> {
        let end = start.saturating_add(len).min(self.len());
        let start = start.min(end);
        if start == end {
            Ok(())
        } else {
            self.map.flush_range(start, end - start)
        }
    }

    /// Dirties every page of the range without changing a byte, so that the next sync writes it.
    ///
    /// # Errors
    ///
    /// As [`Region::write`].
    pub fn rewrite(&self, start: usize, len: usize) -> io::Result<()> {
        let end = start.saturating_add(len).min(self.len());
        for page in (start / PAGE * PAGE..end).step_by(PAGE) {
            if let Some(word) = self.place_of::<u32>(page) {
                // SAFETY: the word lies within the map, which is writable, and is aligned; adding 0
                // changes nothing.
                unsafe { guard::add_u32(word, 0) }.map_err(|at| self.fault(at))?;
            }
        }
        Ok(())
    }

    /// Faults in the pages of the range for writing, before they are used. Fails if the system has
    /// no such call.
    pub fn populate(&self, start: usize, len: usize) -> io::Result<()> {
        let end = start.saturating_add(len).min(self.len());
        let start = start / PAGE * PAGE;
        if !self.writable || start >= end {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        return self
            .map
            .advise_range(Advice::PopulateWrite, start, end - start);
        #[cfg(not(target_os = "linux"))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Tells the kernel that the map is read in random order. A hint.
    pub fn advise_random(&self) {
        #[cfg(unix)]
        let _ = self.map.advise(Advice::Random);
    }

    /// Locks the map in memory, which reads in all of it.
    pub fn lock(&self) -> io::Result<()> {
        #[cfg(unix)]
        return self.map.lock();
        #[cfg(not(unix))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Undoes [`Region::lock`], even if only a part is locked.
    pub fn unlock(&self) {
        #[cfg(unix)]
        let _ = self.map.unlock();
    }
}

/// For the simulated disk: the bytes as the page cache holds them, below or above the mark.
#[cfg(test)]
impl Region {
    /// Another map of the same bytes, named `path`.
    pub fn share(&self, path: &Path, access: Access) -> Region {
        Region {
            map: Arc::clone(&self.map),
            path: path.to_owned(),
            readable: ReadableMark::default(),
            writable: access == Access::ReadWrite,
            anonymous: false,
            presence: None,
        }
    }

    /// All bytes. The simulator runs on one thread, which stores nothing while it holds them.
    pub fn contents(&self) -> &[u8] {
        // SAFETY: the range is the map, which lives as long as `self`; nobody stores meanwhile.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.map.len()) }
    }

    /// Stores bytes anywhere in the map, like a write to the file.
    pub fn overwrite(&self, start: usize, bytes: &[u8]) {
        assert!(start + bytes.len() <= self.len());
        // SAFETY: the range lies within the map; the simulator holds no slice of it meanwhile.
        unsafe {
            let to = self.map.as_mut_ptr().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}
