//! Sweeping: removes files of tasks and commits that are no longer needed.
//!
//! No manifest names the stages of attempts that failed, were repeated, or whose driver died. They
//! are removed a day after they were last written. So are temporary files, refusals, and empty
//! directories of queries. Other names stay, and links are not followed.

use super::name::Name;
use super::pending;
use super::place::{QueryPlace, StagePlace, unlink};
use crate::disk::Disk;
use crate::error::Result;
use std::collections::HashSet;
use std::path::Path;

/// Minimum age of files that no manifest names.
const AGE_MS: i64 = 24 * 3600 * 1000;
/// Time between two sweeps.
const INTERVAL_MS: i64 = 3600 * 1000;

/// When the next sweep is due, in ms.
#[derive(Debug, Default)]
pub struct Due(i64);

impl Due {
    /// Sweeps, if a sweep is due. Files that cannot be removed are left for the next sweep.
    pub fn sweep(&mut self, disk: &dyn Disk, stages: &StagePlace, clock_ms: i64) {
        if clock_ms < self.0 {
            return;
        }
        self.0 = clock_ms + INTERVAL_MS;
        for place in stages.queries(disk).unwrap_or_default() {
            let _ = sweep_query(disk, &place, clock_ms);
        }
    }
}

fn sweep_query(disk: &dyn Disk, place: &QueryPlace, clock_ms: i64) -> Result<()> {
    let is_old = |path: &Path| {
        let modified = disk.modified_ms(path).unwrap_or(None);
        modified.is_some_and(|modified| modified.saturating_add(AGE_MS) < clock_ms)
    };
    // Removing files changes the age of the directory, so it is read first.
    let unused = is_old(&place.folder);
    let files = pending::files(disk, place)?;
    let mut named = HashSet::new();
    for (_, name) in &files {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            match pending::read(disk, place, *name)? {
                Some(pending) => named.extend(pending.manifest.into_iter().flat_map(|m| m.stages)),
                // It was begun or withdrawn meanwhile, so its stages are unknown.
                None => return Ok(()),
            }
        }
    }
    let mut left = false;
    for (text, name) in files {
        let path = place.path(&text);
        let goes = match name {
            Name::Stage => !named.contains(&text),
            Name::Temporary | Name::Refused(_) => true,
            Name::Commit(_) | Name::Taken(_) | Name::Other => false,
        };
        if goes && is_old(&path) {
            unlink(disk, &path)?;
        } else {
            left = true;
        }
    }
    if unused && !left {
        place.remove(disk);
    }
    Ok(())
}
