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
//! names are checked before use. What changes owners does so under the lock; an owner stores its
//! progress without it ([`fence`](crate::engine::service::fence)).

pub mod joint;
mod members;
mod queues;
mod topics;

pub use members::{MEMBERS_MAX, Member};
pub use queues::{Row, check_offset};
pub use topics::GroupTopic;

use crate::disk::{Disk, Kind};
use crate::engine::directory::names;
use crate::engine::service::shared_lock::{self, LockWord, SLOTS, Taken};
use crate::error::{At, Error, Op, Result};
use crate::interrupt;
use crate::num::{index, low_u32};
use crate::region::{Access, Fault, PAGE, Region};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"FOREBAYG";
const VERSION: u32 = 2;
const AT_VERSION: usize = 8;
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
/// Blocks are reserved in steps of so many bytes.
const STEP_LEN: usize = 64 << 10;
/// Byte of the low half in a word of 8 bytes, on which processes sleep.
const LOW_WORD: usize = if cfg!(target_endian = "big") { 4 } else { 0 };
/// How long a process waits for another one that changes the table.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two checks whether one still does.
const LOCK_PAUSE: Duration = Duration::from_millis(1);
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
    region: Region,
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// `None` for a process that only reads the table.
    peers: Option<Arc<dyn Peers>>,
    /// The first access that faulted.
    fault: OnceLock<Fault>,
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
        let path = root.join(names::GROUPS);
        let Some(entry) = disk.stat(&path)? else {
            return Ok(None);
        };
        if entry.kind != Kind::File {
            let what = format!("{} is not a regular file", path.display());
            return Err(Error::Unsupported { what });
        }
        if entry.len != TABLE_LEN as u64 {
            let reason = format!("{} bytes, expected {TABLE_LEN}", entry.len);
            return Err(Error::corrupt(&path, 0, reason));
        }
        let access = match peers {
            Some(_) => Access::ReadWrite,
            None => Access::Read,
        };
        let region = disk.map(&path, TABLE_LEN, access)?;
        let table = GroupTable {
            region,
            path,
            disk: Arc::clone(disk),
            peers,
            fault: OnceLock::new(),
        };
        let magic = table.region.words::<8>(0).at(Op::Read, &table.path)?;
        if magic != MAGIC || table.word(AT_VERSION) != VERSION {
            return Err(table.corrupt(0, "no table of groups, or one of another version"));
        }
        table.check()?;
        Ok(Some(table))
    }

    /// Creates the table of a store that has none. No other process may do so meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Io`].
    pub fn create(disk: &Arc<dyn Disk>, root: &Path, peers: Arc<dyn Peers>) -> Result<GroupTable> {
        let path = root.join(names::GROUPS);
        let new = root.join(format!("{}.new", names::GROUPS));
        if disk.stat(&new)?.is_some() {
            disk.unlink(&new)?;
        }
        disk.create(&new, TABLE_LEN as u64)?;
        disk.reserve(&new, 0, AT_TOPICS as u64)?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_ne_bytes());
        disk.write_at(&new, 0, &head)?;
        disk.rename(&new, &path)?;
        let found = GroupTable::open(disk, root, peers)?;
        found.ok_or_else(|| Error::corrupt(&path, 0, "removed by another process"))
    }

    /// Removes the table, which no process uses.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn remove(disk: &dyn Disk, root: &Path) -> Result<()> {
        let path = root.join(names::GROUPS);
        match disk.stat(&path)? {
            Some(_) => disk.unlink(&path),
            None => Ok(()),
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
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

    /// Returns an error if an access has faulted. A value that cannot be read is 0.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.fault.get().map_or(Ok(()), |fault| {
            let error = std::io::Error::other(*fault);
            Err(Error::io(Op::Access, &self.path, error))
        })
    }

    fn noted<T>(&self, done: std::io::Result<T>, otherwise: T) -> T {
        done.unwrap_or_else(|error| {
            if let Some(fault) = Fault::of(&error) {
                let _ = self.fault.set(fault);
            }
            otherwise
        })
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.noted(self.region.load_u32(at), 0)
    }

    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.noted(self.region.load_u64(at), 0)
    }

    fn set_word(&self, at: usize, value: u32) {
        self.noted(self.region.set_words(at, &value.to_ne_bytes()), ());
    }

    fn store(&self, at: usize, value: u64) {
        self.noted(self.region.store_u64(at, value), ());
    }

    /// Exchanges a word. A word that cannot be accessed counts as exchanged, so that nobody tries
    /// for ever; see [`GroupTable::check`].
    #[inline]
    fn exchange(&self, at: usize, old: u64, new: u64) -> bool {
        self.noted(self.region.exchange_u64(at, old, new), old) == old
    }

    #[cold]
    fn corrupt(&self, at: usize, reason: impl Into<String>) -> Error {
        Error::corrupt(&self.path, at as u64, reason)
    }

    /// Reserves the blocks of an entry at `at`, if it is the first of its step.
    fn reserve(&self, begin: usize, at: usize) -> Result<()> {
        match (at - begin).is_multiple_of(STEP_LEN) {
            true => self.disk.reserve(&self.path, at as u64, STEP_LEN as u64),
            false => Ok(()),
        }
    }

    /// Grows with each change that concerns other processes.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.word(AT_CHANGES)
    }

    /// Tells the processes that consume of a change.
    pub fn notify(&self) {
        self.region.notify(AT_CHANGES);
    }

    /// Sleeps until the table changes, at most for `timeout`. Returns at once if it has changed
    /// since it was `seen`.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        self.region.sleep_on(AT_CHANGES, seen, timeout);
    }

    /// The beat of a slot; `None` if its process has no consumers.
    pub fn beat(&self, slot: u32) -> Option<u64> {
        Some(self.load(beat_at(slot))).filter(|beat| *beat != NO_BEAT)
    }

    /// Shows that this process runs.
    pub fn show_beat(&self) {
        let at = beat_at(self.own_slot());
        self.store(at, self.load(at).wrapping_add(1).max(1));
    }

    /// Shows that this process has no consumers.
    pub fn clear_beat(&self) {
        self.store(beat_at(self.own_slot()), NO_BEAT);
    }

    /// Shows that an earlier process with the slot of this one is dead, which the others cannot see
    /// any more: it has no consumers, and does not hold the lock.
    pub fn end_earlier(&self) {
        self.clear_beat();
        if shared_lock::holder(self) == self.own_slot() {
            // The word keeps saying that a holder died inside.
            drop(self.lock());
        }
    }

    /// Waits while another process holds the lock of those that change the table, if the caller can
    /// interrupt that: [`GroupTable::lock`] asks nobody, since who takes it holds other locks. The
    /// caller of this holds none.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a living process keeps it; [`Error::Io`].
    pub fn await_lock(&self) -> Result<()> {
        let began = Instant::now();
        let is_held = || match shared_lock::holder(self) {
            0 => false,
            holder => LockWord::is_alive(self, holder),
        };
        while interrupt::is_allowed() && is_held() {
            if began.elapsed() >= LOCK_TIMEOUT || interrupt::is_raised() {
                let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Busy { waited_ms });
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        self.check()
    }

    /// Takes the lock of those that change the table. One thread of a process at a time may call
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a living process keeps it; [`Error::Io`].
    pub fn lock(&self) -> Result<Held<'_>> {
        let taken = shared_lock::acquire(self, self.own_slot(), Some(LOCK_TIMEOUT));
        self.check()?;
        let Some(taken) = taken else {
            let waited_ms = u64::try_from(LOCK_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Busy { waited_ms });
        };
        Ok(Held {
            table: self,
            dirty: taken == Taken::Dirty,
        })
    }
}

fn beat_at(slot: u32) -> usize {
    AT_BEATS + slot.min(SLOTS) as usize * size_of::<u64>()
}

/// The lock, held until it is dropped.
pub struct Held<'a> {
    table: &'a GroupTable,
    /// Whether a process has died that changed the table.
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
        GroupTable::load(self, AT_LOCK)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        GroupTable::exchange(self, AT_LOCK, old, new)
    }

    fn sleep(&self, seen: u64, timeout: Duration) {
        self.region
            .sleep_on(AT_LOCK + LOW_WORD, low_u32(seen), timeout);
    }

    fn wake(&self) {
        self.region.wake(AT_LOCK + LOW_WORD);
    }

    fn is_alive(&self, slot: u32) -> bool {
        (1..=SLOTS).contains(&slot) && GroupTable::is_alive(self, slot)
    }
}

/// Place of an entry.
fn entry_at(begin: usize, len: usize, number: u32) -> usize {
    begin + index(u64::from(number)) * len
}
