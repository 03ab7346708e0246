//! One pass over a partition: the map of the dirty segments, then a copy of all segments that it
//! covers.
//!
//! ```text
//!   clean            dirty                   not complete, or too young
//!   [seg][seg][seg]  [seg][seg][seg][seg]    [seg]
//!                    ----- map ---->|end     |bound
//!   [ copy ][ copy       ][ copy    ]
//! ```
//!
//! If the keys do not fit into the map, a pass ends before the bound, and another begins there.
//! Offsets never change.

use super::copy::{Copier, discard};
use super::keep::Knowledge;
use super::offsets::OffsetMap;
use super::producers::Producers;
use super::rules::CompactRules;
use super::source::Complete;
use super::stop::{Done, Stop};
use super::transactions::Transactions;
use crate::disk::Disk;
use crate::engine::partition_log::segments::names::{beside, with_suffix};
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::write::ends::Ends;
use crate::engine::partition_log::write::indexes::{OFFSETS, TIMES};
use crate::engine::partition_log::write::rules::{OFFSET_ENTRY, Rules, TIME_ENTRY};
use crate::engine::partition_log::write::swap;
use crate::engine::{Compacted, Keyless};
use crate::error::{Error, Result};
use std::ops::Range;
use std::path::Path;

/// A segment holds offsets up to this far from its base.
const SPAN_MAX: u64 = i32::MAX as u64;

/// What a pass works with.
pub struct Pass<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// The rules of the store.
    pub rules: &'a Rules,
    /// Those of compaction.
    pub compact: &'a CompactRules,
    /// The ends of the partition, as readers see them.
    pub ends: &'a Ends,
    /// The segments up to the bound. Everything in them, and their indexes, is durable, and the
    /// recovery point is not before their end.
    pub complete: &'a Complete,
    /// All segments: later ones may say how transactions ended.
    pub ahead: &'a Complete,
    /// What happens to messages without a key that were not compacted before.
    pub keyless: Keyless,
    /// The time.
    pub now_ms: i64,
    /// Called with bytes that were read. An error ends the pass.
    pub pace: &'a mut dyn FnMut(u64) -> Done<()>,
    /// Whether a replacement has begun and is not complete.
    pub is_swapping: bool,
}

impl Pass<'_> {
    /// Compacts the segments, given the first dirty offset. Returns the next first dirty offset,
    /// and what was done. Replaced segments are durable.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if a segment is damaged; [`Error::InvalidOption`] for a message without a
    /// key that is refused; errors of the disk, and of [`Pass::pace`]. The segments that were
    /// replaced before stay so.
    pub fn run(&mut self, first_dirty: u64) -> Done<(u64, Compacted)> {
        let complete = self.complete;
        let map = self.build(first_dirty)?;
        let end = map.latest().map_or(first_dirty, |latest| latest + 1);
        let clean = complete.segments.iter().rfind(|it| it.base < first_dirty);
        let clean = match clean {
            None => None,
            Some(segment) => self.disk.modified_ms(&segment.path)?,
        };
        let retention = self.compact.delete_retention_ms;
        let mut copier = Copier {
            disk: self.disk,
            rules: self.rules,
            complete,
            know: Knowledge {
                map: &map,
                end,
                now_ms: self.now_ms,
                delete_retention_ms: retention,
                keeps_old_tombstones: true,
            },
            old_tombstones_from: clean.map_or(0, |clean| clean.saturating_sub(retention)),
            transactions: Transactions::new(self.ahead),
            producers: Producers::new(self.ends, self.now_ms),
            counts: Compacted::default(),
            pace: self.pace,
        };
        let groups = groups(self.disk, self.rules, complete, end)?;
        for group in groups {
            let replaced = complete.segments.get(group.clone()).unwrap_or_default();
            let copied = copier.copy(group);
            if let (Err(Stop::Failed(_)), Some(first)) = (&copied, replaced.first()) {
                // The next opening removes what this cannot.
                let _ = discard(self.disk, &with_suffix(&first.path, ".cleaned"));
            }
            let cleaned = copied?;
            self.is_swapping = true;
            swap::replace(self.disk, self.ends, &cleaned, replaced)?;
            self.is_swapping = false;
        }
        Ok((end, copier.counts))
    }

    /// Maps the keys from `first_dirty` on, until the end or until the map is full.
    fn build(&mut self, first_dirty: u64) -> Done<OffsetMap> {
        let complete = self.complete;
        let dirty = complete.end.saturating_sub(first_dirty);
        let mut map = OffsetMap::new(dirty, self.compact.dedupe_buffer_size);
        let mut transactions = Transactions::new(self.ahead);
        let first = complete.number_of(first_dirty);
        let mut hashes = Vec::new();
        for number in first..complete.segments.len() {
            let limit = complete.limit(number);
            if limit <= first_dirty {
                continue;
            }
            let Some(mut source) = complete.source(self.disk, number, first_dirty)? else {
                break;
            };
            while let Some(found) = source.next(self.disk)? {
                let header = &found.header;
                let is_data = header.last_offset() >= first_dirty && !header.is_control();
                if is_data && !transactions.is_aborted(self.disk, header)? {
                    let opened = source.open_batch(&found, source.bytes(&found)?);
                    let mut opened = opened?;
                    hashes.clear();
                    while let Some(entry) =
                        opened.next().map_err(|flaw| source.flawed(&found, flaw))?
                    {
                        let is_dirty = entry.offset >= first_dirty;
                        match entry.key.filter(|_| is_dirty) {
                            Some(key) => hashes.push((map.hash(key), entry.offset)),
                            None if is_dirty && self.keyless == Keyless::Refuse => {
                                return Err(refused(&self.ends.folder, entry.offset).into());
                            }
                            None => {}
                        }
                    }
                    if !map.put_all(&hashes) {
                        return Ok(map);
                    }
                    (self.pace)(header.len.into())?;
                }
                if header.last_offset() >= first_dirty {
                    map.cover(header.last_offset());
                }
            }
            // There are no offsets between the last batch of a segment and the next segment.
            map.cover(limit - 1);
        }
        Ok(map)
    }
}

/// The error for a message without a key.
fn refused(folder: &Path, offset: u64) -> Error {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let reason = format!("message {offset} of {name} has no key, and would be dropped");
    Error::option("drop_keyless", "False", reason)
}

/// Groups the segments that begin before `end` so that each group fits one segment.
fn groups(
    disk: &dyn Disk,
    rules: &Rules,
    complete: &Complete,
    end: u64,
) -> Result<Vec<Range<usize>>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut sums = (0, 0, 0);
    for (number, segment) in complete.segments.iter().enumerate() {
        if segment.base >= end {
            break;
        }
        let own = (
            segment.len,
            len_of(disk, segment, OFFSETS)?,
            len_of(disk, segment, TIMES)?,
        );
        let with = (sums.0 + own.0, sums.1 + own.1, sums.2 + own.2);
        let fits = with.0 <= rules.segment_bytes
            && with.1 <= rules.offsets_max * OFFSET_ENTRY
            && with.2 <= rules.times_max * TIME_ENTRY;
        let last_offset = complete.limit(number).saturating_sub(1);
        match groups.last_mut() {
            Some(group)
                if fits
                    && complete
                        .segments
                        .get(group.start)
                        .is_some_and(|first| last_offset - first.base <= SPAN_MAX) =>
            {
                group.end = number + 1;
                sums = with;
            }
            _ => {
                groups.push(number..number + 1);
                sums = own;
            }
        }
    }
    Ok(groups)
}

fn len_of(disk: &dyn Disk, segment: &Segment, ending: &str) -> Result<u64> {
    let entry = disk.stat(&beside(&segment.path, ending))?;
    Ok(entry.map_or(0, |entry| entry.len))
}
