//! The mark below which the bytes of a region are readable.

use crate::sync::{AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;

/// A mark that hands bytes over: whoever sees it sees all that was stored below it before it moved.
///
/// On a cache line of its own: the appender moves it with every record, and whoever reads needs the
/// fields beside it.
#[derive(Debug, Default)]
pub struct ReadableMark(CachePadded<AtomicUsize>);

impl ReadableMark {
    /// Where it is. The bytes below it are there.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Where it is, for the one who moves it and has no need of what others stored.
    #[inline]
    pub fn get_own(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves it up to `end`, over the bytes that this thread has stored. It never moves down.
    #[inline]
    pub fn raise(&self, end: usize) {
        self.0.fetch_max(end, Ordering::AcqRel);
    }

    /// [`ReadableMark::raise`] by the only thread that moves it: a plain store.
    #[inline]
    pub fn raise_alone(&self, end: usize) {
        self.0.store(end, Ordering::Release);
    }

    /// Moves it to the begin, for its only owner.
    pub fn reset(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
