//! Updates what a broker keeps beside the log of a partition after recovery has checked the log, as
//! the broker's own recovery does.
//!
//! | file | what becomes of it |
//! |---|---|
//! | `leader-epoch-checkpoint` | loses epochs after the end, gets those of the checked batches |
//! | `<base>.txnindex` | is made from the log again, for each segment that was checked |

use super::files;
use crate::disk::Disk;
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::snapshot::snapshot;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::error::Result;
use crate::record::kafka::{Opened, TransactionMarker};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const TRANSACTIONS: &str = ".txnindex";

/// The log of a partition, after recovery.
pub struct Log<'a> {
    folder: &'a Path,
    segments: &'a [Segment],
    /// Number of the first segment that was checked.
    first: usize,
    /// The next offset.
    end: u64,
}

impl<'a> Log<'a> {
    /// A log by its folder, its segments, the number of the first segment that was checked, and the
    /// next offset.
    pub fn new(folder: &'a Path, segments: &'a [Segment], (first, end): (usize, u64)) -> Log<'a> {
        Log {
            folder,
            segments,
            first,
            end,
        }
    }
}

/// A transaction that was aborted, as an index has it.
struct Aborted {
    producer: i64,
    first: u64,
    marker: u64,
    /// The first offset of the transactions that are still open after the marker.
    stable: u64,
}

/// Updates the files beside a log to match it. `is_own`: Forebay alone wrote what was checked, so
/// it has no transactions and no epochs of other leaders. Durable on return.
///
/// # Errors
///
/// Those of the disk.
pub fn follow(disk: &dyn Disk, log: &Log<'_>, is_own: bool) -> Result<()> {
    let epochs = match is_own {
        true => Vec::new(),
        false => {
            let checked = log.segments.get(log.first..).unwrap_or_default();
            index_transactions(disk, log, checked)?;
            epochs(disk, checked.iter())?
        }
    };
    files::follow_epochs(disk, log.folder, &epochs, log.end)
}

/// Each epoch of these segments, and the first offset that has it. Epochs rise.
pub(super) fn epochs<'a>(
    disk: &dyn Disk,
    segments: impl Iterator<Item = &'a Segment>,
) -> Result<Vec<(i32, u64)>> {
    let mut found: Vec<(i32, u64)> = Vec::new();
    for segment in segments {
        let mut walk = Walk::new(Reader::open(disk, &Arc::new(segment.clone()))?, 0);
        loop {
            match walk.next(disk)? {
                Step::Batch(it) => {
                    let epoch = it.header.leader_epoch;
                    if epoch >= 0 && found.last().is_none_or(|(last, _)| *last < epoch) {
                        found.push((epoch, it.header.first_offset()));
                    }
                }
                Step::Damage(..) => {}
                Step::End => break,
            }
        }
    }
    Ok(found)
}

/// Makes the transaction indexes of segments that were checked.
fn index_transactions(disk: &dyn Disk, log: &Log<'_>, checked: &[Segment]) -> Result<()> {
    if !has_transactions(disk, checked)? {
        return Ok(());
    }
    let (begin, mut open) = open_before(disk, log)?;
    for (number, segment) in log.segments.iter().enumerate().skip(begin) {
        let aborted = aborted_in(disk, segment, &mut open)?;
        if number < log.first {
            continue;
        }
        let path = beside(&segment.path, TRANSACTIONS);
        if aborted.is_empty() && disk.stat(&path)?.is_none() {
            continue;
        }
        let mut bytes = Vec::new();
        for it in aborted {
            bytes.extend(0_i16.to_be_bytes());
            bytes.extend(it.producer.to_be_bytes());
            for offset in [it.first, it.marker, it.stable] {
                bytes.extend(offset.to_be_bytes());
            }
        }
        disk.write_at(&path, 0, &bytes)?;
        disk.set_len(&path, bytes.len() as u64)?;
        disk.sync_file(&path)?;
    }
    disk.sync_directory(log.folder)
}

fn has_transactions(disk: &dyn Disk, segments: &[Segment]) -> Result<bool> {
    for segment in segments {
        if disk.stat(&beside(&segment.path, TRANSACTIONS))?.is_some() {
            return Ok(true);
        }
        let mut walk = Walk::new(Reader::open(disk, &Arc::new(segment.clone()))?, 0);
        loop {
            match walk.next(disk)? {
                Step::Batch(found) if found.header.is_transactional() => return Ok(true),
                Step::Batch(_) | Step::Damage(..) => {}
                Step::End => break,
            }
        }
    }
    Ok(false)
}

/// The newest segment with a snapshot at its base, at or before the first that was checked, and the
/// transactions open there: first offsets by producer. Without a snapshot, the first segment.
fn open_before(disk: &dyn Disk, log: &Log<'_>) -> Result<(usize, BTreeMap<i64, u64>)> {
    for number in (0..=log.first).rev() {
        let Some(segment) = log.segments.get(number) else {
            continue;
        };
        if let Some(open) = snapshot(disk, segment)? {
            let open = open.into_iter().filter(|(_, at)| *at < segment.base);
            return Ok((number, open.collect()));
        }
    }
    Ok((0, BTreeMap::new()))
}

/// The aborted transactions whose markers are in a segment. `open`: those open before it; updated.
fn aborted_in(
    disk: &dyn Disk,
    segment: &Segment,
    open: &mut BTreeMap<i64, u64>,
) -> Result<Vec<Aborted>> {
    let mut walk = Walk::new(Reader::open(disk, &Arc::new(segment.clone()))?, 0);
    let mut found = Vec::new();
    loop {
        let it = match walk.next(disk)? {
            Step::Batch(it) => it,
            Step::Damage(..) => continue,
            Step::End => return Ok(found),
        };
        let (header, producer) = (&it.header, it.header.producer_id);
        if header.is_transactional() && !header.is_control() {
            open.entry(producer).or_insert(header.first_offset());
        }
        if !header.is_control() {
            continue;
        }
        // A control record that is damaged or of another kind ends no transaction.
        let batch = Opened::open(walk.batch(&it)?, true);
        let marker = batch.and_then(|mut batch| batch.marker());
        if let Ok(Some(marker)) = marker
            && let Some(first) = open.remove(&producer)
            && marker == TransactionMarker::Abort
        {
            let at = header.last_offset();
            found.push(Aborted {
                producer,
                first,
                marker: at,
                stable: open.values().copied().min().unwrap_or(at + 1),
            });
        }
    }
}
