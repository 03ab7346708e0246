//! Verification: every record, queue entry and index entry, each against the log, and the tables.
//!
//! A stretch of the log that holds no record is one *hole*, whatever leads into it: the queue
//! entries that do name the messages that it costs, and the index entries that do are part of it.
//! Damaged entries that follow one another in a file are one place.

pub mod index;
pub mod log;
pub mod queue;
pub mod stretch;
pub mod survey;
pub mod tables;

use super::parts::Parts;
use crate::engine::{Damage, DamageKind, Finding, Verification};
use crate::error::Result;
use stretch::{check, each_stretch};
use survey::{Hole, Survey};
use tables::tables;

/// Bytes of the log between two reports of progress.
const PROGRESS_STEP: u64 = 16 << 20;

/// Checks a store as it is. `progress` hears of bytes done and in all; false ends the check.
pub fn verify(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
    survey(parts, progress).map(|survey| survey.found)
}

/// [`verify`], with what a repair needs to know.
pub fn survey(parts: &Parts, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Survey> {
    let mut survey = Survey::default();
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
        survey.stopped = !check(parts, &stretch, &mut survey, &mut hear)?;
        Ok(!survey.stopped)
    })?;
    match survey.stopped {
        true => add_holes(parts, &mut survey),
        false => finish(parts, &mut survey)?,
    }
    Ok(survey)
}

/// Joins the findings of all parts, each checked by itself, and adds what no part checks.
pub fn join(parts: &Parts, findings: Vec<Finding>) -> Result<Verification> {
    let mut survey = Survey::default();
    for finding in findings {
        let (all, part) = (&mut survey.found, finding.found);
        all.records += part.records;
        all.queue_entries += part.queue_entries;
        all.index_entries += part.index_entries;
        all.stale_checksums += part.stale_checksums;
        all.damage.extend(part.damage);
        survey.last_store_ms = survey.last_store_ms.max(finding.last_store_ms);
        for (range, reason, lost) in finding.holes {
            // What begins within a hole is a part of it: the rest of one, or the entries into it.
            match survey.hole_at(range.start) {
                Some(hole) => hole.lost.extend(lost),
                None => survey.holes.push(Hole {
                    reason,
                    lost,
                    ..Hole::unnamed(range)
                }),
            }
        }
    }
    finish(parts, &mut survey)?;
    Ok(survey.found)
}

/// Adds the tables, and what was found before; puts all in order.
fn finish(parts: &Parts, survey: &mut Survey) -> Result<()> {
    survey.tables = tables(parts, survey.last_store_ms)?;
    survey.found.damage.extend(survey.tables.iter().cloned());
    add_known(parts, survey);
    add_holes(parts, survey);
    Ok(())
}

/// Adds what was found before and is not among what is found here.
fn add_known(parts: &Parts, survey: &mut Survey) {
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
            && let Some(hole) = survey.hole_at(damage.position)
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
        if !survey.found.damage.iter().any(same) && !survey.holes.iter().any(in_hole) {
            survey.found.damage.push(damage);
        }
    }
}

/// Puts the holes before all else that is damaged.
fn add_holes(parts: &Parts, survey: &mut Survey) {
    let holes = survey.holes.iter().map(|hole| {
        let damage = parts.log.damage(hole.range.clone(), &hole.reason);
        damage.losing(hole.lost.iter().cloned())
    });
    let holes: Vec<Damage> = holes.collect();
    survey.found.damage.splice(0..0, holes);
}
