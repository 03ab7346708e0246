//! Which segments are due, by Kafka's rules: by their largest time, and by the bytes of the
//! partition.

use crate::disk::Disk;
use crate::engine::partition_log::segments::confirm::confirm;
use crate::engine::partition_log::segments::index::TimeIndex;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::engine::partition_log::write::ends::Past;
use crate::engine::service::retention::{Limits, Times};
use crate::error::Result;
use std::sync::Arc;

/// The largest time of a segment, in ms. If its messages have no times, that of the file's last
/// change.
#[derive(Clone, Copy, Debug)]
enum Newest {
    /// The time.
    At(i64),
    /// The time is not earlier.
    NotBefore(i64),
    /// It is unknown.
    Unknown,
}

/// The age of the first segment that was not due, kept so that the segment is read only once.
#[derive(Clone, Debug)]
pub struct Known {
    segment: Arc<Segment>,
    newest: Newest,
}

/// The offset before which all messages of a partition are due, at most `keep`; the first offset if
/// none are.
///
/// # Errors
///
/// Errors of reading.
pub fn due(
    disk: &dyn Disk,
    limits: &Limits,
    times: Times,
    past: &Past,
    keep: u64,
    known: &mut Option<Known>,
) -> Result<u64> {
    let (mut until, mut len) = (past.start, past.len);
    let is_in_time = limits.is_in_time(times.wall_ms);
    for (segment, next) in &past.segments {
        if *next > past.start {
            // As in Kafka, at least the limit's bytes are left.
            let is_too_much = |limit: u64| len.saturating_sub(segment.len) >= limit;
            let is_due = is_in_time
                && *next <= keep
                && (limits.bytes.is_some_and(is_too_much)
                    || match limits.age_ms {
                        None => false,
                        Some(age) => is_old(disk, segment, times.believed_ms, age, known)?,
                    });
            if !is_due {
                break;
            }
            until = *next;
        }
        len -= segment.len;
    }
    Ok(until)
}

/// What is known of a last segment, so that it is read once and only while nobody appends to it.
#[derive(Clone, Debug)]
pub struct Quiet {
    segment: Arc<Segment>,
    known: Option<Known>,
}

/// Whether the last segment of a partition, which ends before the offset `next`, is due by its age.
/// False if the segment has grown since the last call.
///
/// # Errors
///
/// Errors of reading.
pub fn is_last_due(
    disk: &dyn Disk,
    limits: &Limits,
    times: Times,
    (last, next): (Segment, u64),
    keep: u64,
    quiet: &mut Option<Quiet>,
) -> Result<bool> {
    let Some(age_ms) = limits.age_ms.filter(|_| next <= keep) else {
        return Ok(false);
    };
    match quiet {
        Some(quiet) if *quiet.segment == last => {
            let known = &mut quiet.known;
            Ok(limits.is_in_time(times.wall_ms)
                && is_old(disk, &quiet.segment, times.believed_ms, age_ms, known)?)
        }
        _ => {
            *quiet = Some(Quiet {
                segment: Arc::new(last),
                known: None,
            });
            Ok(false)
        }
    }
}

/// Whether the largest time of a segment is more than `age_ms` ago. A time in the future keeps it.
fn is_old(
    disk: &dyn Disk,
    segment: &Arc<Segment>,
    now_ms: i64,
    age_ms: i64,
    known: &mut Option<Known>,
) -> Result<bool> {
    let is_old = |time: i64| now_ms.saturating_sub(time) > age_ms;
    let same = known.as_ref().filter(|it| it.segment == *segment);
    let newest = match same.map(|it| it.newest) {
        Some(Newest::NotBefore(time)) if is_old(time) => newest(disk, segment)?,
        Some(newest) => newest,
        None => match indexed(disk, segment)? {
            Some(time) if !is_old(time) => Newest::NotBefore(time),
            _ => newest(disk, segment)?,
        },
    };
    *known = Some(Known {
        segment: Arc::clone(segment),
        newest,
    });
    Ok(match newest {
        Newest::At(time) => is_old(time),
        Newest::NotBefore(_) | Newest::Unknown => false,
    })
}

/// The last time of the time index, if a batch has it. An index may lack later ones.
fn indexed(disk: &dyn Disk, segment: &Arc<Segment>) -> Result<Option<i64>> {
    let Some(times) = TimeIndex::open(disk, segment)? else {
        return Ok(None);
    };
    let Some(entry) = times.last()? else {
        return Ok(None);
    };
    let mut reader = Reader::open(disk, segment)?;
    let found = confirm(disk, &mut reader, entry)?;
    Ok(found.map(|_| entry.timestamp))
}

/// Reads the headers of a segment.
fn newest(disk: &dyn Disk, segment: &Arc<Segment>) -> Result<Newest> {
    let mut walk = Walk::new(Reader::open(disk, segment)?, 0);
    let mut newest = -1;
    loop {
        match walk.next(disk)? {
            Step::Batch(found) => newest = found.header.max_timestamp.max(newest),
            Step::Damage(..) => {}
            Step::End => break,
        }
    }
    Ok(match newest {
        -1 => match disk.modified_ms(&segment.path)? {
            Some(modified) => Newest::At(modified),
            None => Newest::Unknown,
        },
        newest => Newest::At(newest),
    })
}
