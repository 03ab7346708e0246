//! What compaction knows of the partitions.

use super::cleanable::DirtySegments;
use crate::engine::service::trusted_clock::TrustedClock;
use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) type Key = (Arc<str>, u32);

/// What is known of the partitions.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// `None` before the checkpoint was read.
    pub(super) first_dirty: Option<BTreeMap<(String, u32), u64>>,
    pub(super) known: BTreeMap<Key, Known>,
    pub(super) clock: TrustedClock,
}

impl Work {
    pub(super) fn first_dirty(&self, (topic, queue): &Key) -> Option<u64> {
        let known = self.first_dirty.as_ref()?;
        known.get(&(topic.to_string(), *queue)).copied()
    }

    pub(super) fn set_first_dirty(&mut self, (topic, queue): &Key, at: u64) {
        let known = self.first_dirty.get_or_insert_default();
        known.insert((topic.to_string(), *queue), at);
    }
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) dirty_segments: DirtySegments,
    /// Nothing is compacted until the store is opened again: a segment is damaged, or a replacement
    /// is not complete.
    pub(super) is_given_up: bool,
}

impl Known {
    /// What an error of reading or replacing segments means for later passes.
    pub(super) fn take(&mut self, error: &Error) {
        self.is_given_up |= matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. });
    }
}
