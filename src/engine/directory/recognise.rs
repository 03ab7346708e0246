//! Detects what a directory is: a store of Forebay, a store of RocketMQ, or something else.

use super::names;
use crate::disk::{Disk, Kind};
use crate::error::{Error, Result};
use std::path::Path;

/// The system that created a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// There is no store: the directory is missing or empty.
    Nobody,
    /// Forebay.
    Forebay,
    /// RocketMQ, or a copy of a store that lost its state page.
    Other,
}

/// Entries that may exist before a store does: remains of an interrupted creation, and rows that
/// were staged for a future store.
const FIRST: [&str; 5] = [
    names::LOCK,
    names::ABORT,
    "abort.tmp",
    "forebay.state.tmp",
    names::STAGES,
];

/// Determines the creator of a store from the names in `root`, which need not exist.
///
/// # Errors
///
/// [`Error::NotAStore`] for a file or another program's directory, [`Error::Unsupported`] for
/// layouts that are recognised but not supported, and for names that are links or pipes.
pub fn recognise(disk: &dyn Disk, root: &Path) -> Result<Maker> {
    let not_a_store = |reason: &str| Error::NotAStore {
        path: root.to_owned(),
        reason: reason.to_owned(),
    };
    let entries = match disk.list(root) {
        Err(error) if error.is_not_found() => return Ok(Maker::Nobody),
        Err(error) if error.kind() == Some(std::io::ErrorKind::NotADirectory) => {
            return Err(not_a_store("the path or a part of it is not a directory"));
        }
        found => found?,
    };
    let kind = |name: &str| {
        entries
            .iter()
            .find(|e| e.name.as_deref() == Some(name))
            .map(|entry| entry.kind)
    };
    for name in [
        names::COMMIT_LOG,
        names::QUEUES,
        names::INDEX,
        names::CONFIG,
    ] {
        match kind(name) {
            None | Some(Kind::Directory) => {}
            Some(_) => return Err(not_in_place(root, name, "directory")),
        }
    }
    for name in [
        names::LOCK,
        names::ABORT,
        names::CHECKPOINT,
        names::STATE,
        names::OFFSETS,
        names::IDLE,
        names::OPTIONS,
        names::DELAY,
    ] {
        match kind(name) {
            None | Some(Kind::File) => {}
            Some(_) => return Err(not_in_place(root, name, "regular file")),
        }
    }
    let starts = |prefix: &str| {
        let mut names = entries.iter().filter_map(|entry| entry.name.as_deref());
        names.any(|name| name.starts_with(prefix))
    };
    if starts("dledger-") {
        return Err(unsupported(
            root,
            "a DLedger log, whose records are wrapped",
        ));
    }
    if kind("tieredStoreMetadata.json").is_some() || starts("tieredstore") {
        return Err(unsupported(root, "a tiered store"));
    }
    if kind(names::STATE).is_some() {
        return Ok(Maker::Forebay);
    }
    if kind(names::COMMIT_LOG).is_some() {
        return Ok(Maker::Other);
    }
    let is_first = |name: &str| FIRST.contains(&name);
    let fresh = |e: &crate::disk::Entry| e.name.as_deref().is_some_and(is_first);
    if entries.iter().all(fresh) {
        return Ok(Maker::Nobody);
    }
    Err(not_a_store("it has other files, but no commitlog"))
}

/// Whether a directory has the log of a commit log store, whoever made it.
///
/// # Errors
///
/// Those of a stat of the directory. A missing one is no error.
pub fn is_commit_log(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let found = disk.stat(&root.join(names::COMMIT_LOG))?;
    Ok(found.is_some_and(|entry| entry.kind == Kind::Directory))
}

fn not_in_place(root: &Path, name: &str, kind: &str) -> Error {
    Error::Unsupported {
        what: format!("{} is not a {kind}", root.join(name).display()),
    }
}

fn unsupported(root: &Path, what: &str) -> Error {
    Error::Unsupported {
        what: format!("{} holds {what}", root.display()),
    }
}
