//! A region as a reader sees it that follows the appender.

use super::Region;
use std::io;
use std::sync::Arc;

/// A region with a saved readable mark. A reader that closely follows the appender would fetch the
/// mark's cache line for every record if it loaded the mark itself.
#[derive(Debug)]
pub struct Window {
    region: Arc<Region>,
    mark: usize,
}

impl Window {
    /// A window up to the current readable mark.
    pub fn new(region: Arc<Region>) -> Window {
        let mark = region.readable();
        Window { region, mark }
    }

    /// Loads the mark again.
    pub fn refresh(&mut self) {
        self.mark = self.region.readable();
    }

    /// The region.
    #[inline]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// As [`Region::slice_again`].
    #[inline]
    pub fn slice_again(&self, start: usize, len: usize) -> Option<&[u8]> {
        self.region.untouched_below(self.mark, start, len)
    }

    /// As [`Region::run`].
    #[inline]
    pub fn run(&self, start: usize, len: usize) -> io::Result<&[u8]> {
        self.region.run_below(self.mark, start, len)
    }
}
