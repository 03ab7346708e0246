//! Compares the entries of the indexes of a segment with its batches, as Kafka's `DumpLogSegments`
//! does.

use super::Shared;
use super::partition::Partition;
use super::segments::index::{OffsetIndex, TimeEntry, TimeIndex};
use super::segments::names::beside;
use super::segments::reader::Reader;
use super::segments::segment::Segment;
use super::segments::walk::{FoundBatch, Step, Walk};
use super::write::indexes::{OFFSETS, TIMES};
use super::write::rules::TIME_ENTRY;
use crate::disk::Disk;
use crate::engine::{Damage, DamageKind, Verification};
use crate::error::Result;
use std::sync::Arc;

/// Compares each entry of a segment's offset index with the batch that it names. The index of the
/// last segment may have entries of batches that were appended since the check began.
pub(super) fn check_offsets(
    shared: &Shared,
    partition: &Partition,
    (segment, is_last): (&Arc<Segment>, bool),
    found: &mut Verification,
) -> Result<()> {
    let disk = &*shared.disk;
    let Some(entries) = OffsetIndex::open(disk, segment)? else {
        return Ok(());
    };
    let mut walk = Walk::new(Reader::open(disk, segment)?, 0);
    let mut batch = None;
    for number in 0..entries.len() {
        let entry = entries.get(number)?;
        if is_last && entry.position >= walk.reader.len {
            return Ok(());
        }
        while batch.is_none_or(|it: FoundBatch| it.position < entry.position) {
            match walk.next(disk)? {
                Step::Batch(next) => batch = Some(next),
                Step::Damage(..) => {}
                Step::End => break,
            }
        }
        let is_right = batch.is_some_and(|it| {
            it.position == entry.position && it.header.last_offset() == entry.last_offset
        });
        if is_right {
            found.queue_entries += 1;
            continue;
        }
        let path = beside(&segment.path, OFFSETS);
        let what = format!(
            "entry {number} of partition {}-{} leads to no batch that ends at offset {}",
            partition.topic, partition.queue, entry.last_offset
        );
        let bytes = number * 8..entries.len() * 8;
        found
            .damage
            .push(Damage::new(DamageKind::Index, path, bytes, what));
        return Ok(());
    }
    Ok(())
}

/// Compares each entry of a segment's time index with the batch that has its offset, and with the
/// entry before it. The index of the last segment may have entries of batches that were appended
/// since the check began.
pub(super) fn check_times(
    shared: &Shared,
    partition: &Partition,
    (segment, is_last): (&Arc<Segment>, bool),
    found: &mut Verification,
) -> Result<()> {
    let disk = &*shared.disk;
    let Some(entries) = TimeIndex::open(disk, segment)? else {
        return Ok(());
    };
    let mut batches = Batches::new(disk, segment, is_last)?;
    let mut before: Option<TimeEntry> = None;
    for number in 0..entries.len() {
        let entry = entries.get(number)?;
        let rises =
            before.is_none_or(|it| it.timestamp < entry.timestamp && it.offset <= entry.offset);
        let batch = batches.with(disk, entry.offset)?;
        let leads_home = batch.is_some_and(|it| it.header.max_timestamp == entry.timestamp);
        before = Some(entry);
        // The damaged bytes of a batch are reported, its entry is not.
        if rises && (leads_home || batches.is_damaged) {
            continue;
        }
        // A broker stores to a map of the file, so this may have read half of an entry.
        if is_last && entries.get(number)? != entry {
            return Ok(());
        }
        let what = match rises {
            true => format!(
                "entry {number} of partition {}-{}: no batch with offset {} has the time {}",
                partition.topic, partition.queue, entry.offset, entry.timestamp
            ),
            false => format!(
                "entry {number} of partition {}-{} is not after the one before it",
                partition.topic, partition.queue
            ),
        };
        let bytes = number * TIME_ENTRY..entries.len() * TIME_ENTRY;
        let path = beside(&segment.path, TIMES);
        let damage = Damage::new(DamageKind::Index, path, bytes, what);
        found.damage.push(damage);
        return Ok(());
    }
    Ok(())
}

/// A walk that finds batches by rising offsets.
struct Batches {
    walk: Walk,
    last: Option<FoundBatch>,
    /// Where the last batch ends.
    end: u64,
    /// Whether the walk has met damage.
    is_damaged: bool,
    /// Whether the segment may have grown.
    grows: bool,
}

impl Batches {
    fn new(disk: &dyn Disk, segment: &Arc<Segment>, grows: bool) -> Result<Batches> {
        let mut walk = Walk::new(Reader::open(disk, segment)?, 0);
        walk.is_complete = !grows;
        Ok(Batches {
            walk,
            last: None,
            end: 0,
            is_damaged: false,
            grows,
        })
    }

    /// The first batch that ends at `offset` or later.
    fn with(&mut self, disk: &dyn Disk, offset: u64) -> Result<Option<FoundBatch>> {
        if let Some(found) = self.find(disk, offset)? {
            return Ok(Some(found));
        }
        if !self.grows {
            return Ok(None);
        }
        // The batch of an entry is appended before the entry, perhaps since the segment was listed.
        let segment = Segment {
            len: u64::MAX,
            ..Segment::clone(&self.walk.reader.segment)
        };
        self.walk = Walk::new(Reader::open(disk, &Arc::new(segment))?, self.end);
        self.find(disk, offset)
    }

    fn find(&mut self, disk: &dyn Disk, offset: u64) -> Result<Option<FoundBatch>> {
        loop {
            if let Some(found) = self.last.filter(|it| it.header.last_offset() >= offset) {
                return Ok(Some(found));
            }
            match self.walk.next(disk)? {
                Step::Batch(next) => {
                    self.last = Some(next);
                    self.end = self.walk.position;
                }
                // A segment that is being written has zeros after its end.
                Step::Damage(bytes, _) => {
                    self.is_damaged |= !self.grows || bytes.end < self.walk.reader.len;
                }
                Step::End => return Ok(None),
            }
        }
    }
}
