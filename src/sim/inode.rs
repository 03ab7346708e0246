//! One file of the simulated disk: the cache, what the kernel considers clean, and the platter.

use super::random::Random;
use crate::region::{PAGE, Region};
use std::path::Path;

/// Bytes that reach the platter together.
pub const SECTOR: usize = 512;

/// A file of the disk: its cache, and its stored bytes.
#[derive(Debug)]
pub struct Inode {
    /// The bytes that maps share and reads see.
    pub cache: Region,
    /// Bytes of the file.
    pub len: usize,
    /// The bytes of the cache that the kernel considers stored.
    pub clean: Vec<u8>,
    /// The stored bytes.
    pub platter: Vec<u8>,
    /// Length of the file as stored.
    pub platter_len: usize,
}

/// Memory with these bytes at its start.
fn cache(len: usize, bytes: &[u8]) -> Region {
    let cache = Region::anonymous(len, Path::new("simulated")).unwrap();
    cache.overwrite(0, bytes);
    cache
}

impl Inode {
    pub fn new(len: usize) -> Inode {
        Inode {
            cache: cache(len, &[]),
            len,
            clean: vec![0; len],
            platter: vec![0; len],
            platter_len: 0,
        }
    }

    /// A file whose platter holds these bytes.
    pub fn holding(bytes: Vec<u8>) -> Inode {
        Inode {
            cache: cache(bytes.len(), &bytes),
            len: bytes.len(),
            clean: bytes.clone(),
            platter_len: bytes.len(),
            platter: bytes,
        }
    }

    /// A copy of the file with its own cache, which existing maps do not share.
    pub fn apart(&self) -> Inode {
        Inode {
            cache: cache(self.len, &self.cache.contents()[..self.len]),
            len: self.len,
            clean: self.clean.clone(),
            platter: self.platter.clone(),
            platter_len: self.platter_len,
        }
    }

    /// Reads up to `buffer.len()` bytes at `start`.
    pub fn read(&self, start: u64, buffer: &mut [u8]) -> usize {
        let start = (start as usize).min(self.len);
        let len = buffer.len().min(self.len - start);
        buffer[..len].copy_from_slice(&self.cache.contents()[start..start + len]);
        len
    }

    /// Makes the file longer, with zeros. Existing maps do not share bytes that are stored from
    /// here on.
    pub fn grow(&mut self, len: usize) {
        self.cache = cache(len, &self.cache.contents()[..self.len]);
        // The file system stores that a file was cut before it stores that it grew.
        self.platter.truncate(self.len);
        self.platter_len = self.platter_len.min(self.len);
        for bytes in [&mut self.clean, &mut self.platter] {
            let mut grown = vec![0; len];
            grown[..self.len].copy_from_slice(bytes);
            *bytes = grown;
        }
        self.len = len;
    }

    /// Cuts off what follows the first `len` bytes. The platter keeps it until the next sync.
    pub fn shorten(&mut self, len: usize) {
        let rest = self.len - len;
        self.cache.overwrite(len, &vec![0; rest]);
        self.clean.truncate(len);
        self.len = len;
    }

    /// Dirty sectors that begin in the range.
    pub fn dirty(&self, start: usize, end: usize) -> Vec<usize> {
        let cache = &self.cache.contents()[..self.len];
        if cache[start.min(self.len)..end.min(self.len)]
            == self.clean[start.min(self.len)..end.min(self.len)]
        {
            return Vec::new();
        }
        let first = start / SECTOR * SECTOR;
        let differs = |at: &usize| {
            let to = (at + SECTOR).min(self.len);
            cache[*at..to] != self.clean[*at..to]
        };
        (first..end.min(self.len))
            .step_by(SECTOR)
            .filter(differs)
            .collect()
    }

    /// Writes to the cache. The kernel stores pages that are written to, even if their bytes stay
    /// the same.
    pub fn write(&mut self, start: usize, bytes: &[u8]) {
        self.cache.overwrite(start, bytes);
        self.dirty_pages(start, start + bytes.len());
    }

    /// Makes the kernel store the pages of a range that differ from the platter.
    pub fn dirty_pages(&mut self, start: usize, end: usize) {
        let end = end.next_multiple_of(PAGE).min(self.len);
        let pages = (start / PAGE * PAGE).min(end)..end;
        self.clean[pages.clone()].copy_from_slice(&self.platter[pages]);
    }

    /// Writes a sector to the platter.
    pub fn write_back(&mut self, at: usize) {
        let to = (at + SECTOR).min(self.len);
        let sector = &self.cache.contents()[at..to];
        self.platter[at..to].copy_from_slice(sector);
        self.clean[at..to].copy_from_slice(sector);
    }

    /// Drops some sectors that are clean but not on the platter. Returns whether there were any.
    pub fn evict(&mut self, random: &mut Random) -> bool {
        let mut evicted = false;
        for at in (0..self.len).step_by(SECTOR) {
            let to = (at + SECTOR).min(self.len);
            let cached = &self.cache.contents()[at..to];
            if cached == &self.clean[at..to] && cached != &self.platter[at..to] && random.chance(50)
            {
                self.cache.overwrite(at, &self.platter[at..to]);
                self.clean[at..to].copy_from_slice(&self.platter[at..to]);
                evicted = true;
            }
        }
        evicted
    }

    /// Marks a sector clean without storing it.
    pub fn forget(&mut self, at: usize) {
        let to = (at + SECTOR).min(self.len);
        self.clean[at..to].copy_from_slice(&self.cache.contents()[at..to]);
    }

    pub fn sync(&mut self, start: usize, end: usize) {
        for at in self.dirty(start, end) {
            self.write_back(at);
        }
        self.platter.truncate(self.len);
        self.platter_len = self.len;
    }
}

/// What a power failure leaves of a file: each dirty sector survives in `kept` of 100 cases.
pub fn survivor(inode: &Inode, kept: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes = inode.platter.clone();
    let cache = inode.cache.contents();
    for at in inode.dirty(0, inode.len) {
        if random.chance(kept) {
            let to = (at + SECTOR).min(inode.len);
            bytes[at..to].copy_from_slice(&cache[at..to]);
        }
    }
    let len = match inode.platter_len == inode.len || random.chance(50) {
        true => inode.len,
        false => inode.platter_len,
    };
    bytes.truncate(len);
    bytes
}
