//! Checks the marks against the loaded queues, and chooses where the walk begins if they are wrong.

use super::begin::Begin;
use super::find::Found;
use super::load::Loaded;
use crate::engine::commit_log::log::sound::{Depth, Sound, SoundWalk};
use crate::engine::commit_log::log::walk::Trust;
use crate::engine::directory::names;
use crate::error::Result;
use crate::mapped::queue::file_name;
use crate::record::rocketmq::Record;

/// A log without marks that was closed properly is walked completely up to this many bytes.
const WALK_ALL_MAX: u64 = 256 << 20;

/// Checks the marks against the loaded queues. If they are wrong, chooses another beginning.
pub fn confirm(found: &Found, loaded: &Loaded, begin: Begin) -> Result<Begin> {
    if begin.marked && is_boundary(found, loaded, begin.from)? {
        return Ok(begin);
    }
    let from = unmarked_begin(found, loaded, begin.clean)?;
    Ok(Begin {
        from,
        trust: Trust::Everywhere,
        marked: false,
        checksums_from: u64::MAX,
        durable: 0,
        index_until: begin.index_until.map(|_| from),
        ..begin
    })
}

/// Whether a record ends or begins at `at`.
fn is_boundary(found: &Found, loaded: &Loaded, at: u64) -> Result<bool> {
    let log = &loaded.log;
    let start = log.files.start_of(at).max(found.min_position());
    if at <= start || log.record_at(at)?.record().is_some() {
        return Ok(true);
    }
    let mut from = start;
    for (_, queue) in loaded.queues.all(&found.topics)? {
        match queue.last_end_below(at)? {
            Some(end) if end == at => return Ok(true),
            Some(end) if end < at => from = from.max(end),
            _ => {}
        }
    }
    let mut walk = SoundWalk::new(log, from..at, Depth::Structure);
    while let Some(met) = walk.next()? {
        if matches!(met, Sound::Hole(hole) if !hole.is_followed) {
            return Ok(false);
        }
    }
    Ok(walk.position() == at)
}

/// Where the walk begins in a store without marks.
///
/// If the store was not closed properly, or is small, all of it is walked. Otherwise its system has
/// dispatched in log order, so everything below the newest queue entry is in the queues. The first
/// record of each log file is looked up in its queue, to show that no queue is missing.
fn unmarked_begin(found: &Found, loaded: &Loaded, clean: bool) -> Result<u64> {
    let log = &loaded.log;
    let min = found.min_position();
    let len: u64 = found.files.iter().map(|file| file.len).sum();
    if !clean || len <= WALK_ALL_MAX {
        return Ok(min);
    }
    for file in &found.files {
        if let Some(message) = log.record_at(file.start)?.record()
            && !is_in_its_queue(found, loaded, &message.record().rocketmq(), file.start)?
        {
            return Ok(min);
        }
    }
    let mut dispatched = min;
    for (_, queue) in loaded.queues.all(&found.topics)? {
        let end = queue.last_end_below(u64::MAX)?.unwrap_or(0);
        dispatched = dispatched.max(end);
    }
    let newest = log.files.start_of(dispatched);
    Ok(last_used_file(found)?.min(newest).max(min))
}

fn is_in_its_queue(
    found: &Found,
    loaded: &Loaded,
    record: &Record<'_>,
    position: u64,
) -> Result<bool> {
    if !record.is_queued() {
        return Ok(true);
    }
    let queue = std::str::from_utf8(record.topic())
        .ok()
        .and_then(|name| found.topics.get(name))
        .zip(u32::try_from(record.queue_id()).ok())
        .and_then(|(topic, id)| loaded.queues.opened(&topic, id));
    let Some(queue) = queue else { return Ok(false) };
    let entry = queue.entry(record.queue_offset() as u64)?;
    Ok(entry.is_some_and(|entry| entry.position == position))
}

/// Start of the newest log file that does not begin with zeros.
fn last_used_file(found: &Found) -> Result<u64> {
    let directory = found.root.join(names::COMMIT_LOG);
    for file in found.files.iter().rev() {
        let mut head = [0; 8];
        let path = directory.join(file_name(file.start));
        found.disk().read_at(&path, 0, &mut head)?;
        if head != [0; 8] {
            return Ok(file.start);
        }
    }
    Ok(found.min_position())
}
