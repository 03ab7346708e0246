//! Verification in parts: ranges of the log, of queues and of the index. Any process that has the
//! store open can check them; the findings are combined in the end.
//!
//! A verification in one process checks all parts one after another. Two things cross the bounds of
//! a part. A hole reaches to the next record, so it may continue into later parts, which report
//! their share of it again if they are checked separately. And entries that point into a hole are
//! lost with it, so a check of entries must be given the holes of the whole log.

use super::index::index_entries;
use super::inspection::{Inspection, LostRange};
use super::log::records;
use super::queue::entries;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::ConsumeQueue;
use crate::engine::commit_log::read::follow;
use crate::engine::{Finding, Stretch, Topic};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// All parts of a store.
pub fn stretches(parts: &Parts) -> Result<Vec<Stretch>> {
    let mut found = Vec::new();
    each_stretch(parts, &mut |stretch| {
        found.push(stretch);
        Ok(true)
    })?;
    Ok(found)
}

/// Passes all parts of a store to `visit` until it returns false: log, queues, index, in the order
/// of a verification. The end of a queue is read when its turn comes.
pub fn each_stretch(parts: &Parts, visit: &mut dyn FnMut(Stretch) -> Result<bool>) -> Result<()> {
    let (min, end) = (parts.log.min_position(), parts.log.published());
    // A missing file belongs to the part of the file before it.
    let starts = parts.log.files.all().into_iter().map(|file| file.start());
    let mut bounds: Vec<u64> = vec![min];
    bounds.extend(starts.filter(|start| *start > min && *start < end));
    bounds.push(end);
    for range in pairs(&bounds) {
        if !visit(Stretch::Log(range))? {
            return Ok(());
        }
    }
    let len = parts.queues.store.file_entries;
    for (topic, queue) in parts.queues.all(&parts.topics)? {
        follow::extend(parts, &topic, &queue)?;
        let (min, max) = (queue.min(), queue.max());
        let starts = (1..).map(|n| (min / len + n) * len);
        let mut bounds = vec![min];
        bounds.extend(starts.take_while(|start| *start < max));
        bounds.push(max);
        for numbers in pairs(&bounds) {
            let stretch = Stretch::Queue {
                topic: topic.name.to_string(),
                queue: queue.id,
                numbers,
            };
            if !visit(stretch)? {
                return Ok(());
            }
        }
        parts.queues.limit_maps();
    }
    for file in parts.index.iter().flat_map(|index| index.files()) {
        let entries = u64::from(file.count()?) - 1;
        let name = file.name;
        if !visit(Stretch::Index { name, entries })? {
            break;
        }
    }
    Ok(())
}

/// The ranges between consecutive bounds, without empty ones.
fn pairs(bounds: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let pairs = bounds.iter().zip(bounds.iter().skip(1));
    pairs.map(|(a, b)| *a..*b).filter(|range| !range.is_empty())
}

/// [`verify_stretch`] for each of these parts.
pub fn verify_stretches(
    parts: &Parts,
    stretches: &[Stretch],
    holes: &[Range<u64>],
) -> Result<Vec<Finding>> {
    let check = |stretch| verify_stretch(parts, stretch, holes);
    stretches.iter().map(check).collect()
}

/// Checks one part separately; `holes` are those of the whole log.
pub fn verify_stretch(parts: &Parts, stretch: &Stretch, holes: &[Range<u64>]) -> Result<Finding> {
    let is_log = matches!(stretch, Stretch::Log(_));
    let holes = holes.iter().filter(|_| !is_log);
    let mut inspection = Inspection {
        holes: holes.cloned().map(LostRange::unnamed).collect(),
        ..Inspection::default()
    };
    check(parts, stretch, &mut inspection, &mut |_| true)?;
    inspection
        .holes
        .retain(|hole| is_log || !hole.lost.is_empty());
    let holes = inspection.holes.into_iter();
    Ok(Finding {
        found: inspection.found,
        holes: holes.map(|h| (h.range, h.reason, h.lost)).collect(),
        last_store_ms: inspection.last_store_ms,
    })
}

/// Checks one part and adds the results to `inspection`. `hear` receives positions of the log. If
/// it returns false, the check ends and returns false.
pub fn check(
    parts: &Parts,
    stretch: &Stretch,
    inspection: &mut Inspection,
    hear: &mut dyn FnMut(u64) -> bool,
) -> Result<bool> {
    match stretch {
        Stretch::Log(range) => return records(parts, range.clone(), inspection, hear),
        Stretch::Queue {
            topic,
            queue,
            numbers,
        } => {
            if let Some((topic, queue)) = find(parts, topic, *queue)? {
                follow::extend(parts, &topic, &queue)?;
                entries(parts, &topic, &queue, numbers.clone(), inspection)?;
                parts.queues.limit_maps();
            }
        }
        Stretch::Index { name, .. } => {
            let files = parts.index.iter().flat_map(|index| index.files());
            for file in files.filter(|file| file.name == *name) {
                index_entries(parts, &file, inspection)?;
            }
        }
    }
    Ok(true)
}

fn find(parts: &Parts, topic: &str, queue: u32) -> Result<Option<(Arc<Topic>, Arc<ConsumeQueue>)>> {
    let Some(topic) = parts.topics.get(topic) else {
        return Ok(None);
    };
    let queue = parts.queues.get(&topic, queue)?;
    Ok(queue.map(|queue| (topic, queue)))
}
