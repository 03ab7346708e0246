//! Verification: every record, queue entry and index entry, each against the log, and the tables.
//!
//! A stretch of the log that holds no record is one *hole*, whatever leads into it: the queue
//! entries that do name the messages that it costs, and the index entries that do are part of it.
//! Damaged entries that follow one another in a file are one place.

pub mod index;
pub mod inspection;
pub mod log;
pub mod queue;
pub mod stretch;
pub mod tables;

use super::parts::Parts;
use crate::engine::{Damage, DamageKind, Finding, Verification};
use crate::error::Result;
use inspection::{Hole, Inspection};
use stretch::{check, each_stretch};
use tables::tables;

/// Bytes of the log between two reports of progress.
const PROGRESS_STEP: u64 = 16 << 20;

/// Checks a store as it is. `progress` hears of bytes done and in all; false ends the check.
pub fn verify(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
    inspect(parts, progress).map(|inspection| inspection.found)
}

/// [`verify`], with what a repair needs to know.
pub fn inspect(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspection> {
    let mut inspection = Inspection::default();
    let (start, end) = (parts.log.min_position(), parts.log.published());
    let mut told = start;
    let mut hear = |position: u64| {
        let position = position.min(end);
        let is_due = position >= told + PROGRESS_STEP || position == end;
        if position <= told || !is_due {
            return true;
        }
        told = position;
        progress(position - start, end - start)
    };
    each_stretch(parts, &mut |stretch| {
        inspection.stopped = !check(parts, &stretch, &mut inspection, &mut hear)?;
        Ok(!inspection.stopped)
    })?;
    match inspection.stopped {
        true => add_holes(parts, &mut inspection),
        false => finish(parts, &mut inspection)?,
    }
    Ok(inspection)
}

/// Joins the findings of all parts, each checked by itself, and adds what no part checks.
pub fn join(parts: &Parts, findings: Vec<Finding>) -> Result<Verification> {
    let mut inspection = Inspection::default();
    for finding in findings {
        let (all, part) = (&mut inspection.found, finding.found);
        all.records += part.records;
        all.queue_entries += part.queue_entries;
        all.index_entries += part.index_entries;
        all.stale_checksums += part.stale_checksums;
        all.damage.extend(part.damage);
        inspection.last_store_ms = inspection.last_store_ms.max(finding.last_store_ms);
        for (range, reason, lost) in finding.holes {
            // What begins within a hole is a part of it: the rest of one, or the entries into it.
            match inspection.hole_at(range.start) {
                Some(hole) => hole.lost.extend(lost),
                None => inspection.holes.push(Hole {
                    reason,
                    lost,
                    ..Hole::unnamed(range)
                }),
            }
        }
    }
    finish(parts, &mut inspection)?;
    Ok(inspection.found)
}

/// Adds the tables, and what was found before; puts all in order.
fn finish(parts: &Parts, inspection: &mut Inspection) -> Result<()> {
    inspection.tables = tables(parts, inspection.last_store_ms)?;
    inspection
        .found
        .damage
        .extend(inspection.tables.iter().cloned());
    add_known(parts, inspection);
    add_holes(parts, inspection);
    Ok(())
}

/// Adds what was found before and is not among what is found here.
fn add_known(parts: &Parts, inspection: &mut Inspection) {
    for damage in parts.report.damage() {
        // Queues and index were checked as a whole, and a clock that jumped damages no file.
        let kind = damage.kind;
        if matches!(
            kind,
            DamageKind::Queue | DamageKind::Index | DamageKind::Clock
        ) {
            continue;
        }
        if kind == DamageKind::Log
            && let Some(hole) = inspection.hole_at(damage.position)
        {
            // Opening has made fillers of the entries that led here.
            for lost in damage.lost {
                if !hole.lost.contains(&lost) {
                    hole.lost.push(lost);
                }
            }
            continue;
        }
        let same = |known: &Damage| {
            known.path == damage.path && known.position == damage.position
                || !damage.lost.is_empty() && damage.lost.iter().all(|l| known.lost.contains(l))
        };
        let in_hole = |hole: &Hole| {
            !damage.lost.is_empty() && damage.lost.iter().all(|lost| hole.lost.contains(lost))
        };
        if !inspection.found.damage.iter().any(same) && !inspection.holes.iter().any(in_hole) {
            inspection.found.damage.push(damage);
        }
    }
}

/// Puts the holes before all else that is damaged.
fn add_holes(parts: &Parts, inspection: &mut Inspection) {
    let holes = inspection.holes.iter().map(|hole| {
        let damage = parts.log.damage(hole.range.clone(), &hole.reason);
        damage.losing(hole.lost.iter().cloned())
    });
    let holes: Vec<Damage> = holes.collect();
    inspection.found.damage.splice(0..0, holes);
}
