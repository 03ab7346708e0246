//! Writes a segment again without its damaged batches, with the same replacement as compaction.

use super::compact::copy::{Output, discard};
use super::segments::names::{beside, with_suffix};
use super::segments::reader::Reader;
use super::segments::room::is_room;
use super::segments::segment::Segment;
use super::segments::walk::{FoundBatch, Step, Walk};
use super::verify::count;
use super::write::ends::Ends;
use super::write::parts::Parts;
use super::write::swap;
use crate::disk::{Disk, read_small};
use crate::engine::RepairStep;
use crate::engine::directory::salvage::Pieces;
use crate::error::Result;
use crate::record::Flaw;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// How many lost messages a step names.
const LOST_MAX: usize = 1000;
/// Longest transaction index.
const ABORTS_LEN_MAX: u64 = 64 << 20;

/// Bytes without a whole batch.
struct Hole {
    bytes: Range<u64>,
    reason: String,
    /// The offsets that they may have had.
    lost: Range<u64>,
    /// Whether all of it is batches whose headers could be read.
    has_headers: bool,
}

/// Saves what is damaged in a complete segment, and writes the segment again without it. `next`:
/// the base of the segment that follows. The caller has the right to change the partition. Durable
/// on return.
///
/// # Errors
///
/// Those of the disk.
pub(super) fn rewrite(
    parts: &Parts,
    (topic, queue): (&str, u32),
    ends: &Ends,
    segment: &Arc<Segment>,
    next: u64,
) -> Result<Vec<RepairStep>> {
    let disk = &*parts.disk;
    let mut output = Output::begin(disk, segment, &parts.rules)?;
    let copied = copy(disk, (segment, ends.start(), next), &mut output);
    let cleaned = with_suffix(&segment.path, ".cleaned");
    let holes = match copied {
        Ok(holes) if !holes.is_empty() => holes,
        done => {
            // The next opening removes what this cannot.
            let _ = discard(disk, &cleaned);
            return done.map(|_| Vec::new());
        }
    };
    let mut steps = Vec::with_capacity(holes.len());
    let log = segment.path.file_name().unwrap_or_default();
    let (log, folder) = (log.to_string_lossy(), segment.path.parent());
    let mut pieces = Pieces::new(disk, &segment.path, folder.unwrap_or(Path::new(".")));
    for hole in holes {
        let len = hole.bytes.end - hole.bytes.start;
        let name = format!("{log}.{:020}-{len}.damaged", hole.bytes.start);
        let saved = pieces.add(hole.bytes.clone(), &name)?;
        let lost = hole.lost.clone().take(LOST_MAX);
        let lost = lost.map(|offset| (topic.to_owned(), queue, offset));
        steps.push(RepairStep {
            path: segment.path.clone(),
            position: hole.bytes.start,
            length: len,
            what: format!("removed damaged bytes ({})", hole.reason),
            saved,
            lost: lost.collect(),
        });
    }
    pieces.sync()?;
    let aborts = read_small(disk, &beside(&segment.path, ".txnindex"), ABORTS_LEN_MAX)?;
    let one = std::slice::from_ref(segment);
    let copy = output.finish(disk, one, &aborts.unwrap_or_default())?;
    swap::replace(&*parts.disk, ends, &copy, one)?;
    Ok(steps)
}

/// Copies the whole batches of a segment. Returns what is between them.
fn copy(
    disk: &dyn Disk,
    (segment, start, next_base): (&Arc<Segment>, u64, u64),
    output: &mut Output,
) -> Result<Vec<Hole>> {
    let mut walk = Walk::new(Reader::open(disk, segment)?, 0);
    walk.is_complete = true;
    let mut holes = Holes {
        done: Vec::new(),
        open: None,
        next: segment.base.max(start),
    };
    loop {
        match walk.next(disk)? {
            Step::Batch(batch) => {
                let bytes = batch.position..walk.position;
                let raw = walk.batch(&batch)?;
                let flaw = match count(raw.clone(), &batch) {
                    Ok(_) if batch.header.last_offset() >= next_base => Flaw::Field("offset"),
                    Ok(_) => {
                        holes.close(batch.position, batch.header.first_offset());
                        holes.next = batch.header.last_offset() + 1;
                        output.push(disk, &batch.header, &raw)?;
                        continue;
                    }
                    Err(flaw) => {
                        walk.lose(&batch)?;
                        flaw
                    }
                };
                holes.add(bytes, &flaw, Some(&batch));
            }
            // A writer died between beginning the next segment and cutting this one.
            Step::Damage(bytes, flaw) if is_room(&walk, &bytes, &flaw, next_base) => {}
            Step::Damage(bytes, flaw) => holes.add(bytes, &flaw, None),
            Step::End => break,
        }
    }
    if segment.len == 0 {
        holes.open = Some(Hole {
            bytes: 0..0,
            reason: "the file has no data".to_owned(),
            lost: 0..0,
            has_headers: false,
        });
    }
    holes.close(u64::MAX, next_base);
    Ok(holes.done)
}

/// The holes of a segment as a walk finds them.
struct Holes {
    done: Vec<Hole>,
    /// The one after the last whole batch.
    open: Option<Hole>,
    /// The offset after the last whole batch.
    next: u64,
}

impl Holes {
    fn add(&mut self, bytes: Range<u64>, flaw: &Flaw, batch: Option<&FoundBatch>) {
        let lost = batch.map_or(0..0, |it| {
            it.header.first_offset()..it.header.last_offset() + 1
        });
        let hole = self.open.get_or_insert_with(|| Hole {
            bytes: bytes.clone(),
            reason: flaw.to_string(),
            lost: lost.clone(),
            has_headers: true,
        });
        hole.has_headers &= batch.is_some();
        hole.bytes.end = bytes.end.max(hole.bytes.end);
        hole.lost = hole.lost.start.min(lost.start)..hole.lost.end.max(lost.end);
    }

    /// Ends the hole at a batch with this position and first offset. A damaged length may have
    /// extended it beyond that.
    fn close(&mut self, position: u64, before: u64) {
        let Some(mut hole) = self.open.take() else {
            return;
        };
        hole.bytes.end = hole.bytes.end.min(position);
        let between = self.next..before.max(self.next);
        hole.lost = match hole.has_headers {
            true => {
                let start = hole.lost.start.clamp(between.start, between.end);
                start..hole.lost.end.clamp(start, between.end)
            }
            false => between,
        };
        self.done.push(hole);
    }
}
