//! How many bytes messages have.

use super::PartitionLog;
use super::folder::View;
use super::partition::Partition;
use super::segments::reader::Reader;
use crate::disk::Disk;
use crate::engine::{Check, Cursor, Filter, Rows};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// How many messages of a range fit into `bytes`; see [`crate::engine::Engine::fit`].
pub(super) fn fit(
    engine: &PartitionLog,
    found: (Arc<Partition>, View),
    range: Range<u64>,
    bytes: u64,
) -> Result<(u64, u64)> {
    let end = range.end;
    let all = Filter::default();
    let mut cursor = engine.cursor_over(found, range, &all, Check::Structure);
    let mut rows = Rows::default();
    let mut taken = 0;
    while cursor.refill(1024, &mut rows)? {
        for row in &rows.rows {
            let size = u64::from(row.layout.total_len());
            if size > bytes - taken {
                let offset = rows.record(row).map(|record| record.queue_offset());
                return Ok((offset.map_or(end, i64::cast_unsigned), taken));
            }
            taken += size;
        }
    }
    Ok((end, taken))
}

/// Stored bytes of the batches from an offset on, without reading messages. The result may be too
/// large by up to one interval of the offset index, or by what was appended since the index was
/// written.
pub(super) fn bytes_from(disk: &dyn Disk, view: &View, offset: u64) -> Result<u64> {
    let segments = &view.segments;
    let first = segments.partition_point(|it| it.base <= offset);
    let first = first.saturating_sub(1);
    let mut bytes: u64 = segments.iter().skip(first).map(|it| it.len).sum();
    if let Some(segment) = segments.get(first).filter(|it| it.base < offset) {
        bytes -= Reader::open(disk, segment)?
            .seek(disk, offset)?
            .min(segment.len);
    }
    Ok(bytes)
}
