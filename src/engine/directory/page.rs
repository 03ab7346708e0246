//! The state page, `forebay.state`: marks that other processes read beside the writer, and what a
//! writer leaves for the next one.
//!
//! One page of 4096 bytes in the machine's byte order:
//!
//! ```text
//! at    width  field
//! 0     8      magic "FOREBAY1"
//! 8     u32    version, 1
//! 12    u32    1 after a clean close, else 0
//! 16    16     boot id of the machine that wrote the marks
//! 32    u64    epoch: one more with each opening for writing
//! 40    u64    end of the log when the epoch began
//! 48    u64    process id of the writer, 0 without one
//! 56    u32    bytes of the store host: 8 or 20
//! 60    20     store host: address, then port, as in a record
//! 80    u64    bytes of a commit log file
//! 88    u64    entries of a queue file
//! 96    u32    slots of an index file
//! 100   u32    entries of an index file
//! 104   u32    CRC-32 of bytes 56 to 103
//! 108   u32    1 where every record of the epoch carries a checksum over the whole
//! 112   u32    1 from when a store is opened that another system wrote to until it is recovered
//! 116   u32    1 where the writer builds no index
//! 120   u32    changes when files that were there have become others: readers open them again
//! 128   u64    published: end of what readers may see
//! 192   u64    dispatched: end of what queues and index hold
//! 256   u64    durable: end of what is on the disk
//! 320   u64    minimum: first position of the log
//! 384   u64    settled: end of what is durable in log, queues and index alike
//! 448   u32    changes when there is a commit to be taken up, and its sleepers are woken
//! 456   5 u64  identity of this file while its writer vouches for the page cache, else zeros:
//!              mount, device, subvolume, inode, time of its birth in ns since 1970
//! 512   u32    changes when a commit was taken up, and its sleepers are woken
//! 2048  16 each    the last 128 epochs, each in the place of its number modulo 128: u64 when it
//!                  began, in ns since 1970, u64 end of the log then
//! ```
//!
//! The marks lie on cache lines of their own. While the page cache is kept they are exact, for it
//! outlives a process. Otherwise `durable` and `settled` are lower bounds (each is stored only
//! after the sync that it tells of) and the other two mean nothing.
//!
//! That the boot is the same does not show that the page cache was kept: a device can go away and
//! come back, a snapshot be mounted, an image be copied within one boot. So the identity of the
//! file has to be the same as well ([`Identity`]); zeros, as a page of release 0.1.0 has there, are
//! nobody's. The writer vouches for the page cache as long as it knows of nothing that was stored
//! and may be missing from it. It takes its word back when a sync fails, since the kernel may drop
//! the pages, and when it begins to recover; it gives it again once everything was synced. Boot id,
//! identity and marks lie in one sector of 512 bytes, which is stored as a whole.
//!
//! The page is a hint like every cache: no value is believed before the log confirms it.

use crate::disk::{Disk, Identity, Kind, RealDisk, replace};
use crate::engine::directory::names;
use crate::error::{Error, Op, Result};
use crate::num::{index, short};
use crate::plant::{Bug, planted};
use crate::record::HostBytes;
use crate::region::{Access, Fault, PAGE, Region};
use crossbeam_utils::CachePadded;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name of the file.
pub const FILE_NAME: &str = names::STATE;

const MAGIC: [u8; 8] = *b"FOREBAY1";
const VERSION: u32 = 1;
const _: () = assert!(AT_VERSION == MAGIC.len());
const AT_VERSION: usize = 8;
const AT_CLEAN: usize = 12;
const AT_BOOT_ID: usize = 16;
const AT_EPOCH: usize = 32;
const AT_EPOCH_START: usize = 40;
const AT_PID: usize = 48;
const AT_HOST_LEN: usize = 56;
const AT_HOST: usize = 60;
const AT_LOG_FILE_LEN: usize = 80;
const AT_QUEUE_FILE_ENTRIES: usize = 88;
const AT_INDEX_SLOTS: usize = 96;
const AT_INDEX_ENTRIES: usize = 100;
const AT_CRC: usize = 104;
const AT_CHECKSUMS: usize = 108;
const AT_FOREIGN: usize = 112;
const AT_UNINDEXED: usize = 116;
const AT_EXCHANGES: usize = 120;
const AT_PUBLISHED: usize = 128;
const AT_DISPATCHED: usize = 192;
const AT_DURABLE: usize = 256;
const AT_MINIMUM: usize = 320;
const AT_SETTLED: usize = 384;
const AT_PENDING: usize = 448;
const AT_IDENTITY: usize = 456;
const _: () = assert!(AT_IDENTITY + IDENTITY_LEN <= AT_TAKEN);
const AT_TAKEN: usize = 512;
const AT_EPOCHS: usize = 2048;
const _: () = assert!(AT_EPOCHS + index(EPOCHS_KEPT) * EPOCH_LEN == PAGE);

/// Bytes that the identity takes.
const IDENTITY_LEN: usize = 5 * size_of::<u64>();
/// Directories of a store that may be mounts of their own.
const PARTS: [&str; 3] = [names::COMMIT_LOG, names::QUEUES, names::INDEX];

/// Epochs whose beginnings are kept.
const EPOCHS_KEPT: u64 = 128;
/// Marks, and the bytes that one of them takes.
const MARKS: usize = (AT_PENDING - AT_PUBLISHED) / MARK_LEN;
const MARK_LEN: usize = 64;
/// Bytes that an epoch takes.
const EPOCH_LEN: usize = 2 * size_of::<u64>();

/// Sizes of a store's files, fixed when it is created, each within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a commit log file.
    pub log_file_len: u64,
    /// Entries of a queue file.
    pub queue_file_entries: u64,
    /// Slots of an index file.
    pub index_slots: u32,
    /// Entries of an index file.
    pub index_entries: u32,
}

impl Geometry {
    /// Bytes of a commit log file. RocketMQ takes any number that is an `int` in Java; a file that
    /// has no room for a record and its filler is no log.
    pub const LOG_FILE_LEN: RangeInclusive<u64> = 128..=1 << 31;
    /// Entries of a queue file, whose length is an `int` in Java.
    pub const QUEUE_FILE_ENTRIES: RangeInclusive<u64> = 1..=(1 << 31) / 20;
    /// Slots of an index file.
    pub const INDEX_SLOTS: RangeInclusive<u32> = 1..=1 << 28;
    /// Entries of an index file, of which the first is never used.
    pub const INDEX_ENTRIES: RangeInclusive<u32> = 2..=80_000_000;

    /// Whether each size is within its bounds.
    fn is_within_bounds(&self) -> bool {
        Geometry::LOG_FILE_LEN.contains(&self.log_file_len)
            && Geometry::QUEUE_FILE_ENTRIES.contains(&self.queue_file_entries)
            && Geometry::INDEX_SLOTS.contains(&self.index_slots)
            && Geometry::INDEX_ENTRIES.contains(&self.index_entries)
    }
}

/// One of the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// End of what readers may see.
    Published = AT_PUBLISHED as isize,
    /// End of what queues and index hold.
    Dispatched = AT_DISPATCHED as isize,
    /// End of what is on the disk.
    Durable = AT_DURABLE as isize,
    /// First position of the log.
    Minimum = AT_MINIMUM as isize,
    /// End of what is durable in log, queues and index.
    Settled = AT_SETTLED as isize,
}

/// What became of the page cache that the last writer stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Everything that was stored is in it.
    Kept,
    /// The machine is the same, and nothing shows that the file system is: what was stored may be
    /// there, or missing, or be there and missing on the disk.
    Unknown,
    /// The machine was started again: only what the disk holds is left.
    Lost,
}

/// One opening for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Its number, from 1 on.
    pub number: u64,
    /// When it began, in ns since 1970: tells it from one of the same number in a store that was
    /// put in the place of this one.
    pub began_ns: u64,
    /// End of the log when it began.
    pub start: u64,
}

/// How a log came to be as it is. Who kept a place in it sees by this whether it came back shorter
/// since then, or is another log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// Number of the newest.
    pub number: u64,
    /// The last ones that are known, in order.
    pub known: Vec<Epoch>,
}

impl Epochs {
    /// Looks at the store at `root`, open or not; `None` where nobody of ours has written to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], and [`Error::Unsupported`] where the page is no regular file.
    pub fn of(root: &Path) -> Result<Option<Epochs>> {
        let page = StatePage::open(&RealDisk, root, Access::Read)?;
        Ok(page.map(|page| page.epochs()))
    }
}

/// A word that processes sleep on. Its value means nothing but that it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Rung by who has left a commit for the writer.
    Pending = AT_PENDING as isize,
    /// Rung by the writer when it has dealt with one.
    Taken = AT_TAKEN as isize,
}

/// The mapped page, or memory in its place where there is none on disk.
#[derive(Debug)]
pub struct StatePage {
    region: Region,
    /// The marks that this process has stored, one after the other as they lie in the page. It
    /// moves them alone where it may, and then loads none from a map, which can fault.
    own: [CachePadded<AtomicU64>; MARKS],
    /// The first access that faulted.
    fault: OnceLock<Fault>,
    /// Of the machine as it runs, zeros where it does not say.
    boot_id: [u8; 16],
    /// Of the file as it is reached, where the store lies beside it as a whole.
    identity: Option<Identity>,
}

impl StatePage {
    /// A page in memory, for a directory that has none and may not get one.
    pub fn in_memory() -> Result<StatePage> {
        let path = PathBuf::from(FILE_NAME);
        let region = Region::anonymous(PAGE, &path).map_err(|e| Error::io(Op::Map, &path, e))?;
        Ok(StatePage::new(region, [0; 16], None))
    }

    /// The page of the store at `root`; `None` where there is none or it is none of ours.
    pub fn open(disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<StatePage>> {
        let path = root.join(FILE_NAME);
        match disk
            .stat(&path)
            .map_err(|e| Error::io(Op::Stat, &path, e))?
        {
            Some(entry) if entry.kind == Kind::File && entry.len == PAGE as u64 => {}
            Some(entry) if entry.kind != Kind::File => {
                let what = format!("{} is not a regular file", path.display());
                return Err(Error::Unsupported { what });
            }
            _ => return Ok(None),
        }
        if access == Access::ReadWrite {
            // A page that is shared with a copy of the store needs another block when it is stored
            // to: where there is none, opening says so.
            let reserved = disk.reserve(&path, 0, PAGE as u64);
            reserved.map_err(|e| Error::io(Op::Reserve, &path, e))?;
        }
        let region = disk
            .map(&path, PAGE, access)
            .map_err(|e| Error::io(Op::Map, &path, e))?;
        let page = StatePage::of(disk, root, region);
        let magic = page
            .region
            .words::<8>(0)
            .map_err(|e| Error::io(Op::Read, &path, e))?;
        let ours = magic == MAGIC && page.word(AT_VERSION) == VERSION;
        for (at, mark) in (AT_PUBLISHED..).step_by(MARK_LEN).zip(&page.own) {
            mark.store(page.load(at), Ordering::Relaxed);
        }
        page.check()?;
        Ok(ours.then_some(page))
    }

    /// Makes the page of a new store, or of one that has none, durably, and leaves the marks zero.
    /// At no moment is a page that was there away: a store is known by it.
    pub fn create(disk: &dyn Disk, root: &Path) -> Result<StatePage> {
        let path = root.join(FILE_NAME);
        let io = |op| move |error| Error::io(op, root.join(FILE_NAME), error);
        let mut page = MAGIC.to_vec();
        page.extend(VERSION.to_ne_bytes());
        page.resize(PAGE, 0);
        replace(disk, &path, &page).map_err(io(Op::Write))?;
        disk.reserve(&path, 0, PAGE as u64)
            .map_err(io(Op::Reserve))?;
        let region = disk
            .map(&path, PAGE, Access::ReadWrite)
            .map_err(io(Op::Map))?;
        Ok(StatePage::of(disk, root, region))
    }

    fn of(disk: &dyn Disk, root: &Path, region: Region) -> StatePage {
        let own = disk.identity(&root.join(FILE_NAME));
        let is_beside = |own: &Identity| {
            PARTS.iter().all(|part| {
                let path = root.join(part);
                match disk.identity(&path) {
                    Some(part) => part.is_beside(own),
                    // It is made later, beside the page.
                    None => matches!(disk.stat(&path), Ok(None)),
                }
            })
        };
        StatePage::new(region, disk.boot_id(), own.filter(is_beside))
    }

    fn new(region: Region, boot_id: [u8; 16], identity: Option<Identity>) -> StatePage {
        StatePage {
            region,
            own: Default::default(),
            fault: OnceLock::new(),
            boot_id,
            identity,
        }
    }

    /// An error where an access to the page has faulted since it was mapped. To be asked after a
    /// value was read and before anything is decided on it: what cannot be read is 0.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.fault.get().map_or(Ok(()), |fault| {
            let error = std::io::Error::other(*fault);
            Err(Error::io(Op::Access, self.region.path(), error))
        })
    }

    /// Keeps the fault of an access, if it had one.
    #[inline]
    fn noted<T: Default>(&self, done: std::io::Result<T>) -> T {
        done.unwrap_or_else(|error| {
            if let Some(fault) = Fault::of(&error) {
                let _ = self.fault.set(fault);
            }
            T::default()
        })
    }

    fn words<const N: usize>(&self, at: usize) -> [u8; N] {
        let found = self.region.words(at);
        self.noted(found.map(Some)).unwrap_or([0; N])
    }

    fn set_words(&self, at: usize, bytes: &[u8]) {
        self.noted(self.region.set_words(at, bytes));
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.words(at))
    }

    fn load(&self, at: usize) -> u64 {
        self.noted(self.region.load_u64(at))
    }

    fn store(&self, at: usize, value: u64) {
        self.noted(self.region.store_u64(at, value));
    }

    #[inline]
    fn own(&self, mark: Mark) -> Option<&AtomicU64> {
        let mark = self.own.get((mark as usize - AT_PUBLISHED) / MARK_LEN)?;
        self.region.is_writable().then_some(mark)
    }

    /// Reads a mark.
    #[inline]
    pub fn get(&self, mark: Mark) -> u64 {
        match self.own(mark) {
            Some(own) => own.load(Ordering::Acquire),
            None => self.load(mark as usize),
        }
    }

    /// Moves a mark. What it covers was stored before.
    #[inline]
    pub fn set(&self, mark: Mark, position: u64) {
        if let Some(own) = self.own(mark) {
            own.store(position, Ordering::Release);
            self.store(mark as usize, position);
        }
    }

    /// The value of a word, to be slept on later.
    pub fn look(&self, word: Word) -> u32 {
        self.noted(self.region.load_u32(word as usize))
    }

    /// Sleeps until a word is rung, unless that has happened since it was `seen`; at most for
    /// `timeout`, and perhaps less.
    pub fn sleep_on(&self, word: Word, seen: u32, timeout: Duration) {
        self.region.sleep_on(word as usize, seen, timeout);
    }

    /// Wakes those who sleep on a word, in whatever process.
    pub fn ring(&self, word: Word) {
        self.region.ring(word as usize);
    }

    /// Whether the marks were written since the machine started.
    fn is_of_this_boot(&self) -> bool {
        self.words::<16>(AT_BOOT_ID) == self.boot_id
    }

    /// What became of the page cache that the last writer stored to, where it did not close the
    /// store.
    pub fn cache(&self) -> Cache {
        let written = self.words::<16>(AT_BOOT_ID);
        if written == [0; 16] || self.boot_id == [0; 16] {
            return Cache::Unknown;
        }
        if written != self.boot_id {
            return Cache::Lost;
        }
        let same = self
            .identity
            .is_some_and(|identity| self.words_of_identity() == words_of(&identity));
        match same || planted(Bug::TrustBoot) {
            true => Cache::Kept,
            false => Cache::Unknown,
        }
    }

    fn words_of_identity(&self) -> [u64; 5] {
        std::array::from_fn(|number| self.load(AT_IDENTITY + number * size_of::<u64>()))
    }

    fn set_identity(&self, words: [u64; 5]) {
        for (number, word) in words.into_iter().enumerate() {
            self.store(AT_IDENTITY + number * size_of::<u64>(), word);
        }
    }

    /// Says that the page cache has all that was stored.
    pub fn vouch(&self) {
        self.set_identity(self.identity.as_ref().map_or([0; 5], words_of));
    }

    /// Takes back what [`StatePage::vouch`] said. It need not be durable: who does not find it here
    /// has not found this page cache.
    pub fn doubt(&self) {
        if planted(Bug::VouchBlindly) {
            return;
        }
        self.set_identity([0; 5]);
    }

    /// Whether a writer of this boot is at work, or died at it.
    pub fn is_written_to(&self) -> bool {
        self.pid().is_some() && self.is_of_this_boot()
    }

    /// Whether a writer went away without closing the store, or is at work, and what it stored may
    /// be in the page cache alone.
    pub fn is_halted(&self) -> bool {
        self.epoch() > 0 && !self.is_clean() && self.cache() != Cache::Lost
    }

    /// Whether the last writer closed the store.
    pub fn is_clean(&self) -> bool {
        self.word(AT_CLEAN) == 1
    }

    /// Process that writes, where one does.
    pub fn pid(&self) -> Option<u32> {
        u32::try_from(self.load(AT_PID))
            .ok()
            .filter(|pid| *pid != 0)
    }

    /// Number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.load(AT_EPOCH)
    }

    /// The epochs that are kept.
    pub fn epochs(&self) -> Epochs {
        let last = self.epoch();
        let first = last.saturating_sub(EPOCHS_KEPT - 1).max(1);
        let kept = (first..=last).map(|number| {
            let at = place_of(number);
            Epoch {
                number,
                began_ns: self.load(at),
                start: self.load(at + size_of::<u64>()),
            }
        });
        Epochs {
            number: last,
            known: kept.filter(|epoch| epoch.began_ns > 0).collect(),
        }
    }

    /// Checksum of what stays as it was when the store was created: host and sizes.
    fn fixed_crc(&self) -> u32 {
        crc32fast::hash(&self.words::<{ AT_CRC - AT_HOST_LEN }>(AT_HOST_LEN))
    }

    fn fixed_holds(&self) -> bool {
        self.word(AT_CRC) == self.fixed_crc()
    }

    /// Where the epoch began, if every record since then carries a checksum over the whole.
    pub fn checksums_from(&self) -> Option<u64> {
        (self.word(AT_CHECKSUMS) == 1).then(|| self.load(AT_EPOCH_START))
    }

    /// Sizes of the files; `None` where they were never set, are damaged, or are none that a store
    /// can have.
    pub fn geometry(&self) -> Option<Geometry> {
        if !self.fixed_holds() {
            return None;
        }
        let geometry = Geometry {
            log_file_len: self.load(AT_LOG_FILE_LEN),
            queue_file_entries: self.load(AT_QUEUE_FILE_ENTRIES),
            index_slots: self.word(AT_INDEX_SLOTS),
            index_entries: self.word(AT_INDEX_ENTRIES),
        };
        geometry.is_within_bounds().then_some(geometry)
    }

    /// Keeps the sizes of the files and the store host.
    pub fn set_fixed(&self, geometry: &Geometry, host: &HostBytes) {
        self.set_geometry(geometry);
        self.set_host(host);
        self.set_words(AT_CRC, &self.fixed_crc().to_ne_bytes());
    }

    fn set_geometry(&self, geometry: &Geometry) {
        self.store(AT_LOG_FILE_LEN, geometry.log_file_len);
        self.store(AT_QUEUE_FILE_ENTRIES, geometry.queue_file_entries);
        self.set_words(AT_INDEX_SLOTS, &geometry.index_slots.to_ne_bytes());
        self.set_words(AT_INDEX_ENTRIES, &geometry.index_entries.to_ne_bytes());
    }

    /// The store host that was given at creation.
    pub fn host(&self) -> Option<HostBytes> {
        if !self.fixed_holds() {
            return None;
        }
        let bytes = self.words::<20>(AT_HOST);
        HostBytes::from_bytes(bytes.get(..self.word(AT_HOST_LEN) as usize)?)
    }

    fn set_host(&self, host: &HostBytes) {
        let bytes = host.as_bytes();
        self.set_words(AT_HOST, bytes);
        self.set_words(AT_HOST_LEN, &short(bytes.len()).to_ne_bytes());
    }

    /// Whether a recovery of what another system wrote was begun and did not end: the marks say
    /// nothing of the log's end.
    pub fn is_foreign(&self) -> bool {
        self.word(AT_FOREIGN) == 1
    }

    /// Says that a recovery begins. `foreign`: of what another system may have written.
    pub fn begin_recovery(&self, foreign: bool) {
        self.set_words(AT_FOREIGN, &u32::from(foreign).to_ne_bytes());
        self.doubt();
        self.end_epoch(false);
    }

    /// Whether the writer of this epoch builds no index: what it appends is found in the log alone.
    pub fn is_unindexed(&self) -> bool {
        self.word(AT_UNINDEXED) == 1
    }

    /// Says whether the epoch that begins will build no index.
    pub fn set_unindexed(&self, unindexed: bool) {
        self.set_words(AT_UNINDEXED, &u32::from(unindexed).to_ne_bytes());
    }

    /// A number that changes when files that were there have become others, under their names or
    /// new ones.
    pub fn exchanges(&self) -> u32 {
        self.word(AT_EXCHANGES)
    }

    /// Tells readers to open files again, before they are told of what is in them.
    pub fn count_exchange(&self) {
        let next = self.exchanges().wrapping_add(1);
        self.set_words(AT_EXCHANGES, &next.to_ne_bytes());
    }

    /// Begins an epoch: this process writes, from `end` on. To be made durable before the first
    /// append.
    ///
    /// `checksums`: all its records will carry one. `now_ns`: the wall clock.
    pub fn begin_epoch(&self, end: u64, checksums: bool, now_ns: u64) {
        let checksums = u32::from(checksums).to_ne_bytes();
        // What recovery has cut off and built again.
        self.count_exchange();
        // First where the epoch begins: what is said of its records is said from there on.
        self.store(AT_EPOCH_START, end);
        self.set_words(AT_CHECKSUMS, &checksums);
        self.set_words(AT_FOREIGN, &0u32.to_ne_bytes());
        self.set_words(AT_CLEAN, &0u32.to_ne_bytes());
        self.set_words(AT_BOOT_ID, &self.boot_id);
        let number = self.epoch().saturating_add(1);
        let at = place_of(number);
        self.store(at, now_ns);
        self.store(at + size_of::<u64>(), end);
        self.store(AT_EPOCH, number);
        self.store(AT_PID, u64::from(std::process::id()));
    }

    /// Ends an epoch. `clean`: everything is durable, queues and index complete.
    pub fn end_epoch(&self, clean: bool) {
        self.store(AT_PID, 0);
        self.set_words(AT_CLEAN, &u32::from(clean).to_ne_bytes());
    }

    /// Makes the page durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        self.check()?;
        let synced = disk.sync_range(&self.region, 0, PAGE);
        synced.map_err(|e| Error::io(Op::Sync, self.region.path(), e))
    }
}

/// An identity as it is kept.
fn words_of(identity: &Identity) -> [u64; 5] {
    [
        identity.mount,
        identity.device,
        identity.subvolume,
        identity.inode,
        identity.born_ns,
    ]
}

/// Where the beginning of an epoch is kept.
fn place_of(epoch: u64) -> usize {
    AT_EPOCHS + index(epoch % EPOCHS_KEPT) * EPOCH_LEN
}
