//! Where recovery begins: as late as the traces of the last writer allow.
//!
//! The state page has positions up to which log, queues and index are known to be complete. Like
//! every cache it is a hint: a position counts only if a record ends there. Otherwise, and in a
//! store of another system, the walk begins where it can miss nothing.

use super::find::Found;
use crate::engine::commit_log::log::walk::{Belief, Trust};
use crate::engine::commit_log::tables::abort;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::page::{Cache, Mark, StatePage};
use crate::error::Result;
use crate::plant::{Bug, planted};

/// Where recovery begins, and what it may assume.
#[derive(Clone, Debug)]
pub struct Begin {
    /// Where the walk begins.
    pub from: u64,
    /// How far past a flaw the walk searches for records.
    pub trust: Trust,
    /// Whether the store was closed properly.
    pub clean: bool,
    /// Whether another system wrote the store last and did not close it.
    pub halted_by_other: bool,
    /// Whether `from` comes from the marks of the state page.
    pub marked: bool,
    /// Records from here on have a whole-record checksum, or are torn.
    pub checksums_from: u64,
    /// Position that the log must reach, according to the marks that were found.
    pub promised: u64,
    /// First position of the log when Forebay last had it open; `None` if unknown, for example
    /// after another system wrote the store and did not close it.
    pub began: Option<u64>,
    /// Position up to which the log is durable, according to the marks.
    pub durable: u64,
    /// Position from which on index entries may be missing on the disk.
    pub index_until: Option<u64>,
    /// Bounds of the queues and index files at the last full pass.
    pub inventory: Option<Inventory>,
}

/// From this position on, a record without a whole-record checksum counts as torn. Below the
/// trusted position records were stored completely: a missing checksum was damaged later, and all
/// other readers accept such a record by its body.
fn torn_without(state: &StatePage, trust: Trust) -> u64 {
    let stated = state.checksums_from().unwrap_or(u64::MAX);
    match trust {
        Trust::Below(trusted) => stated.max(trusted),
        Trust::Everywhere => stated,
    }
}

/// The position that the log must reach. `kept`: the page cache holds all that was stored.
fn promised(state: &StatePage, kept: bool) -> u64 {
    match (state.epoch(), state.is_clean() || kept) {
        (0, _) => 0,
        (_, true) => state.get(Mark::Published),
        (_, false) => state.get(Mark::Durable),
    }
}

/// The first position of the log that the marks tell. `crashed`: the store has `abort`. `foreign`:
/// Forebay did not write that file last.
fn began(state: &StatePage, crashed: bool, foreign: bool) -> Option<u64> {
    let is_known = match (state.is_clean(), crashed) {
        (true, false) => true,
        (false, true) => !foreign,
        // Another system runs, or has halted, since Forebay closed the store or died.
        (true, true) | (false, false) => false,
    };
    (is_known && state.epoch() > 0).then(|| state.get(Mark::Minimum))
}

impl Begin {
    /// What a walk assumes.
    pub fn belief(&self) -> Belief {
        Belief {
            trust: self.trust,
            checksums_from: self.checksums_from,
        }
    }

    /// Where the log ended when Forebay closed it, if the marks state it.
    pub fn closed_at(&self) -> Option<u64> {
        (self.clean && self.marked).then_some(self.from)
    }
}

/// Chooses where the walk begins, from the state page and the presence of `abort`.
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
        promised: promised(state, kept),
        began: began(state, crashed, foreign),
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
            // Forebay closed the store: another system wrote what follows, which counts wherever it
            // is valid. A clean close leaves an inventory. If it is missing, a queue may be missing
            // too, and nothing would show that.
            let told = |at: &u64| begin.inventory.as_ref().is_some_and(|i| i.position == *at);
            known(Mark::Published)
                .filter(told)
                .map(|at| (at, Trust::Everywhere))
        }
        (_, _, true) => {
            let trust = Trust::Below(state.get(Mark::Published));
            // Queue entries since the last full pass are checked against the log: nothing else
            // reveals that the last entry of a queue is damaged.
            let passed = begin
                .inventory
                .as_ref()
                .map(|it| it.position.max(begin.from));
            let from = known(Mark::Dispatched).zip(known(Mark::Durable));
            let least = |(one, other): (u64, u64)| one.min(other).min(passed.unwrap_or(one));
            from.map(|marks| (least(marks), trust))
        }
        _ => {
            let passed = known(match planted(Bug::TrustIndex) {
                true => Mark::Durable,
                false => Mark::FullPass,
            });
            begin.index_until = Some(passed.unwrap_or(begin.from));
            passed.map(|at| (at, Trust::Below(state.get(Mark::Durable))))
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
