//! The producers of a partition that a broker has written. When a broker serves the partition
//! again, it must know the last sequence of each and which transactions are open.
//!
//! A broker reads the newest [snapshot] and the batches after it. It first removes snapshots at
//! offsets where no segment begins, except one after the base of the last segment. After a clean
//! stop, if there is no snapshot, it takes the partition for one without producers. Once retention
//! or compaction has removed batches, only a snapshot still has their producers. So there is always
//! one that a broker accepts:
//!
//! | when | for which offset |
//! |---|---|
//! | the partition is opened | its end |
//! | a segment is begun, before any complete one can be removed | its base |
//! | the store is closed | its end |
//! Forebay appends no batches of producers, so all these snapshots have the same contents until the
//! store is closed. A partition without snapshots and without batches of producers gets none.

use super::ends::Ends;
use crate::disk::{Disk, Entry, replace};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::snapshot::{self, Producer, Producers};
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::error::Result;
use crate::record::kafka::varint::Reader as Fields;
use crate::record::kafka::{Header, Opened, TransactionMarker, rebuild};
use std::path::Path;
use std::sync::Arc;

/// Finds the producers at the end of a partition that was opened, for later calls of [`keep`].
/// `entries`: those of its folder, before it was opened. `has_any`: whether it has batches of
/// producers, even if they are in no snapshot. Removes the snapshots that a broker would remove.
///
/// # Errors
///
/// Those of the disk.
pub fn find(disk: &dyn Disk, ends: &Ends, entries: &[Entry], has_any: bool) -> Result<()> {
    let (mut segments, last) = ends.all_segments();
    segments.extend(last);
    let end = ends.next_offset(false);
    let mut offsets = snapshot::offsets(entries);
    let after = offsets.split_off(offsets.partition_point(|at| *at <= end));
    remove_after_end(disk, &ends.folder, &after)?;
    if offsets.is_empty() && !has_any {
        ends.know_snapshot(None);
        return Ok(());
    }
    let newest = snapshot::newest(disk, &ends.folder, &offsets)?;
    let (from, mut producers) = newest.unwrap_or_default();
    let is_at_end = from == end && !offsets.is_empty();
    if !is_at_end {
        replay(disk, &segments, from, &mut producers)?;
    }
    let bytes: Arc<[u8]> = snapshot::bytes_of(&producers).into();
    if !is_at_end {
        replace(disk, &snapshot::path_at(&ends.folder, end), &bytes)?;
    }
    ends.know_snapshot(Some(bytes));
    let is_base = |at: u64| segments.iter().any(|segment| segment.base == at);
    for stray in offsets.into_iter().filter(|at| *at != end && !is_base(*at)) {
        disk.unlink(&snapshot::path_at(&ends.folder, stray))?;
    }
    Ok(())
}

/// Removes snapshots at these offsets. Once the log has grown past its offset, such a snapshot
/// would list batches that no longer exist.
fn remove_after_end(disk: &dyn Disk, folder: &Path, offsets: &[u64]) -> Result<()> {
    for offset in offsets {
        disk.unlink(&snapshot::path_at(folder, *offset))?;
    }
    match offsets {
        [] => Ok(()),
        _ => disk.sync_directory(folder),
    }
}

/// Writes the snapshot at an offset that is a base or the end, if there is none and the partition
/// has producers. Durable on return.
///
/// # Errors
///
/// Those of the disk.
pub fn keep(disk: &dyn Disk, ends: &Ends, offset: u64) -> Result<()> {
    let Some(bytes) = ends.snapshot(disk)? else {
        return Ok(());
    };
    let path = snapshot::path_at(&ends.folder, offset);
    match disk.stat(&path)? {
        Some(_) => Ok(()),
        None => replace(disk, &path, &bytes),
    }
}

/// Adds what the batches from an offset on say of producers.
fn replay(
    disk: &dyn Disk,
    segments: &[Arc<Segment>],
    from: u64,
    producers: &mut Producers,
) -> Result<()> {
    let after = segments.partition_point(|segment| segment.base <= from);
    for segment in segments.iter().skip(after.saturating_sub(1)) {
        let mut reader = Reader::open(disk, segment)?;
        let position = match segment.base < from {
            true => reader.seek(disk, from)?,
            false => 0,
        };
        let mut walk = Walk::new(reader, position);
        loop {
            let found = match walk.next(disk)? {
                Step::Batch(found) => found,
                Step::Damage(..) => continue,
                Step::End => break,
            };
            if found.header.producer_id < 0 || found.header.last_offset() < from {
                continue;
            }
            let bytes = walk.batch(&found)?;
            if found.header.has_crc_of(&bytes) {
                take(producers, &found.header, bytes);
            }
        }
    }
    Ok(())
}

/// Adds what a batch of a producer says.
fn take(producers: &mut Producers, header: &Header, batch: Vec<u8>) {
    let epoch = rebuild::producer_epoch(&batch);
    let known = producers.get(&header.producer_id).copied();
    let known = known.filter(|it| it.epoch == epoch).unwrap_or(Producer {
        epoch,
        sequence: -1,
        offset: -1,
        delta: 0,
        time: -1,
        coordinator: known.map_or(-1, |it| it.coordinator),
        open: known.map_or(-1, |it| it.open),
    });
    let taken = match header.is_control() {
        true => marker(batch).map(|(coordinator, time)| Producer {
            time,
            coordinator,
            open: -1,
            ..known
        }),
        false => {
            let last = header.last_offset().cast_signed();
            let first = header.first_offset().cast_signed();
            // Both are of one batch, which states the difference in 4 bytes.
            let delta = i32::try_from(last.saturating_sub(first)).unwrap_or_default();
            let opens = header.is_transactional() && known.open < 0;
            Some(Producer {
                sequence: last_sequence(rebuild::base_sequence(&batch), delta),
                offset: last,
                delta,
                time: header.max_timestamp,
                open: if opens { first } else { known.open },
                ..known
            })
        }
    };
    if let Some(taken) = taken {
        producers.insert(header.producer_id, taken);
    }
}

/// The sequence of the last record of a batch: after the highest number comes 0.
fn last_sequence(first: i32, delta: i32) -> i32 {
    match first {
        ..0 => -1,
        0.. => first.wrapping_add(delta) & i32::MAX,
    }
}

/// The epoch of the coordinator and the time in a marker; `None` for another control batch, and for
/// one that compaction has emptied.
fn marker(batch: Vec<u8>) -> Option<(i32, i64)> {
    let mut opened = Opened::open(batch, true).ok()?;
    let record = opened.next().ok()??;
    TransactionMarker::of_key(record.key)?;
    let mut value = Fields::new(record.value.unwrap_or_default());
    let _version = value.i16();
    Some((value.i32().unwrap_or(-1), record.timestamp))
}
