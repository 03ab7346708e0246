//! Sorts the segments of a partition that recovery finds: those that may have messages, those that
//! have lost theirs, and those that never had any, which failed appends and power losses leave.

use super::indexes::{OFFSETS, TIMES};
use super::opening::{Known, Opening};
use crate::engine::partition_log::segments::emptied::{had_messages, has_data};
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::Result;
use crate::plant::{Bug, planted};
use std::collections::BTreeMap;
use std::path::Path;

/// The segments that recovery finds, in order.
#[derive(Default)]
pub(super) struct Found {
    /// Those that may have messages.
    pub(super) used: Vec<Segment>,
    /// The used ones that have lost all messages that were durable in them: the base of each, and
    /// the offset before which it ended.
    pub(super) emptied: BTreeMap<u64, u64>,
    /// Those without messages.
    pub(super) empty: Vec<Segment>,
}

impl Opening<'_> {
    /// Sorts the segments. In a partition of Forebay, a segment without messages was left by a
    /// failed append or a power loss, unless it is the first one or begins at or before the first
    /// offset. Removes the segments that begin at the limit or later.
    pub(super) fn without_strays(
        &self,
        folder: &Path,
        segments: Vec<Segment>,
        known: Known,
    ) -> Result<Found> {
        let (mut found, mut beyond) = (Found::default(), Vec::new());
        let mut segments = segments.into_iter().peekable();
        while let Some(segment) = segments.next() {
            let later = segments.peek().map(|later| later.base);
            let later = later.filter(|later| *later < known.limit);
            let is_first = found.used.is_empty() && found.empty.is_empty() && beyond.is_empty();
            let is_begun = segment.base <= known.start && !planted(Bug::EndAtRemoved);
            let is_used = is_first || !self.is_own || is_begun;
            if segment.base >= known.limit {
                beyond.push(segment);
            } else if self.is_emptied(&segment, later, known)? {
                let end = later.unwrap_or(known.point);
                found.emptied.insert(segment.base, end);
                found.used.push(segment);
            } else if is_used || has_data(&**self.disk, &segment)? {
                found.used.push(segment);
            } else {
                found.empty.push(segment);
            }
        }
        self.remove(folder, beyond)?;
        Ok(found)
    }

    /// Whether a segment has lost all messages that were durable in it. The next one begins at the
    /// offset `later`.
    pub(super) fn is_emptied(
        &self,
        segment: &Segment,
        later: Option<u64>,
        known: Known,
    ) -> Result<bool> {
        let disk = &**self.disk;
        let was_durable = segment.base < known.point
            // A segment that another one follows was durable.
            || later.is_some() && !self.are_points_known;
        if !was_durable || later.unwrap_or(known.point) <= known.start {
            return Ok(false);
        }
        Ok(!has_data(disk, segment)? && (later.is_none() || had_messages(disk, segment)?))
    }

    /// Removes segments, the last first, and then makes that durable.
    pub(super) fn remove(&self, folder: &Path, segments: Vec<Segment>) -> Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        for segment in segments.iter().rev() {
            for ending in [OFFSETS, TIMES, ".txnindex"] {
                let path = beside(&segment.path, ending);
                if self.disk.stat(&path)?.is_some() {
                    self.disk.unlink(&path)?;
                }
            }
            self.disk.unlink(&segment.path)?;
        }
        self.disk.sync_directory(folder)
    }
}
