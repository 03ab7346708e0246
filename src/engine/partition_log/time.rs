//! The first message at or after a time. Times may decrease from message to message. As in a
//! broker, the first in offset order counts.

use super::Shared;
use super::cursor::QueueCursor;
use super::folder::View;
use super::partition::Partition;
use super::segments::confirm::confirm;
use super::segments::index::TimeIndex;
use super::segments::reader::Reader;
use super::segments::walk::{Step, Walk};
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
    for (number, segment) in view
        .segments
        .iter()
        .enumerate()
        .skip(after.saturating_sub(1))
    {
        let mut reader = Reader::open(disk, segment)?;
        let Some(position) = begin(shared, &mut reader, time, number == last)? else {
            continue;
        };
        let mut walk = Walk::new(reader, position);
        loop {
            // The old formats do not state the first offset of a batch.
            let first_possible = start.max(walk.next_offset);
            match walk.next(disk)? {
                Step::Batch(found) => {
                    let header = found.header;
                    let offsets =
                        header.first_offset().max(first_possible)..header.last_offset() + 1;
                    if header.max_timestamp < time || header.is_control() || offsets.is_empty() {
                        continue;
                    }
                    if offsets.start >= end {
                        return Ok(end);
                    }
                    if let Some(offset) = first(shared, partition, view, offsets, time)? {
                        return Ok(offset);
                    }
                }
                Step::Damage(..) => {}
                Step::End => break,
            }
        }
    }
    Ok(end)
}

/// Where the search in a segment begins; `None` if all its messages are earlier. Only the time
/// index of a segment that is complete covers all of it.
fn begin(shared: &Shared, reader: &mut Reader, time: i64, is_last: bool) -> Result<Option<u64>> {
    let disk = &*shared.disk;
    let Some(times) = TimeIndex::open(disk, &reader.segment)? else {
        return Ok(Some(0));
    };
    if !is_last
        && let Some(entry) = times.last()?.filter(|entry| entry.timestamp < time)
        && confirm(disk, reader, entry)?.is_some()
    {
        return Ok(None);
    }
    let begin = match times.before(time)? {
        Some(entry) => confirm(disk, reader, entry)?,
        None => None,
    };
    Ok(Some(begin.unwrap_or(0)))
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
