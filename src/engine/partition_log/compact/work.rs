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
    given_up: Option<Error>,
}

impl Known {
    /// A partition that was given up because of this error.
    pub(super) fn given_up(error: &Error) -> Known {
        Known {
            given_up: Some(again(error)),
            ..Known::default()
        }
    }

    /// Gives the partition up if every pass would meet this error.
    pub(super) fn take(&mut self, error: &Error) {
        if is_lasting(error) {
            self.given_up = Some(again(error));
        }
    }

    /// Why nothing is compacted until the store is opened again, or the partition is repaired: a
    /// segment is damaged, its copy would be too long, or a replacement is not complete.
    pub(super) fn why_given_up(&self) -> Option<Error> {
        self.given_up.as_ref().map(again)
    }
}

/// Whether every pass over the partition would meet an error.
fn is_lasting(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. } | Error::Unsupported { .. })
}

/// Whether an error of a pass says nothing about other partitions: its own may be given up, or has
/// a message that is refused.
pub(super) fn is_of_partition(error: &Error) -> bool {
    is_lasting(error) || matches!(error, Error::InvalidOption { .. })
}

/// The error that tells another caller why a partition was given up.
fn again(error: &Error) -> Error {
    match error {
        Error::Corrupt {
            path,
            position,
            reason,
        } => Error::corrupt(path, *position, reason),
        Error::Unsupported { what } => Error::Unsupported { what: what.clone() },
        Error::Failed { reason, .. } => Error::Failed {
            reason: reason.clone(),
            appended: false,
        },
        other => Error::Failed {
            reason: format!("replacing segments did not end: {}", other.reason()),
            appended: false,
        },
    }
}
