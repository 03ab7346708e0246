//! The table of groups, `forebay.groups`: which consumer owns which queue while several processes
//! share a store, and how far it is.
//!
//! The file lives as long as some process shares the store: the first one removes what an earlier
//! one left, and the last one removes the file. `config/consumerOffset.json` stays the durable form
//! of the progress. `docs/format/groups.md` describes the bytes:
//!
//! ```text
//! at        width        field
//! 0         8            magic "FOREBAYG"
//! 8         u32          version, 2
//! 12        u32          changes with each consumer, owner, topic or queue; processes sleep on it
//! 16        u64          lock of those that change the table; see `service/shared_lock.rs`
//! 24        u32          number of topics
//! 28        u32          number of queues
//! 32        u64          number of the last consumer
//! 64        251 u64      for each slot: changes while its process is alive and runs
//! 4096      1024 x 64    consumers
//! 69632     16384 x 512  topics of groups
//! 8458240   262144 x 64  queues
//! ```
//!
//! Any process may have stored anything here, and may have died at any moment. Counts, places and
//! names are checked before use. Owners change only under the lock; an owner stores its progress
//! without the lock ([`fence`](crate::engine::service::fence)).

pub mod joint;
mod members;
mod queues;
mod topics;

pub use members::{MEMBERS_MAX, Member};
pub use queues::{Row, check_offset};
pub use topics::GroupTopic;

use crate::disk::Disk;
use crate::engine::directory::fields::Fields;
use crate::engine::directory::names;
use crate::engine::directory::table_file::TableFile;
use crate::engine::service::shared_lock::{self, LockWord, SLOTS, Taken};
use crate::error::{Error, Result};
use crate::num::{index, low_u32};
use crate::region::{Access, PAGE};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FILE: TableFile = TableFile {
    name: names::GROUPS,
    of: "groups",
    magic: *b"FOREBAYG",
    version: 2,
    len: TABLE_LEN,
    head_len: AT_TOPICS,
};
const AT_CHANGES: usize = 12;
const AT_LOCK: usize = 16;
const AT_TOPICS_LEN: usize = 24;
const AT_QUEUES_LEN: usize = 28;
const AT_LAST_NUMBER: usize = 32;
const AT_BEATS: usize = 64;
const AT_MEMBERS: usize = PAGE;
const _: () = assert!(AT_BEATS + (SLOTS as usize + 1) * size_of::<u64>() <= AT_MEMBERS);
const AT_TOPICS: usize = AT_MEMBERS + MEMBERS_MAX as usize * members::MEMBER_LEN;
const AT_QUEUES: usize = AT_TOPICS + topics::TOPICS_MAX as usize * topics::TOPIC_LEN;
/// Length of the file, most of which has no blocks until it is used.
const TABLE_LEN: usize = AT_QUEUES + queues::QUEUES_MAX as usize * queues::QUEUE_LEN;
/// Byte of the low half in a word of 8 bytes, on which processes sleep.
const LOW_WORD: usize = if cfg!(target_endian = "big") { 4 } else { 0 };
/// The beat of a slot whose process has no consumers: any that are listed for it are gone.
const NO_BEAT: u64 = 0;

/// The processes that share a store, as this one knows them.
pub trait Peers: Send + Sync {
    /// The slot of this process.
    fn slot(&self) -> u32;

    /// Whether a process other than this one holds a slot.
    fn is_alive(&self, slot: u32) -> bool;
}

/// The mapped table.
pub struct GroupTable {
    fields: Fields,
    disk: Arc<dyn Disk>,
    /// `None` for a process that only reads the table.
    peers: Option<Arc<dyn Peers>>,
}

impl std::fmt::Debug for GroupTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupTable").finish_non_exhaustive()
    }
}

impl GroupTable {
    /// Opens the table of the store at `root` for a process that shares it; `None` if there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the file is not a table of this version; [`Error::Unsupported`] if it
    /// is not a regular file; [`Error::Io`].
    pub fn open(
        disk: &Arc<dyn Disk>,
        root: &Path,
        peers: Arc<dyn Peers>,
    ) -> Result<Option<GroupTable>> {
        GroupTable::map(disk, root, Some(peers))
    }

    /// Opens the table for reading; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`GroupTable::open`].
    pub fn open_read(disk: &Arc<dyn Disk>, root: &Path) -> Result<Option<GroupTable>> {
        GroupTable::map(disk, root, None)
    }

    fn map(
        disk: &Arc<dyn Disk>,
        root: &Path,
        peers: Option<Arc<dyn Peers>>,
    ) -> Result<Option<GroupTable>> {
        let access = match peers {
            Some(_) => Access::ReadWrite,
            None => Access::Read,
        };
        let found = FILE.open(&**disk, root, access)?;
        Ok(found.map(|fields| GroupTable {
            fields,
            disk: Arc::clone(disk),
            peers,
        }))
    }

    /// Creates the table of a store that has none. No other process may do so meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Io`].
    pub fn create(disk: &Arc<dyn Disk>, root: &Path, peers: Arc<dyn Peers>) -> Result<GroupTable> {
        FILE.create(&**disk, root)?;
        let found = GroupTable::open(disk, root, peers)?;
        let removed = || Error::corrupt(root.join(names::GROUPS), 0, "removed by another process");
        found.ok_or_else(removed)
    }

    /// Removes the table, which no process uses.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn remove(disk: &dyn Disk, root: &Path) -> Result<()> {
        FILE.remove(disk, root)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.fields.path()
    }

    /// The slot of this process; 0 if it only reads the table.
    pub fn own_slot(&self) -> u32 {
        self.peers.as_ref().map_or(0, |peers| peers.slot())
    }

    /// Whether another process holds a slot.
    pub fn is_alive(&self, slot: u32) -> bool {
        self.peers
            .as_ref()
            .is_some_and(|peers| peers.is_alive(slot))
    }

    /// Returns an error if an access has faulted; see [`Fields::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.fields.check()
    }

    /// Reserves the blocks of an entry at `at`, if it is the first of its step.
    fn reserve(&self, begin: usize, at: usize) -> Result<()> {
        FILE.reserve(&*self.disk, &self.fields, begin, at)
    }

    /// Grows with each change that concerns other processes.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.fields.word(AT_CHANGES)
    }

    /// Notifies the processes that consume of a change.
    pub fn notify(&self) {
        self.fields.notify(AT_CHANGES);
    }

    /// Sleeps until the table changes, at most for `timeout`. Returns at once if it has changed
    /// since it was `seen`.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        self.fields.sleep_on(AT_CHANGES, seen, timeout);
    }

    /// The beat of a slot; `None` if its process has no consumers.
    pub fn beat(&self, slot: u32) -> Option<u64> {
        Some(self.fields.load(beat_at(slot))).filter(|beat| *beat != NO_BEAT)
    }

    /// Shows that this process runs.
    pub fn show_beat(&self) {
        let at = beat_at(self.own_slot());
        self.fields
            .store(at, self.fields.load(at).wrapping_add(1).max(1));
    }

    /// Shows that this process has no consumers.
    pub fn clear_beat(&self) {
        self.fields.store(beat_at(self.own_slot()), NO_BEAT);
    }

    /// Clears what an earlier process with the slot of this one has left: its consumers and its
    /// hold on the lock. It is dead, but the others take it for this process.
    pub fn end_earlier(&self) {
        self.clear_beat();
        if shared_lock::holder(self) == self.own_slot() {
            // The word keeps saying that a holder died inside.
            drop(self.try_lock());
        }
    }

    /// Takes the lock of those that change the table, unless a living process holds it. One thread
    /// of a process at a time may call it. It does not wait, so the caller may hold other locks.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn try_lock(&self) -> Result<Option<Held<'_>>> {
        let taken = shared_lock::acquire(self, self.own_slot(), Some(Duration::ZERO));
        self.check()?;
        Ok(taken.map(|taken| Held {
            table: self,
            dirty: taken == Taken::Dirty,
        }))
    }

    /// Waits while another living process holds the lock, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn await_free(&self, timeout: Duration) -> Result<()> {
        shared_lock::await_free(self, timeout);
        self.check()
    }

    /// Whether somebody may be asleep until the lock is released.
    #[cfg(test)]
    pub fn is_awaited(&self) -> bool {
        shared_lock::is_awaited(self)
    }
}

fn beat_at(slot: u32) -> usize {
    AT_BEATS + slot.min(SLOTS) as usize * size_of::<u64>()
}

/// The lock, held until it is dropped.
pub struct Held<'a> {
    table: &'a GroupTable,
    /// Whether a process died while it changed the table.
    pub dirty: bool,
}

impl Held<'_> {
    /// Notes that the table is whole.
    pub fn clean(&mut self) {
        self.dirty = false;
        shared_lock::clean(self.table);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // A word that was overwritten belongs to another process, or to nobody.
        shared_lock::release(self.table, self.table.own_slot());
    }
}

impl LockWord for GroupTable {
    const SPINS: u32 = 16;

    fn load(&self) -> u64 {
        self.fields.load(AT_LOCK)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        self.fields.exchange(AT_LOCK, old, new)
    }

    fn sleep(&self, seen: u64, timeout: Duration) {
        let at = AT_LOCK + LOW_WORD;
        self.fields.sleep_on(at, low_u32(seen), timeout);
    }

    fn wake(&self) {
        self.fields.wake(AT_LOCK + LOW_WORD);
    }

    fn is_alive(&self, slot: u32) -> bool {
        (1..=SLOTS).contains(&slot) && GroupTable::is_alive(self, slot)
    }
}

/// Place of an entry.
fn entry_at(begin: usize, len: usize, number: u32) -> usize {
    begin + index(u64::from(number)) * len
}
