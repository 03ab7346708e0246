//! Replaces the queues and index of a store by those that were built beside it.
//!
//! A crash at any point leaves a store without some of its queues or its index. Opening detects
//! that and rebuilds them.

use super::IndexKeys;
use crate::disk::{Disk, FileLock};
use crate::engine::commit_log::recovery::geometry;
use crate::engine::commit_log::tables::abort;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::recognise::{Maker, recognise};
use crate::engine::directory::{names, writer};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The lock of a store that no process writes, held while its queues and index are replaced.
#[derive(Debug)]
pub struct StoreLock {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    _lock: FileLock,
}

impl StoreLock {
    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::Locked`], and [`Error::Foreign`] for another system's store
    /// without permission to adopt it; [`Error::Unsupported`] if its queues are not kept in files,
    /// or if it was not closed.
    pub fn take(disk: &Arc<dyn Disk>, root: &Path, adopt: bool) -> Result<StoreLock> {
        let path = || root.to_owned();
        match recognise(&**disk, root)? {
            Maker::Nobody => return Err(Error::NotFound { path: path() }),
            Maker::Other if !adopt => return Err(Error::Foreign { path: path() }),
            _ => {}
        }
        if geometry::has_foreign_queues(&**disk, root)? {
            let what = format!(
                "replacing the queues of {}, which are kept in RocksDB or in batches",
                root.display()
            );
            return Err(Error::Unsupported { what });
        }
        let lock = writer::lock(&**disk, root, names::LOCK, Duration::ZERO)?;
        if abort::is_there(&**disk, root)? {
            let what = format!(
                "replacing the queues of {}, which was not closed: open it for writing once",
                root.display()
            );
            return Err(Error::Unsupported { what });
        }
        Ok(StoreLock {
            disk: Arc::clone(disk),
            root: root.to_owned(),
            _lock: lock,
        })
    }

    /// Moves queues and index from `built` into the store, and the previous ones to `away`.
    pub fn install(&self, built: &Path, away: &Path, index: &[IndexKeys]) -> Result<()> {
        let disk = &*self.disk;
        let make = |path: &Path| disk.create_directory(path);
        for name in [names::QUEUES, names::INDEX] {
            let (old, kept, new) = (self.root.join(name), away.join(name), built.join(name));
            make(away)?;
            if is_there(disk, &old)? {
                disk.rename(&old, &kept)?;
            }
            make(&new)?;
            disk.rename(&new, &old)?;
        }
        // The inventory must list the new files, or the next opening considers the index damaged.
        if let Some(mut inventory) = Inventory::load(disk, &self.root)? {
            let entry = |plan: &IndexKeys| {
                let next = u32::try_from(plan.count + 1).unwrap_or(u32::MAX);
                (format!("{:017}", plan.name), next)
            };
            // An index without keys has no files, so it cannot be distinguished from a missing
            // index.
            inventory.index = (!index.is_empty()).then(|| index.iter().map(entry).collect());
            inventory.save(&self.disk, &self.root)?;
        }
        disk.sync_directory(&self.root)
    }
}

fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    Ok(disk.stat(path)?.is_some())
}
