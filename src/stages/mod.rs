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
//! holds; `manifest` is what a commit consists of, `pending` its file until it is in the log,
//! `name` has the names of all files, and `place` where they are; `sweep` removes unused ones;
//! `hold` keeps retention from deleting markers. All of them use the store through `writer`, and
//! wake drivers through `words`.

pub mod commit;
pub mod hold;
pub mod intake;
pub mod manifest;
pub mod marker;
pub mod name;
pub mod pending;
pub mod place;
pub mod rows;
pub mod staged;
pub mod stager;
pub mod stop;
pub mod sweep;
pub mod take;
pub mod words;
pub mod writer;

pub use crate::record::Contents;
pub use commit::{Commit, CommitState, Published};
pub use manifest::{CommitKind, Conflict, Resolution};
pub use stager::{Stage, Stager};

use crate::disk::Disk;
use crate::engine::directory::recognise::{Maker, recognise};
use crate::engine::partition_log::segments::names::is_log_directory;
use crate::error::{Error, Result};
use crate::options::EngineKind;
use place::StagePlace;
use std::path::Path;

/// Checks that rows may be staged for the store at `root`: a store of Forebay, or none yet. Returns
/// the engine of the store, if there is one. `topic`: the topic of all rows.
///
/// # Errors
///
/// [`Error::Foreign`] for another system's store, which must be adopted by opening it; others as
/// for opening. [`Error::InvalidTopic`].
pub fn check_target(
    disk: &dyn Disk,
    root: &Path,
    topic: Option<&str>,
) -> Result<Option<EngineKind>> {
    let maker = match is_log_directory(disk, root) {
        Ok(true) => Ok(Maker::Other),
        Ok(false) => recognise(disk, root),
        Err(error) => Err(error),
    };
    // Checked last: another process may have begun to create a partition log meanwhile, and its
    // mark comes first.
    let place = StagePlace::of(disk, root)?;
    topic.map_or(Ok(()), |topic| place.check_topic(topic))?;
    if place.engine() == EngineKind::PartitionLog {
        return Ok(Some(EngineKind::PartitionLog));
    }
    match maker? {
        Maker::Nobody => Ok(None),
        Maker::Forebay => Ok(Some(EngineKind::CommitLog)),
        Maker::Other => Err(Error::Foreign {
            path: root.to_owned(),
        }),
    }
}
