//! Where recovery begins: as late as what is known of the store's last life allows.
//!
//! The state page names positions up to which log, queues and index are known to be whole. It is a
//! hint like every cache, so a position is believed only if a record ends there; else, and in a
//! store of another system, the walk begins where nothing can be missed.

use super::find::Found;
use crate::engine::commit_log::log::walk::{Belief, Trust};
use crate::engine::commit_log::tables::abort;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::page::{Cache, Mark, StatePage};
use crate::error::Result;
use crate::plant::{Bug, planted};

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
