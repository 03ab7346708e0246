//! Verification: checks every record, queue entry and index entry against the log, and the tables.
//!
//! A range of the log that holds no record is one *hole*. Queue entries that point into it name the
//! lost messages; index entries that do are part of it. Adjacent damaged entries of a file are
//! reported as one place.

pub mod index;
pub mod inspection;
pub mod log;
pub mod queue;
pub mod stretch;
pub mod tables;
mod told;

use super::parts::Parts;
use crate::engine::{Damage, DamageKind, Finding, Verification};
use crate::error::Result;
use inspection::{Inspection, LostRange};
use stretch::{check, each_stretch};
use tables::tables;
use told::{Place, Told};

/// Bytes of the log between two reports of progress.
const PROGRESS_STEP: u64 = 16 << 20;

/// Checks a store. `progress` receives the bytes done and the total. If it returns false, the check
/// stops.
pub fn verify(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
    inspect(parts, progress).map(|inspection| inspection.found)
}

/// [`verify`], with the details that a repair needs.
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

/// Combines the findings of all parts and adds what no part covers.
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
            // What begins within a hole belongs to it: the rest of the hole, or entries that point
            // into it.
            match inspection.hole_at(range.start) {
                Some(hole) => hole.lost.extend(lost),
                None => inspection.holes.push(LostRange {
                    reason,
                    lost,
                    ..LostRange::unnamed(range)
                }),
            }
        }
    }
    finish(parts, &mut inspection)?;
    Ok(inspection.found)
}

/// Adds the tables and damage found earlier, and puts the holes first.
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

/// Adds damage that was found earlier and not by this check.
fn add_known(parts: &Parts, inspection: &mut Inspection) {
    let known = parts.report.damage();
    if known.is_empty() {
        return;
    }
    let mut told = Told::of(inspection);
    for damage in known {
        // Queues and index were checked completely, and a clock that jumped damages no file.
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
            // Opening has turned the entries that pointed here into fillers.
            let place = Place::Hole(hole.range.start);
            let others = damage.lost.into_iter();
            hole.lost
                .extend(others.filter(|lost| told.add(lost, place)));
            continue;
        }
        if !told.has(&damage) {
            told.add_damage(inspection.found.damage.len(), &damage);
            inspection.found.damage.push(damage);
        }
    }
}

/// Puts the holes before all other damage.
fn add_holes(parts: &Parts, inspection: &mut Inspection) {
    let holes = inspection.holes.iter().map(|hole| {
        let damage = parts.log.damage(hole.range.clone(), &hole.reason);
        damage.losing(hole.lost.iter().cloned())
    });
    let holes: Vec<Damage> = holes.collect();
    inspection.found.damage.splice(0..0, holes);
}
