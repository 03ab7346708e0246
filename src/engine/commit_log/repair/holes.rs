//! Holes of the log: their bytes are saved, and a bridge fills each.

use super::rewrite::rewrite;
use super::{damaged, keep};
use crate::engine::RepairStep;
use crate::engine::commit_log::log::bridge::can_fill;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::retention::Retention;
use crate::engine::commit_log::verify::inspection::{Inspection, LostRange};
use crate::engine::directory::salvage;
use crate::error::Result;
use std::collections::BTreeMap;

/// Saves the bytes in the holes, then fills the holes, file by file.
pub fn bridge_holes(
    parts: &Parts,
    retention: &Retention,
    found: &Inspection,
    steps: &mut Vec<RepairStep>,
) -> Result<()> {
    let files = &parts.log.files;
    let newest = match found.last_store_ms {
        0 => parts.clock.now_ms(),
        store_ms => store_ms,
    };
    let mut by_file: BTreeMap<u64, Vec<LostRange>> = BTreeMap::new();
    for hole in &found.holes {
        let mut rest = hole.clone();
        if rest.store_ms == 0 {
            rest.store_ms = newest;
        }
        while !rest.range.is_empty() {
            let start = files.start_of(rest.range.start);
            let end = rest.range.end.min(start + files.file_len());
            let mut part = rest.clone();
            part.range.end = end;
            rest.range.start = end;
            rest.lost.clear();
            if can_fill(&part.range, &(start..start + files.file_len())) {
                by_file.entry(start).or_default().push(part);
            }
        }
    }
    for (start, holes) in by_file {
        let Some(_kept) = keep(parts, retention, start) else {
            continue;
        };
        let path = files.path_of(start);
        let mut filled = Vec::with_capacity(holes.len());
        for hole in &holes {
            let len = hole.range.end - hole.range.start;
            let name = format!("{:020}-{len}", hole.range.start);
            let within = hole.range.start - start..hole.range.end - start;
            filled.push(RepairStep {
                path: path.clone(),
                position: hole.range.start,
                length: len,
                what: format!("filled the hole ({})", hole.reason),
                saved: salvage::save(&*parts.disk, (&path, within), (&damaged(parts), &name))?,
                lost: hole.lost.clone(),
            });
        }
        rewrite(parts, start, &holes)?;
        steps.append(&mut filled);
    }
    Ok(())
}
