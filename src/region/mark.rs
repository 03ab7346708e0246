//! The mark below which the bytes of a region are readable.

use crate::sync::{AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;

/// Publishes bytes: a reader that sees the mark sees everything stored below it before it moved.
///
/// It has a cache line of its own because the appender moves it with every record, while readers
/// need the fields next to it.
#[derive(Debug, Default)]
pub struct ReadableMark(CachePadded<AtomicUsize>);

impl ReadableMark {
    /// Returns the mark. All bytes below it are readable.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the mark to the thread that moves it, which needs no ordering with other threads.
    #[inline]
    pub fn get_own(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the mark to `end`, past bytes that this thread has stored. It never moves down.
    #[inline]
    pub fn raise(&self, end: usize) {
        self.0.fetch_max(end, Ordering::AcqRel);
    }

    /// [`ReadableMark::raise`] for the only thread that moves the mark: a plain store.
    #[inline]
    pub fn raise_alone(&self, end: usize) {
        self.0.store(end, Ordering::Release);
    }

    /// Resets the mark to 0. `&mut self` proves that nobody else uses it.
    pub fn reset(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
