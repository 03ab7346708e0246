//! Verification in parts: stretches of the log, of queues and of the index, each checked by whoever
//! has the store open, and put together in the end.
//!
//! The findings of all parts make up what [`verify`](super::verify) finds in one go. Two
//! things cross the bounds of a part. A hole goes on to the next record, so it may reach into
//! stretches behind its own, which find their share of it again. And entries that lead into a hole
//! are lost with it: who checks entries has to be told of the holes of the whole log.

use super::index::index_entries;
use super::survey::{Hole, Survey};
use super::{entries, finish, records};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::read::follow;
use crate::engine::{Finding, Stretch, Topic, Verification};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// All parts of a store: log, queues, index, in the order in which a verification looks at them.
pub fn stretches(parts: &Parts) -> Result<Vec<Stretch>> {
    let mut found = Vec::new();
    let (min, end) = (parts.log.min_position(), parts.log.published());
    // A file that is missing belongs to the stretch of the one before it.
    let starts = parts.log.files.all().into_iter().map(|file| file.start());
    let mut bounds: Vec<u64> = vec![min];
    bounds.extend(starts.filter(|start| *start > min && *start < end));
    bounds.push(end);
    found.extend(pairs(&bounds).map(Stretch::Log));
    for (topic, queue) in parts.queues.all(&parts.topics) {
        follow::extend(parts, &topic, &queue)?;
        let (min, max) = (queue.min(), queue.max());
        let len = parts.queues.store.file_entries;
        let mut bounds = vec![min];
        bounds.extend(
            (1..)
                .map(|n| (min / len + n) * len)
                .take_while(|at| *at < max),
        );
        bounds.push(max);
        found.extend(pairs(&bounds).map(|numbers| Stretch::Queue {
            topic: topic.name.to_string(),
            queue: queue.id,
            numbers,
        }));
        parts.queues.limit_maps();
    }
    for file in parts.index.iter().flat_map(|index| index.files()) {
        let entries = u64::from(file.count()?) - 1;
        let name = file.name;
        found.push(Stretch::Index { name, entries });
    }
    Ok(found)
}

/// The ranges between bounds that follow one another.
fn pairs(bounds: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let pairs = bounds.iter().zip(bounds.iter().skip(1));
    pairs.map(|(a, b)| *a..*b).filter(|range| !range.is_empty())
}

/// Checks one part.
pub fn verify_stretch(parts: &Parts, stretch: &Stretch, holes: &[Range<u64>]) -> Result<Finding> {
    let mut survey = Survey {
        holes: holes.iter().cloned().map(unnamed).collect(),
        ..Survey::default()
    };
    match stretch {
        Stretch::Log(range) => {
            survey.holes.clear();
            records(parts, range.clone(), &mut survey, &mut |_, _| true)?;
        }
        Stretch::Queue {
            topic,
            queue,
            numbers,
        } => {
            if let Some((topic, queue)) = find(parts, topic, *queue) {
                follow::extend(parts, &topic, &queue)?;
                entries(parts, &topic, &queue, numbers.clone(), &mut survey)?;
                parts.queues.limit_maps();
            }
        }
        Stretch::Index { name, .. } => {
            let files = parts.index.iter().flat_map(|index| index.files());
            for file in files.filter(|file| file.name == *name) {
                index_entries(parts, &file, &mut survey)?;
            }
        }
    }
    let is_log = matches!(stretch, Stretch::Log(_));
    survey.holes.retain(|hole| is_log || !hole.lost.is_empty());
    let holes = survey.holes.into_iter();
    Ok(Finding {
        found: survey.found,
        holes: holes.map(|h| (h.range, h.reason, h.lost)).collect(),
        last_store_ms: survey.last_store_ms,
    })
}

fn unnamed(range: Range<u64>) -> Hole {
    Hole {
        range,
        reason: String::new(),
        store_ms: 0,
        lost: Vec::new(),
    }
}

type Queue = (
    Arc<Topic>,
    Arc<crate::engine::commit_log::queues::queue::ConsumeQueue>,
);

fn find(parts: &Parts, topic: &str, queue: u32) -> Option<Queue> {
    let topic = parts.topics.get(topic)?;
    let queue = parts.queues.get(&topic, queue)?;
    Some((topic, queue))
}

/// Puts the findings of all parts together, and adds what no part looks at.
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
                    ..unnamed(range)
                }),
            }
        }
    }
    finish(parts, &mut survey)?;
    Ok(survey.found)
}
