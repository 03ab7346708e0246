//! The first message at or after a time. Times may decrease from message to message. As in a
//! broker, the first in offset order counts.

use super::Shared;
use super::cursor::QueueCursor;
use super::folder::View;
use super::partition::Partition;
use super::segments::confirm::confirm;
use super::segments::index::TimeIndex;
use super::segments::reader::Reader;
use super::segments::segment::Segment;
use super::segments::walk::{Step, Walk};
use crate::disk::Disk;
use crate::engine::{Check, Cursor, Filter, Rows};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// How often the search begins again because a segment was replaced.
const RESTARTS_MAX: u32 = 16;

/// Offset of the first message of a view at or after `time`; its end if there is none.
pub(super) fn offset_at(
    shared: &Arc<Shared>,
    partition: &Arc<Partition>,
    view: &View,
    time: i64,
) -> Result<u64> {
    let mut view = view.clone();
    let mut restarts = 0;
    loop {
        match search(shared, partition, &view, time) {
            // The broker has deleted or renamed it since it was listed.
            Err(error) if error.is_not_found() && restarts < RESTARTS_MAX => restarts += 1,
            found => return found,
        }
        let (segments, end) = partition.folder.list_again(&*shared.disk)?;
        view.segments = segments;
        view.bounds.end = view.bounds.end.min(end).max(view.bounds.start);
    }
}

fn search(shared: &Arc<Shared>, partition: &Arc<Partition>, view: &View, time: i64) -> Result<u64> {
    let Range { start, end } = view.bounds;
    let after = view
        .segments
        .partition_point(|segment| segment.base <= start);
    let last = view.segments.len().saturating_sub(1);
    let disk = &*shared.disk;
    let segments = view.segments.iter().enumerate();
    for (number, segment) in segments.skip(after.saturating_sub(1)) {
        // The last segment grows.
        let known = match number < last {
            true => Some(disk.modified_ms(&segment.path)?),
            false => None,
        };
        if known.is_some_and(|modified| partition.newest.is_before(segment, modified, time)) {
            continue;
        }
        let newest = match search_in(shared, partition, view, segment, time)? {
            Searched::Found(offset) => return Ok(offset.min(end)),
            Searched::Earlier(newest) => newest,
        };
        if let Some(modified) = known {
            partition
                .newest
                .add(&view.segments, segment, modified, newest);
        }
    }
    Ok(end)
}

/// What a segment has at or after a time.
enum Searched {
    /// The first message, or one after the view, has this offset.
    Found(u64),
    /// No message that readers see. The largest time in the segment is this.
    Earlier(i64),
}

fn search_in(
    shared: &Arc<Shared>,
    partition: &Arc<Partition>,
    view: &View,
    segment: &Arc<Segment>,
    time: i64,
) -> Result<Searched> {
    let disk = &*shared.disk;
    let Range { start, end } = view.bounds;
    let mut reader = Reader::open(disk, segment)?;
    let (position, mut newest) = begin(disk, &mut reader, time)?;
    let mut walk = Walk::new(reader, position);
    loop {
        // The old formats do not state the first offset of a batch.
        let first_possible = start.max(walk.next_offset);
        match walk.next(disk)? {
            Step::Batch(found) => {
                let header = found.header;
                newest = newest.max(header.max_timestamp);
                let offsets = header.first_offset().max(first_possible)..header.last_offset() + 1;
                if header.max_timestamp < time || header.is_control() || offsets.is_empty() {
                    continue;
                }
                if offsets.start >= end {
                    return Ok(Searched::Found(end));
                }
                if let Some(offset) = first(shared, partition, view, offsets, time)? {
                    return Ok(Searched::Found(offset));
                }
            }
            Step::Damage(..) => {}
            Step::End => return Ok(Searched::Earlier(newest)),
        }
    }
}

/// Where the search in a segment begins, and the greatest time before that. The last entry of an
/// index says nothing of what follows its batch: later entries may be lost, or not written yet.
fn begin(disk: &dyn Disk, reader: &mut Reader, time: i64) -> Result<(u64, i64)> {
    let before = match TimeIndex::open(disk, &reader.segment)? {
        Some(times) => times.before(time)?,
        None => None,
    };
    let begin = match before {
        Some(entry) => confirm(disk, reader, entry)?.map(|at| (at, entry.timestamp)),
        None => None,
    };
    Ok(begin.unwrap_or((0, i64::MIN)))
}

/// Offset of the first message with these offsets at or after `time`.
fn first(
    shared: &Arc<Shared>,
    partition: &Arc<Partition>,
    view: &View,
    offsets: Range<u64>,
    time: i64,
) -> Result<Option<u64>> {
    let mut cursor = QueueCursor::new(
        Arc::clone(shared),
        Arc::clone(partition),
        view.clone(),
        offsets,
        Filter::default(),
        Check::Full,
    );
    let mut rows = Rows::default();
    while cursor.refill(1024, &mut rows)? {
        let records = rows.rows.iter().filter_map(|row| rows.record(row));
        let mut late = records.filter(|record| record.store_timestamp() >= time);
        if let Some(record) = late.next() {
            return Ok(u64::try_from(record.queue_offset()).ok());
        }
    }
    Ok(None)
}
