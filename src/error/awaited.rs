//! What a call waited for in vain.

use std::fmt;
use std::path::PathBuf;

/// What others held, or did not finish, for longer than a call waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The append lock, or room at the end of the log.
    Log,
    /// The leading process of a shared store, which makes the log readable.
    Dispatch,
    /// The leading process of a shared store, which appends what others have committed.
    Commits,
    /// The lock under which processes begin and end to share a store.
    Gate,
    /// The lock of the groups of a shared store.
    Groups,
    /// The lock file of the table of progress.
    Progress {
        /// Its path.
        lock: PathBuf,
    },
    /// A repair, whose own callback made the call.
    Repair,
    /// A compaction, whose own callback made the call.
    Compaction,
}

impl Awaited {
    /// Formats the error of a call that has waited for `waited_ms`.
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>, waited_ms: u64) -> fmt::Result {
        match self {
            Awaited::Log => write!(
                f,
                "the log was busy for {waited_ms} ms: nothing was appended, retry"
            ),
            Awaited::Dispatch => write!(
                f,
                "the process that leads did not make the log readable within {waited_ms} ms: retry"
            ),
            Awaited::Commits => write!(
                f,
                "the process that leads did not append all commits within {waited_ms} ms: retry"
            ),
            Awaited::Gate => write!(
                f,
                "another process was opening or closing the store for {waited_ms} ms: retry"
            ),
            Awaited::Groups => write!(
                f,
                "another process held the lock of the groups for {waited_ms} ms: no queue changed \
                 its owner, retry"
            ),
            Awaited::Progress { lock } => write!(
                f,
                "another writer held {} for {waited_ms} ms: progress was not saved, retry",
                lock.display()
            ),
            Awaited::Repair => write!(
                f,
                "the callback of a repair made a call that waits for the end of the repair: make \
                 it after the repair"
            ),
            Awaited::Compaction => write!(
                f,
                "the callback of a compaction made a call that waits for the end of the \
                 compaction: make it after the compaction"
            ),
        }
    }
}
