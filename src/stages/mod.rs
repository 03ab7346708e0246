//! Rows for a log that another process writes: staged by tasks, committed by a driver, appended by
//! the writer, each commit exactly once.
//!
//! ```text
//!   task     Stager: rows --> stage-<id>, private until a commit names it        stager
//!   driver   publish: the stages of the tasks that count --> commit-<batch>      commit
//!            state, sleep, withdraw, discard
//!   writer   takes commits up when it is woken, or when it opens the store       intake
//! ```
//!
//! On the writer's side, `intake` lists pending commits and gives each its turns; `take` appends
//! the parts of one; `staged` and `rows` read and encode the rows; `marker` finds what the log
//! holds; `manifest` knows the files; `sweep` removes unused ones; `hold` keeps retention from
//! deleting markers. All of them use the store through `writer`.

pub mod commit;
pub mod hold;
pub mod intake;
pub mod manifest;
pub mod marker;
pub mod rows;
pub mod staged;
pub mod stager;
pub mod stop;
pub mod sweep;
pub mod take;
pub mod writer;

pub use crate::record::Contents;
pub use commit::{Commit, CommitState, Published};
pub use manifest::{CommitKind, Conflict, Resolution};
pub use stager::{Stage, Stager};

use crate::clock::{Clock, RealClock};
use crate::disk::Disk;
use crate::engine::directory::recognise::{Maker, recognise};
use crate::error::{Error, Result};
use manifest::{DIRECTORY, is_query};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum bytes of a commit that is a single part, unless it is one row.
pub const PART_LEN: u64 = 4 << 20;
/// Maximum bytes of a part of a longer commit, unless it is one slice. An atomic batch may be
/// longer, but the log is locked while a part is appended, and sends of the owner wait.
const LONG_PART_LEN: u64 = 1 << 20;

/// Maximum bytes of a part, for a commit of `len` bytes.
fn part_len(len: u64) -> u64 {
    match len <= PART_LEN {
        true => PART_LEN,
        false => LONG_PART_LEN,
    }
}

/// Checks that rows may be staged for the store at `root`: a store of Forebay, or none yet. Returns
/// whether there is a store.
///
/// # Errors
///
/// [`Error::Foreign`] for another system's store, which must be adopted by opening it; others as
/// for opening.
pub fn check_target(disk: &dyn Disk, root: &Path) -> Result<bool> {
    match recognise(disk, root)? {
        Maker::Nobody => Ok(false),
        Maker::Forebay => Ok(true),
        Maker::Other => Err(Error::Foreign {
            path: root.to_owned(),
        }),
    }
}

/// The directory of a query.
fn directory_of(root: &Path, query: &str) -> Result<PathBuf> {
    if !is_query(query) {
        let reason = "must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -";
        return Err(Error::option("query", format!("{query:?}"), reason));
    }
    Ok(root.join(DIRECTORY).join(query))
}

/// Creates the directory of a query, if it does not exist. Links are not followed.
fn make_directory(disk: &dyn Disk, root: &Path, query: &str) -> Result<PathBuf> {
    let directory = directory_of(root, query)?;
    let top = root.join(DIRECTORY);
    for path in [&top, &directory] {
        disk.create_directory(path)?;
        let found = disk.stat(path)?;
        if found.is_some_and(|entry| entry.kind != crate::disk::Kind::Directory) {
            let what = format!("{} is not a directory", path.display());
            return Err(Error::Unsupported { what });
        }
    }
    Ok(directory)
}

/// A name that no other process generates.
fn unique() -> String {
    use std::hash::{BuildHasher, RandomState};
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // The keys of the hash are random numbers from the operating system.
    let part = |number: u64| {
        let seen = (number, count, std::process::id(), RealClock.now_ms());
        RandomState::new().hash_one(seen)
    };
    format!("{:016x}{:016x}", part(0), part(1))
}
