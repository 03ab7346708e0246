//! Sweeping: what tasks and commits have left that nobody will ask for.
//!
//! Stages of attempts that failed, were repeated, or whose driver died stand in no manifest. They
//! go a day after they were last written to; so do temporary files, refusals, and directories of
//! queries that are empty. Names that are not ours stay, and links are not followed.

use super::manifest::{self, Name};
use crate::disk::Disk;
use crate::engine::directory::home::Home;
use crate::error::Result;
use std::collections::HashSet;
use std::path::Path;

/// How long what is in no manifest stays.
const AGE_MS: i64 = 24 * 3600 * 1000;
/// Between two sweeps.
const INTERVAL_MS: i64 = 3600 * 1000;

/// When the next sweep is due, in ms.
#[derive(Debug, Default)]
pub struct Due(i64);

impl Due {
    /// Sweeps, if it is time to. What cannot be taken away is left for the next time.
    pub fn sweep(&mut self, home: &Home, clock_ms: i64) {
        if clock_ms < self.0 {
            return;
        }
        self.0 = clock_ms + INTERVAL_MS;
        let queries = manifest::queries(&*home.machine.disk, &home.root);
        for (_, directory) in queries.unwrap_or_default() {
            let _ = sweep_query(&*home.machine.disk, &directory, clock_ms);
        }
    }
}

fn sweep_query(disk: &dyn Disk, directory: &Path, clock_ms: i64) -> Result<()> {
    let is_old = |path: &Path| {
        let modified = disk.modified_ms(path).unwrap_or(None);
        modified.is_some_and(|modified| modified.saturating_add(AGE_MS) < clock_ms)
    };
    // The age of the directory is that of its last name, so it is asked for before any goes.
    let unused = is_old(directory);
    let files = manifest::files(disk, directory)?;
    let mut named = HashSet::new();
    for (_, name) in &files {
        if matches!(name, Name::Commit(_) | Name::Taken(_)) {
            match manifest::read(disk, directory, *name)? {
                Some(pending) => named.extend(pending.manifest.into_iter().flat_map(|m| m.stages)),
                // It was begun or withdrawn meanwhile: which stages it named is not known.
                None => return Ok(()),
            }
        }
    }
    let mut left = false;
    for (text, name) in files {
        let path = directory.join(&text);
        let goes = match name {
            Name::Stage => !named.contains(&text),
            Name::Temporary | Name::Refused(_) => true,
            Name::Commit(_) | Name::Taken(_) | Name::Other => false,
        };
        if goes && is_old(&path) {
            manifest::unlink(disk, &path)?;
        } else {
            left = true;
        }
    }
    if unused && !left {
        // Fails where a task has just made a file in it, which is as it should be.
        let _ = disk.remove_directory(directory);
    }
    Ok(())
}
