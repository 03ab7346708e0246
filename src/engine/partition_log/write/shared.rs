//! What a process has of a partition log that it shares with others: its locks, the page with the
//! marks of all, the table of partitions, and whether it runs the services for all.
//!
//! | mark of the page | here |
//! |---|---|
//! | published | bytes that were appended to all partitions, and 1 for each roll |
//! | durable | the published mark up to which all partitions are durable |

use super::table::Table;
use crate::disk::Disk;
use crate::engine::directory::member::Member;
use crate::engine::directory::names::SHARED;
use crate::engine::directory::page::{Mark, News, StatePage, Word};
use crate::engine::service::health::Health;
use crate::engine::service::lead::Lead;
use crate::engine::service::shared_condition;
use crate::engine::service::shutdown::Shutdown;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep of a reader: the longest delay if a process dies before it wakes others.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What a process does for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing; it may become the leader.
    Follower,
    /// It flushes, writes indexes and applies retention.
    Leader,
    /// It has left the store.
    Gone,
}

/// One of the processes that share a partition log.
pub struct Shared {
    /// Its locks, and the page with the marks of all.
    pub member: Arc<Member>,
    /// The table of partitions.
    pub table: Arc<Table>,
    /// Whether it runs the services.
    pub lead: Arc<Lead>,
    /// Ends the thread that watches the leader.
    pub shutdown: Shutdown,
    pub(super) role: Mutex<Role>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Opens the table of the store at `root`, which another process or this one has made.
    ///
    /// # Errors
    ///
    /// Those of [`Table::open`]; [`Error::InvalidOption`] if this process would begin segments of
    /// another length.
    pub fn open(
        disk: &Arc<dyn Disk>,
        root: &Path,
        member: &Arc<Member>,
        segment_bytes: u64,
    ) -> Result<Shared> {
        let table = Table::open(disk, root)?;
        let agreed = table.segment_bytes();
        if agreed != segment_bytes {
            let reason = format!("the processes that share the store have {agreed}");
            return Err(Error::option("segment_bytes", segment_bytes, reason));
        }
        Ok(Shared {
            member: Arc::clone(member),
            table: Arc::new(table),
            lead: Arc::default(),
            shutdown: Shutdown::default(),
            role: Mutex::new(Role::Follower),
        })
    }

    /// The page with the marks.
    pub fn page(&self) -> &StatePage {
        &self.member.page
    }

    /// Wakes readers in all processes, if some may sleep.
    pub fn tell(&self) {
        shared_condition::notify_marked(&News(self.page()));
    }

    /// Sleeps until readers are woken, at most for `timeout`; may return early. Returns at once if
    /// `ready` holds.
    pub fn sleep(&self, timeout: Duration, ready: impl Fn() -> bool) {
        let timeout = timeout.min(SLEEP_MAX);
        shared_condition::sleep_marked(&News(self.page()), timeout, ready);
    }

    /// Checks that this process may go on writing.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if writing has failed, in this process or another; those of the page and
    /// of the table.
    pub fn check(&self, health: &Health) -> Result<()> {
        self.member.check(health)?;
        self.table.check()
    }

    /// Checks that no access to the maps has faulted.
    ///
    /// # Errors
    ///
    /// Those of the page and of the table.
    pub fn check_maps(&self) -> Result<()> {
        self.page().check().and_then(|()| self.table.check())
    }

    /// End of what all processes have published.
    pub fn published(&self) -> u64 {
        self.page().get(Mark::Published)
    }

    /// The error of an impossible published end.
    #[cold]
    pub fn corrupt_mark(&self, end: u64) -> Error {
        let path = self.page().path();
        let reason = format!("the published end {end} is impossible");
        Error::corrupt(path, Mark::Published as u64, reason)
    }

    /// Publishes what was appended up to `end`. The caller holds the append lock.
    pub fn publish(&self, end: u64) {
        self.page().set(Mark::Published, end);
    }

    /// Position up to which all partitions are durable.
    pub fn durable(&self) -> u64 {
        self.page().get(Mark::Durable)
    }

    /// Moves that position, and wakes those that wait for it.
    pub fn set_durable(&self, end: u64) {
        self.page().set(Mark::Durable, end);
        self.page().notify(Word::Flushed);
    }
}

/// Removes page and table, which no process uses any more.
///
/// # Errors
///
/// Those of the disk.
pub fn forget(disk: &dyn Disk, root: &Path) -> Result<()> {
    Table::remove(disk, root)?;
    match disk.unlink(&root.join(SHARED)) {
        Err(error) if error.is_not_found() => Ok(()),
        done => done,
    }
}
