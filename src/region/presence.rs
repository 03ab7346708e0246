//! Tracks populated pages of a map, on file systems where a load can fault because memory is full.
//!
//! On tmpfs the first load from a hole allocates its page, through any map of the file. If there is
//! no room the load ends in SIGBUS. So each page is populated before it is loaded from, by a call
//! that can fail (`MADV_POPULATE_READ`), and the result is remembered. A page that exists stays,
//! because files of a store are never shrunk while they can be mapped.

use super::guard::PAGE;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each page of a map: 32 KiB for a file of 1 GiB.
#[derive(Debug)]
pub struct Presence {
    pages: Box<[AtomicU64]>,
}

/// Bits in a word.
const BITS: usize = u64::BITS as usize;

impl Presence {
    /// For a map of `len` bytes, with no page populated yet.
    pub fn new(len: usize) -> Presence {
        let words = len.div_ceil(PAGE).div_ceil(BITS);
        Presence {
            pages: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns how many bytes from the start of the range are present. `ask` populates a range of
    /// whole pages and returns whether it could.
    #[inline]
    pub fn reach(&self, bytes: &Range<usize>, ask: impl Fn(Range<usize>) -> bool) -> usize {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let missing = pages.clone().find(|page| !self.has(*page));
        match missing {
            None => bytes.len(),
            Some(first) => (self.ask_from(first..pages.end, ask) * PAGE)
                .clamp(bytes.start, bytes.end)
                .saturating_sub(bytes.start),
        }
    }

    /// Populates the pages, all at once or else one by one. Returns the first that failed.
    #[cold]
    fn ask_from(&self, pages: Range<usize>, ask: impl Fn(Range<usize>) -> bool) -> usize {
        if ask(pages.start * PAGE..pages.end * PAGE) {
            pages.clone().for_each(|page| self.note(page));
            return pages.end;
        }
        for page in pages.clone() {
            if !self.has(page) && !ask(page * PAGE..(page + 1) * PAGE) {
                return page;
            }
            self.note(page);
        }
        pages.end
    }

    #[inline]
    fn has(&self, page: usize) -> bool {
        let bits = self.pages.get(page / BITS);
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & (1 << (page % BITS)) != 0)
    }

    fn note(&self, page: usize) {
        if let Some(bits) = self.pages.get(page / BITS) {
            bits.fetch_or(1 << (page % BITS), Ordering::Relaxed);
        }
    }
}
