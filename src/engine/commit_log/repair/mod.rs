//! Repair: saves damaged bytes beside the log, fills holes of the log, and corrects queues, index
//! and tables from the log.
//!
//! ```text
//!   inspect --> save damaged bytes --> fill the holes --> queues --> index --> tables --> inspect
//! ```
//!
//! After each step the store can be opened, and another repair completes one that was interrupted:
//! filled holes are no longer damage, and the rest is found again. Messages can be sent and read
//! meanwhile. A query by key waits while the index is rebuilt.

mod entries;
mod holes;
pub mod rewrite;
mod tables;
pub mod turn;

use super::parts::Parts;
use super::retention::{Pause, Retention};
use super::verify::inspection::Inspection;
use super::verify::{inspect, verify};
use crate::engine::{DamageKind, Repair, RepairStep};
use crate::error::Result;
use entries::{correct_entries, mark_lost, place_strays};
use holes::bridge_holes;
use std::path::PathBuf;
use tables::{rebuild_index, rewrite_tables};

/// Repairs an open store. `progress` receives the bytes inspected and the total. If it returns
/// false during the inspection, the repair ends without changes.
pub fn repair(
    parts: &Parts,
    retention: &Retention,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Repair> {
    parts.health.check()?;
    parts.flush_to(parts.wrote())?;
    let end = parts.log.published();
    parts.dispatcher.catch_up(end)?;
    let mut found = inspect(parts, progress)?;
    let mut repair = Repair::default();
    if found.stopped {
        return Ok(repair);
    }
    if found.found.damage.is_empty() && found.index_from.is_none() {
        // Changes of an interrupted repair may be only in the page cache.
        parts.full_pass()?;
        // An opening has mended the damage that was reported before.
        forget(parts);
        return Ok(repair);
    }
    let done = changes(parts, retention, &mut found, &mut repair.steps);
    done.inspect_err(|error| {
        // A temporary error does not end writing: the changes so far are complete, or have failed
        // the store.
        if error.ends_writing() {
            parts.fail(error);
        }
    })?;
    forget(parts);
    repair.left = verify(parts, &mut |_, _| true)?.damage;
    Ok(repair)
}

/// The directory for damaged bytes.
fn damaged(parts: &Parts) -> PathBuf {
    parts.root.join("damaged")
}

fn changes(
    parts: &Parts,
    retention: &Retention,
    found: &mut Inspection,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    let withdrawn = parts.withdraw_full_pass();
    bridge_holes(parts, retention, found, steps)?;
    for hole in &found.holes {
        mark_lost(parts, retention, hole, steps)?;
    }
    correct_entries(parts, retention, found, steps)?;
    place_strays(parts, retention, &found.strays, steps)?;
    if let Some(name) = found.index_from {
        let _queries = parts.rebuilding.write();
        rebuild_index(parts, name, steps)?;
    }
    drop(withdrawn);
    // As in a full pass: what the inventory describes is durable when it is saved.
    let flushed = parts.flush_all()?;
    rewrite_tables(parts, found, steps)?;
    parts.save_inventory(flushed)
}

/// Removes known damage of the kinds that are checked again, including damage in log files that no
/// longer exist because the log ends before them, or that hold only a BLANK.
fn forget(parts: &Parts) {
    use DamageKind::{Index, Log, Options, Queue, Retention};
    let checked = [Log, Queue, Index, Options, Retention];
    parts
        .report
        .retain(|damage| !checked.contains(&damage.kind));
}

/// Keeps retention from deleting the file at a position during the work. `None` if it is already
/// deleted, and its damage with it.
fn keep<'a>(parts: &Parts, retention: &'a Retention, position: u64) -> Option<Pause<'a>> {
    let kept = retention.pause();
    (position >= parts.log.min_position()).then_some(kept)
}
