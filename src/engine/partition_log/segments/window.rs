//! The bytes of a file that were read last.

use crate::num::index;
use crate::region::Region;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a file that were read last.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Position of the first of them.
    pub(super) at: u64,
    /// Where in the memory they are.
    pub(super) bytes: Range<usize>,
    /// The memory, which is filled with zeros once only.
    pub(super) own: Vec<u8>,
    /// The memory instead, if it may be lent.
    pub(super) lent: Option<Arc<Region>>,
}

impl Window {
    /// The bytes that it has from a position on.
    #[inline]
    pub(super) fn ready(&self, position: u64) -> &[u8] {
        let memory = match &self.lent {
            None => &self.own,
            Some(region) => region.all_again().unwrap_or_default(),
        };
        let bytes = memory.get(self.bytes.clone()).unwrap_or_default();
        let start = position.checked_sub(self.at);
        start
            .and_then(|start| bytes.get(index(start)..))
            .unwrap_or_default()
    }

    pub(super) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}
