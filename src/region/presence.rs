//! Which pages of a map are there, for file systems where a load can fault for want of room.
//!
//! On tmpfs a hole of a file is given a page by the first load from it, through whatever map, and
//! where there is no room the load ends in SIGBUS. So each page is asked for before it is loaded
//! from, by a call that can say no (`MADV_POPULATE_READ`), and remembered: a page that is there
//! stays, for files of a store are never shrunk while they can be mapped.

use super::guard::PAGE;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of one map, a bit each: 32 KiB for a file of 1 GiB.
#[derive(Debug)]
pub struct Presence {
    pages: Box<[AtomicU64]>,
}

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

impl Presence {
    /// Of a map of `len` bytes, nothing of which was asked for.
    pub fn new(len: usize) -> Presence {
        let words = len.div_ceil(PAGE).div_ceil(BITS);
        Presence {
            pages: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// How many of the bytes are there from the start of the range on. `ask` populates a range of
    /// whole pages and says whether it could.
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

    /// Asks for the pages, all at once or one by one; the first that could not be had.
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
