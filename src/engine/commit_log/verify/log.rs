//! Verifies the log: each record is sound, and a queue entry can point to it.

use super::inspection::{Inspection, LostRange};
use crate::engine::commit_log::log::bridge::is_bridge;
use crate::engine::commit_log::log::sound::{Depth, Sound, SoundWalk};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::queues::queue::entry::queue_and_offset;
use crate::engine::commit_log::read::meant::leads_home;
use crate::error::Result;
use crate::record::rocketmq::{Freshness, Record};
use std::ops::Range;

/// Checks the records that begin in `stretch`, whose start must be a place where a record can
/// begin. A hole reaches to the next record, wherever that is; bytes in a hole of an earlier
/// stretch are skipped. `hear` receives ascending positions. If it returns false, the check ends
/// and returns false.
pub fn records(
    parts: &Parts,
    stretch: Range<u64>,
    inspection: &mut Inspection,
    hear: &mut dyn FnMut(u64) -> bool,
) -> Result<bool> {
    let checked = inspection.holes.last().map_or(0, |hole| hole.range.end);
    let stretch = stretch.start.max(checked)..stretch.end;
    let walk = SoundWalk::new(&parts.log, stretch, Depth::Body);
    let mut walk = walk.with_limit(parts.log.published());
    loop {
        if !hear(walk.position()) {
            return Ok(false);
        }
        match walk.next()? {
            None => return Ok(true),
            Some(Sound::Record(record, place)) => {
                whole(parts, &record, place.position, inspection)?;
                inspection.found.stale_checksums += u64::from(place.freshness == Freshness::Stale);
            }
            Some(Sound::Hole(hole)) => inspection.holes.push(LostRange {
                range: hole.range,
                reason: hole.flaw.to_string(),
                store_ms: inspection.last_store_ms,
                lost: Vec::new(),
            }),
        }
    }
}

/// Records a sound record: sets the store time of the holes before it, and checks that its queue
/// entry exists.
fn whole(
    parts: &Parts,
    record: &Record<'_>,
    position: u64,
    inspection: &mut Inspection,
) -> Result<()> {
    inspection.found.records += 1;
    if is_bridge(record) {
        let end = position + u64::from(record.layout().total_len);
        inspection.bridges.push(position..end);
    }
    let store_ms = record.store_timestamp();
    if inspection.last_store_ms == 0 && store_ms > 0 {
        inspection
            .holes
            .iter_mut()
            .for_each(|h| h.store_ms = store_ms);
    }
    inspection.last_store_ms = inspection.last_store_ms.max(store_ms);
    if position >= parts.dispatcher.dispatched() {
        return Ok(());
    }
    if let Some(reason) = is_stray(parts, record, position)? {
        inspection.strays.push(position);
        let end = position + u64::from(record.layout().total_len);
        let reason = format!("the record is in no queue: {reason}");
        let damage = parts.log.damage(position..end, reason);
        inspection.found.damage.push(damage.losing(named(record)));
    }
    Ok(())
}

/// Topic, queue and offset that a record states.
fn named(record: &Record<'_>) -> Option<(String, u32, u64)> {
    let topic = std::str::from_utf8(record.topic()).ok()?;
    let queue = u32::try_from(record.queue_id()).ok()?;
    let offset = u64::try_from(record.queue_offset()).ok()?;
    Some((topic.to_owned(), queue, offset))
}

/// Whether `is_hidden` holds for good. Retention raises the first offsets of the queues before the
/// first position of the log, so a message may look hidden until both are raised.
pub fn is_hidden_for_good(parts: &Parts, mut is_hidden: impl FnMut() -> bool) -> bool {
    is_hidden() && {
        let _both_raised = parts.raising.lock();
        is_hidden()
    }
}

/// Why no entry can point to a record. An existing but damaged entry does not count: it is found
/// with its queue.
fn is_stray(parts: &Parts, record: &Record<'_>, position: u64) -> Result<Option<&'static str>> {
    let Some(((id, offset), name)) =
        queue_and_offset(record).zip(std::str::from_utf8(record.topic()).ok())
    else {
        return Ok(None);
    };
    let Some(topic) = parts.topics.get(name) else {
        return Ok(Some("its topic has no queue"));
    };
    let Some(queue) = parts.queues.get(&topic, id)? else {
        return Ok(Some("its queue is missing"));
    };
    let is_hidden = || offset < queue.min() && position >= parts.log.min_position();
    if is_hidden_for_good(parts, is_hidden) {
        return Ok(Some("its queue begins after it"));
    }
    if parts.log.source.is_none() && offset >= queue.max() {
        return Ok(Some("its queue ends before it"));
    }
    let other = queue
        .entry(offset)?
        .filter(|entry| entry.position != position);
    let taken = match other {
        Some(other) => leads_home(&parts.log, (&topic, id, offset), other)?,
        None => false,
    };
    Ok(taken.then_some("another record has its queue offset"))
}
