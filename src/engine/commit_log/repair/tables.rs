//! Rebuilds whole files: the index from a file on, and the small tables.

use super::damaged;
use crate::engine::commit_log::index::is_indexed;
use crate::engine::commit_log::log::walk::{Belief, walk};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::verify::inspection::Inspection;
use crate::engine::directory::{kept_options, names, salvage};
use crate::engine::{DamageKind, RepairStep};
use crate::error::Result;
use crate::options::EngineKind;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::properties::Known;

/// Drops the index files from `name` on and puts their keys again, from the log.
pub fn rebuild_index(parts: &Parts, name: u64, steps: &mut Vec<RepairStep>) -> Result<()> {
    let Some(index) = &parts.index else {
        return Ok(());
    };
    let mut put = 0;
    let page = &parts.log.state;
    let mut again = || {
        // A partial index looks complete. If this is interrupted, the next opening rebuilds it.
        page.set_unindexed(true);
        page.sync(&*parts.disk)?;
        index.drop_from(name)?;
        let end = parts.dispatcher.dispatched();
        let from = index.end_position()?.unwrap_or(parts.log.min_position());
        let mut visit = |record: &Record<'_>, position: u64, _: u64| -> Result<()> {
            if position < end && is_indexed(record) {
                let known = Known::read(record.raw_properties());
                put += index.put_missing(record, &known, position)?;
            }
            Ok(())
        };
        let walked = walk(&parts.log, from, Belief::below(end), &mut visit);
        page.next_generation();
        walked?;
        // It need not be durable before the index is: the following full pass syncs both.
        page.set_unindexed(false);
        Ok(())
    };
    let paused = || again().inspect_err(|error| parts.fail(error));
    parts.dispatcher.pause(paused)?;
    steps.push(RepairStep {
        path: parts.root.join(names::INDEX).join(format!("{name:017}")),
        position: 0,
        length: 0,
        what: format!("rebuilt the index from this file on: {put} entries"),
        saved: None,
        lost: Vec::new(),
    });
    Ok(())
}

/// Saves the damaged tables and rewrites those of Forebay; another system's are left unchanged.
pub fn rewrite_tables(
    parts: &Parts,
    found: &Inspection,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    for damage in &found.tables {
        let name = damage.path.file_name().unwrap_or_default();
        let saved_as = format!("{}-{}", name.to_string_lossy(), damage.length);
        let from = (&*damage.path, 0..damage.length);
        let saved = salvage::save(&*parts.disk, from, (&damaged(parts), &saved_as))?;
        let what = match damage.kind {
            DamageKind::Topics => {
                let mut table = parts.table.lock();
                table.update(&parts.topics, parts.clock.now_ms());
                table.save(&*parts.disk)?;
                "rewritten from the queues"
            }
            DamageKind::ForeignTable => "left unchanged: it belongs to another system",
            DamageKind::Checkpoint => {
                if let Some(checkpoint) = &parts.flushing.checkpoint {
                    checkpoint.reset(found.last_store_ms)?;
                    checkpoint.sync(&*parts.disk)?;
                }
                "rewritten"
            }
            DamageKind::Options => {
                kept_options::mend(&*parts.disk, &parts.root, EngineKind::CommitLog)?;
                kept_options::MENDED
            }
            // The inventory is written after everything else, the state page by the next opening.
            _ => "rewritten",
        };
        steps.push(RepairStep::of_file(damage, what, saved));
    }
    Ok(())
}
