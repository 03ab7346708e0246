//! Where recovery begins: as late as what is known of the store's last life allows.
//!
//! The state page names positions up to which log, queues and index are known to be whole. It is a
//! hint like every cache, so a position is believed only if a record ends there; else, and in a
//! store of another system, the walk begins where nothing can be missed.

use super::find::Found;
use super::load::Loaded;
use crate::engine::commit_log::log::sound::{Depth, Sound, SoundWalk};
use crate::engine::commit_log::log::walk::{Belief, Trust};
use crate::engine::commit_log::tables::abort;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::names;
use crate::engine::directory::page::{Cache, Mark, StatePage};
use crate::error::{Error, Op, Result};
use crate::mapped::queue::file_name;
use crate::plant::{Bug, planted};
use crate::record::rocketmq::Record;

/// A log without marks that was closed in order is walked as a whole up to this many bytes.
const WALK_ALL_MAX: u64 = 256 << 20;

/// Where recovery begins, and what it may rely on.
#[derive(Clone, Debug)]
pub struct Begin {
    /// Where the walk begins.
    pub from: u64,
    /// How far beyond a flaw the walk looks for records.
    pub trust: Trust,
    /// Whether the store was closed in order.
    pub clean: bool,
    /// Whether another system halted in the store after the last writer of ours had closed it, or
    /// where none had been.
    pub halted_by_other: bool,
    /// Whether `from` comes from the marks of the state page.
    pub marked: bool,
    /// Records from here on carry a checksum over the whole, or are torn.
    pub checksums_from: u64,
    /// Up to where the log has to be there, by the marks as they were found.
    pub promised: u64,
    /// Up to where the log is durable, by the marks.
    pub durable: u64,
    /// Position from which on index entries may not have reached the disk.
    pub index_until: Option<u64>,
    /// Bounds of the queues and index files at the last full flush.
    pub inventory: Option<Inventory>,
}

/// From this position on, a record without a whole-record checksum counts as torn. What is trusted
/// was stored whole: a checksum that is missing there was damaged since, and every other reader
/// takes such a record by its body.
fn torn_without(state: &StatePage, trust: Trust) -> u64 {
    let stated = state.checksums_from().unwrap_or(u64::MAX);
    match trust {
        Trust::Below(trusted) => stated.max(trusted),
        Trust::Everywhere => stated,
    }
}

impl Begin {
    /// What a walk relies on.
    pub fn belief(&self) -> Belief {
        Belief {
            trust: self.trust,
            checksums_from: self.checksums_from,
        }
    }

    /// Where the log ended when a writer of ours closed it, if the marks tell.
    pub fn closed_at(&self) -> Option<u64> {
        (self.clean && self.marked).then_some(self.from)
    }
}

/// Chooses where the walk begins, by the state page and by whether `abort` is there.
pub fn begin(found: &Found) -> Result<Begin> {
    let crashed = abort::is_there(&**found.disk(), &found.root)?;
    let state = &found.state;
    let kept = found.cache == Cache::Kept;
    let inventory = Inventory::load(&**found.disk(), &found.root)?;
    let foreign = state.is_foreign() || abort::is_foreign(&**found.disk(), &found.root)?;
    let mut begin = Begin {
        from: found.min_position(),
        trust: Trust::Everywhere,
        clean: !crashed && (state.epoch() == 0 || state.is_clean()),
        halted_by_other: crashed && (foreign || state.is_clean() || state.epoch() == 0),
        marked: false,
        checksums_from: u64::MAX,
        promised: match (state.epoch(), state.is_clean() || kept) {
            (0, _) => 0,
            (_, true) => state.get(Mark::Published),
            (_, false) => state.get(Mark::Durable),
        },
        durable: 0,
        index_until: None,
        inventory,
    };
    let end = found.files_end();
    let known = |mark| {
        let at = state.get(mark).max(begin.from);
        (at <= end).then_some(at)
    };
    let marked = match (state.epoch(), state.is_clean(), kept) {
        (0, _, _) => None,
        (_, true, _) => {
            // Forebay closed it: what follows is another system's, and counts wherever it is whole.
            // A clean close leaves an inventory. Without it nothing would tell of a queue that
            // is gone as well.
            let told = |at: &u64| begin.inventory.as_ref().is_some_and(|i| i.position == *at);
            known(Mark::Published)
                .filter(told)
                .map(|at| (at, Trust::Everywhere))
        }
        (_, _, true) => {
            let trust = Trust::Below(state.get(Mark::Published));
            // What queues hold since the last full pass is checked against the log: nothing
            // else tells that the last entry of one is damaged.
            let settled = begin
                .inventory
                .as_ref()
                .map(|it| it.position.max(begin.from));
            let from = known(Mark::Dispatched).zip(known(Mark::Durable));
            let least = |(one, other): (u64, u64)| one.min(other).min(settled.unwrap_or(one));
            from.map(|marks| (least(marks), trust))
        }
        _ => {
            let settled = known(match planted(Bug::TrustIndex) {
                true => Mark::Durable,
                false => Mark::Settled,
            });
            begin.index_until = Some(settled.unwrap_or(begin.from));
            settled.map(|at| (at, Trust::Below(state.get(Mark::Durable))))
        }
    };
    if let Some((from, trust)) = marked {
        (begin.from, begin.trust, begin.marked) = (from, trust, true);
        begin.durable = state.get(Mark::Durable);
        if foreign {
            begin.trust = Trust::Everywhere;
        } else if !state.is_clean() {
            begin.checksums_from = torn_without(state, trust);
        }
    }
    Ok(begin)
}

/// Makes sure of the marks by the queues that were loaded; chooses again where they do not hold.
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
    for (_, queue) in loaded.queues.all(&found.topics) {
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
/// One that was not closed in order is walked as a whole, and so is a small one. Else its
/// system has dispatched in the order of the log, so all below the newest queue entry is in the
/// queues; that the queues are all there is shown by the first record of each log file.
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
    for (_, queue) in loaded.queues.all(&found.topics) {
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
        .and_then(|(topic, id)| loaded.queues.get(&topic, id));
    let Some(queue) = queue else { return Ok(false) };
    let entry = queue.entry(record.queue_offset() as u64)?;
    Ok(entry.is_some_and(|entry| entry.position == position))
}

/// Start of the newest log file that holds something at its begin.
fn last_used_file(found: &Found) -> Result<u64> {
    let directory = found.root.join(names::COMMIT_LOG);
    for file in found.files.iter().rev() {
        let mut head = [0; 8];
        let path = directory.join(file_name(file.start));
        let read = found.disk().read_at(&path, 0, &mut head);
        read.map_err(|e| Error::io(Op::Read, &path, e))?;
        if head != [0; 8] {
            return Ok(file.start);
        }
    }
    Ok(found.min_position())
}
