//! Whether a directory may be opened for writing.

use super::files;
use crate::disk::{Disk, Kind};
use crate::engine::directory::names::SHARED;
use crate::engine::directory::recognise::Maker;
use crate::engine::partition_log::segments::names::{self, LOCK};
use crate::error::{Error, Result};
use crate::options::{Mode, Options};
use std::path::Path;

/// Checks that a directory may be opened for writing, and returns who made it. Without the lock,
/// [`Maker::Nobody`] may be outdated: another process may make a store of it at any moment.
pub(super) fn permit(disk: &dyn Disk, root: &Path, options: &Options) -> Result<Maker> {
    let path = || root.to_owned();
    let is_own = || Ok::<bool, Error>(files::read_seed(disk, root)?.is_some());
    let maker = match disk.stat(root)? {
        None => Maker::Nobody,
        Some(entry) if entry.kind != Kind::Directory => {
            return Err(Error::NotAStore {
                path: path(),
                reason: "it is not a directory".to_owned(),
            });
        }
        Some(_) if is_own()? => Maker::Forebay,
        Some(_) => {
            let is_log = names::is_log_directory(disk, root)?;
            if !is_log && disk.list(root)?.iter().all(is_beginning) {
                Maker::Nobody
            } else if is_own()? {
                // The seed is the first file of a store, so another process has made the files just
                // now.
                Maker::Forebay
            } else if is_log {
                Maker::Other
            } else {
                return Err(Error::NotAStore {
                    path: path(),
                    reason: "it has other files, and no folder of a partition".to_owned(),
                });
            }
        }
    };
    match (options.mode, maker) {
        (Mode::Create, Maker::Forebay | Maker::Other) => Err(Error::Exists { path: path() }),
        (_, Maker::Other) if !options.adopt => Err(Error::Foreign { path: path() }),
        _ => Ok(maker),
    }
}

/// Whether an entry may be left of an interrupted creation, before the store exists.
fn is_beginning(entry: &crate::disk::Entry) -> bool {
    let name = entry.name.as_deref();
    let page = name.and_then(|name| name.strip_prefix(SHARED));
    name == Some(LOCK)
        || name == Some("forebay.partitionlog.tmp")
        || page.is_some_and(|rest| matches!(rest, "" | ".tmp"))
}
