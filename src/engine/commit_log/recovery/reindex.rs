//! The index during recovery: which parts are valid, and from where keys must be put again.
//!
//! Entries are in log order, so entries missing in the middle cannot be added: everything from
//! there on is rebuilt. In a read-only store, queries scan the log for records that the index
//! lacks.

use super::begin::Begin;
use super::find::Found;
use super::load::Loaded;
use crate::engine::commit_log::index::{Index, is_indexed};
use crate::engine::commit_log::log::walk::{Belief, walk};
use crate::error::Result;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::Known;
use crate::region::Access;
use std::ops::Range;
use std::sync::Arc;

/// What a walk does with the keys that it finds.
pub struct KeyPlan {
    /// The index, if the walk puts keys.
    index: Option<Arc<Index>>,
    /// Position from which on keys are put again after the walk.
    again: Option<u64>,
    /// Position of the last indexed record. Records before it are skipped.
    indexed_to: Option<u64>,
    /// Ranges between the index files, in which no record may have keys.
    gaps: Vec<Range<u64>>,
    /// Whether such a record was found: an index file is missing.
    missing: bool,
    /// First record that the index lacks, if the walk puts no keys.
    unindexed: Option<u64>,
    put: u64,
}

/// The result for the index.
pub struct Reindexed {
    /// Entries put, during the walk and after it.
    pub entries_put: u64,
    /// Records checked after the walk.
    pub records_checked: u64,
    /// Log positions whose keys it lacks; only in a read-only store.
    pub unindexed: Range<u64>,
}

impl KeyPlan {
    /// Handles a record that the walk finds.
    #[inline]
    pub fn meet(&mut self, record: &Record<'_>, known: &Known<'_>, position: u64) -> Result<()> {
        if !is_indexed(record) || known.index_keys().next().is_none() {
            return Ok(());
        }
        if self.indexed_to.is_none_or(|end| position >= end) {
            match &self.index {
                Some(index) => self.put += index.put_missing(record, known, position)?,
                // The last record with an entry may lack entries of its other keys.
                None => {
                    self.unindexed.get_or_insert(position);
                }
            }
        } else if !self.missing {
            self.missing = self.gaps.iter().any(|gap| gap.contains(&position));
        }
        Ok(())
    }
}

/// Opens the index files. Returns whether all known ones exist and are sound.
fn load_index(found: &Found, index: &Index, begin: &Begin) -> Result<bool> {
    let mut sound = index.load(found.files_end())?;
    let files = index.files();
    // The machine may have failed together with its broker, and lost pages that the broker had
    // stored. A broker that is running still has all pages.
    if begin.halted_by_other && !found.disk().copies() {
        for file in &files {
            sound = sound && file.is_whole()?;
        }
    }
    let listed = begin.inventory.as_ref().and_then(|it| it.index.as_ref());
    let mut all_there = true;
    for (name, count) in listed.into_iter().flatten() {
        let same = |path: &std::path::Path| {
            path.file_name()
                .is_some_and(|there| there.to_string_lossy() == *name)
        };
        let file = files.iter().find(|file| same(file.path()));
        all_there = match file {
            Some(file) => all_there && file.count()? >= *count,
            None => false,
        };
    }
    Ok(sound && all_there && (listed.is_some() || !files.is_empty()))
}

/// Loads the index and removes what cannot be trusted. The walk will begin at `from`.
pub fn plan_index(
    found: &Found,
    index: Option<&Arc<Index>>,
    begin: &Begin,
    from: u64,
) -> Result<KeyPlan> {
    let mut plan = KeyPlan {
        index: None,
        again: None,
        indexed_to: None,
        gaps: Vec::new(),
        missing: false,
        unindexed: None,
        put: 0,
    };
    let Some(index) = index else {
        return Ok(plan);
    };
    let min = found.min_position();
    // A writer without an index still moves the marks, and does not check whether an earlier power
    // loss left the index torn.
    let complete = !found.state.is_unindexed() && load_index(found, index, begin)?;
    let end_position = index.end_position()?;
    let unmarked = (!begin.marked).then(|| end_position.unwrap_or(min));
    // If no file exists and none was listed, nothing shows where the first would begin.
    let listed = begin
        .inventory
        .as_ref()
        .map(|known| known.position.max(min));
    let empty = listed.filter(|_| index.files().is_empty());
    let lagging = unmarked.or(empty).filter(|end| *end < from);
    if found.access == Access::Read {
        let unsure = begin
            .index_until
            .filter(|until| end_position.is_some_and(|end| end >= *until));
        plan.again = match complete {
            true => unsure.or(lagging),
            false => Some(min),
        };
    } else if complete {
        let cut = match begin.index_until {
            Some(until) => cut_index(found, index, until)?,
            None => None,
        };
        plan.again = cut.or(lagging);
    } else {
        clear_index(found, index)?;
        plan.again = Some(min);
    }
    if found.access == Access::ReadWrite && plan.again.is_some() {
        doubt_index(found)?;
    }
    if found.access == Access::ReadWrite && plan.again.is_none_or(|again| again >= from) {
        plan.index = Some(Arc::clone(index));
        plan.again = None;
    }
    if complete {
        plan.indexed_to = index.end_position()?;
        plan.gaps = gaps(index)?;
    }
    Ok(plan)
}

/// [`Index::cut`].
fn cut_index(found: &Found, index: &Index, position: u64) -> Result<Option<u64>> {
    if index.end_position()?.is_none_or(|end| end < position) {
        return Ok(None);
    }
    doubt_index(found)?;
    index.cut(position)
}

/// [`Index::clear`].
fn clear_index(found: &Found, index: &Index) -> Result<()> {
    doubt_index(found)?;
    index.clear()
}

/// Marks the index as invalid in the state page until the store runs: a process that dies meanwhile
/// leaves a partial index that looks complete.
fn doubt_index(found: &Found) -> Result<()> {
    if found.state.is_unindexed() {
        return Ok(());
    }
    found.state.set_unindexed(true);
    found.state.sync(&**found.disk())
}

/// Puts the keys that the walk to `end` could not put: entries are in log order, and the index
/// lacked earlier ones.
pub fn complete_index(
    found: &Found,
    loaded: &Loaded,
    begin: &Begin,
    plan: &KeyPlan,
    end: u64,
) -> Result<Reindexed> {
    let mut reindexed = Reindexed {
        entries_put: plan.put,
        records_checked: 0,
        unindexed: 0..0,
    };
    let Some(index) = &loaded.index else {
        return Ok(reindexed);
    };
    let min = found.min_position();
    let ahead = index.end_position()?.is_some_and(|indexed| indexed >= end);
    if found.access == Access::Read {
        let all = (ahead || plan.missing).then_some(min);
        let start = [all, plan.again, plan.unindexed]
            .into_iter()
            .flatten()
            .min();
        reindexed.unindexed = start.map_or(0..0, |start| start..end);
        return Ok(reindexed);
    }
    let again = if plan.missing {
        clear_index(found, index)?;
        Some(min)
    } else {
        let cut = cut_index(found, index, end)?;
        plan.again.into_iter().chain(cut).min()
    };
    let Some(start) = again else {
        return Ok(reindexed);
    };
    let mut visit = |record: &Record<'_>, position: u64, _: u64| -> Result<()> {
        reindexed.records_checked += 1;
        let known = Known::read(record.raw_properties());
        if position < end && is_indexed(record) {
            reindexed.entries_put += index.put_missing(record, &known, position)?;
        }
        Ok(())
    };
    let belief = match begin.marked {
        true => Belief::below(end),
        false => begin.belief(),
    };
    walk(&loaded.log, start, belief, &mut visit)?;
    Ok(reindexed)
}

/// The ranges before the first index file and between consecutive ones.
fn gaps(index: &Index) -> Result<Vec<Range<u64>>> {
    let mut after = 0;
    let mut gaps = Vec::new();
    for file in index.files() {
        let (begin, end) = file.positions()?;
        gaps.push(after..begin);
        after = end + 1;
    }
    gaps.retain(|gap| !gap.is_empty());
    Ok(gaps)
}
