//! The state page, `forebay.state`: marks that other processes read while the writer runs, and
//! information for the next writer.
//!
//! One page of 4096 bytes in the machine's byte order:
//!
//! ```text
//! at    width  field
//! 0     8      magic "FOREBAY1"
//! 8     u32    version, 1
//! 12    u32    1 after a clean close, else 0
//! 16    16     boot id of the machine that wrote the marks
//! 32    u64    epoch: incremented by each opening for writing
//! 40    u64    end of the log when the epoch began
//! 48    u64    process id of the writer, 0 if there is none
//! 56    u32    bytes of the store host: 8 or 20
//! 60    20     store host: address, then port, as in a record
//! 80    u64    bytes of a commit log file
//! 88    u64    entries of a queue file
//! 96    u32    slots of an index file
//! 100   u32    entries of an index file
//! 104   u32    CRC-32 of bytes 56 to 103
//! 108   u32    1 if every record of the epoch carries a whole-record checksum
//! 112   u32    1 while a store that another system wrote to is being recovered
//! 116   u32    1 if the writer builds no index
//! 120   u32    changes when existing files are replaced: readers reopen them
//! 128   u64    published: end of what readers may see
//! 192   u64    dispatched: end of what queues and index cover
//! 256   u64    durable: end of the durable log
//! 320   u64    minimum: first position of the log
//! 384   u64    full pass: end of what is durable in log, queues and index
//! 448   u32    changes when a commit is pending; processes sleep on it
//! 456   5 u64  identity of this file while its writer vouches for the page cache, else zeros:
//!              mount, device, subvolume, inode, creation time in ns since 1970
//! 512   u32    changes when a commit was taken up; processes sleep on it
//! 576   u32    changes when the dispatched mark has moved and when an epoch begins; readers in
//!              other processes sleep on it
//! 580   u32    1 if one of them may sleep on it; see `sharing.rs`
//! 640   u64    end of the bytes after the log that are being erased; 0 once that is durable
//! 648   u64    position of the last record at a clean close, plus 1; 0 if unknown
//! 704   840    what the processes of a shared store tell one another; see `sharing.rs`
//! 1664  52     what they have agreed on; see `agreed.rs`
//! 1728  16     when to list the queues again; see `catalogue.rs`
//! 1792  208    how long the sends of the writer take; see `writer_stats.rs`
//! 2048  16 each    the last 128 epochs, each at its number modulo 128: u64 time at which it
//!                  began, in ns since 1970, u64 end of the log at that time
//! ```
//!
//! Each mark has its own cache line. The marks are exact as long as the page cache is kept, because
//! it outlives a process. Otherwise `durable` and `full pass` are lower bounds (each is stored only
//! after its sync), and the other marks mean nothing.
//!
//! The same boot id does not prove that the page cache was kept: within one boot a device can
//! disappear and come back, a snapshot can be mounted, or an image can be copied. So the identity
//! of the file must also be the same ([`Identity`]); zeros, as in a page of release 0.1.0, match
//! nothing. The writer vouches for the page cache as long as it knows of no stored bytes that may
//! be missing from it. It stops vouching when a sync fails, because the kernel may drop the pages,
//! and when it begins to recover; it vouches again once everything was synced. Boot id, identity
//! and marks lie in one sector of 512 bytes, which is written atomically.
//!
//! The page is only a hint: no value is trusted before the log confirms it.

use crate::disk::{Disk, Identity, Kind, RealDisk, replace};
use crate::engine::directory::epochs::Epochs;
use crate::engine::directory::fields::Fields;
use crate::engine::directory::names;
use crate::engine::service::duty;
use crate::engine::service::shared_condition::{MarkedWord, SharedWord};
use crate::error::{At, Error, Op, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::region::{Access, PAGE, Region};
use crossbeam_utils::CachePadded;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name of the file.
pub const FILE_NAME: &str = names::STATE;

const MAGIC: [u8; 8] = *b"FOREBAY1";
const VERSION: u32 = 1;
const _: () = assert!(AT_VERSION == MAGIC.len());
const AT_VERSION: usize = 8;
pub(super) const AT_CLEAN: usize = 12;
pub(super) const AT_BOOT_ID: usize = 16;
pub(super) const AT_EPOCH: usize = 32;
pub(super) const AT_EPOCH_START: usize = 40;
pub(super) const AT_PID: usize = 48;
pub(super) const AT_HOST_LEN: usize = 56;
pub(super) const AT_HOST: usize = 60;
pub(super) const AT_LOG_FILE_LEN: usize = 80;
pub(super) const AT_QUEUE_FILE_ENTRIES: usize = 88;
pub(super) const AT_INDEX_SLOTS: usize = 96;
pub(super) const AT_INDEX_ENTRIES: usize = 100;
pub(super) const AT_CRC: usize = 104;
pub(super) const AT_CHECKSUMS: usize = 108;
pub(super) const AT_FOREIGN: usize = 112;
const AT_UNINDEXED: usize = 116;
const AT_GENERATION: usize = 120;
const AT_PUBLISHED: usize = 128;
const AT_DISPATCHED: usize = 192;
const AT_DURABLE: usize = 256;
const AT_MINIMUM: usize = 320;
const AT_FULL_PASS: usize = 384;
const AT_PENDING: usize = 448;
pub(super) const AT_IDENTITY: usize = 456;
const _: () = assert!(AT_IDENTITY + IDENTITY_LEN <= AT_TAKEN);
const AT_TAKEN: usize = 512;
const AT_NEWS: usize = 576;
const AT_ERASING: usize = 640;
const AT_LAST: usize = 648;
const AT_WORK: usize = 768;
const AT_DUTY: usize = 776;
const AT_WANTED: usize = 832;
const AT_FLUSHED: usize = 896;
const AT_GROUPS: usize = 1600;
pub(super) const AT_EPOCHS: usize = 2048;
const _: () = assert!(AT_EPOCHS + index(EPOCHS_KEPT) * EPOCH_LEN == PAGE);

/// Length of the identity.
const IDENTITY_LEN: usize = 5 * size_of::<u64>();
/// Directories of a store that may be separate mounts.
const PARTS: [&str; 3] = [names::COMMIT_LOG, names::QUEUES, names::INDEX];

/// Number of epochs kept.
pub(super) const EPOCHS_KEPT: u64 = 128;
/// Number of marks; `MARK_LEN` is the length of one.
const MARKS: usize = (AT_PENDING - AT_PUBLISHED) / MARK_LEN;
const MARK_LEN: usize = 64;
/// Length of an epoch.
pub(super) const EPOCH_LEN: usize = 2 * size_of::<u64>();

/// One of the marks of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// End of what readers may see.
    Published = AT_PUBLISHED as isize,
    /// End of what queues and index cover.
    Dispatched = AT_DISPATCHED as isize,
    /// End of the durable log.
    Durable = AT_DURABLE as isize,
    /// First position of the log.
    Minimum = AT_MINIMUM as isize,
    /// End of what is durable in log, queues and index.
    FullPass = AT_FULL_PASS as isize,
}

/// The state of the page cache that the last writer stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// It still holds everything that was stored.
    Kept,
    /// The machine was not restarted, but nothing proves that the file system is the same. Stored
    /// bytes may be complete, missing, or in memory and missing on the disk.
    Unknown,
    /// The machine was restarted: only the bytes on the disk are left.
    Lost,
}

impl Epochs {
    /// Reads the epochs of the store at `root`, open or not; `None` if Forebay never wrote to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], and [`Error::Unsupported`] if the page is not a regular file.
    pub fn of(root: &Path) -> Result<Option<Epochs>> {
        let page = StatePage::open(&RealDisk, root, Access::Read)?;
        Ok(page.map(|page| page.epochs()))
    }
}

/// A word that processes sleep on. Only changes of its value have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Notified by a process that left a commit for the writer.
    Pending = AT_PENDING as isize,
    /// Notified by the writer when it has processed one.
    Taken = AT_TAKEN as isize,
    /// Notified by the writer when there is something new for readers, which only load it.
    News = AT_NEWS as isize,
    /// Notified by the processes of a shared store when there is something to dispatch.
    Work = AT_WORK as isize,
    /// Notified when the readers on duty of the process that leads have work or news.
    Duty = AT_DUTY as isize,
    /// Notified by the processes of a shared store that wait for the disk.
    Wanted = AT_WANTED as isize,
    /// Notified when the log of a shared store became durable further, or writing has failed.
    Flushed = AT_FLUSHED as isize,
    /// Notified when the service of the consumers of a shared store has work.
    Groups = AT_GROUPS as isize,
}

/// [`Word::News`] of a page. In a shared store the readers on duty are notified too.
pub struct News<'a>(pub &'a StatePage);

impl SharedWord for News<'_> {
    fn load(&self) -> u32 {
        self.0.read_word(Word::News)
    }

    fn sleep_on(&self, seen: u32, timeout: Duration) {
        self.0.sleep_on(Word::News, seen, timeout);
    }

    fn notify(&self) -> usize {
        let woken = self.0.notify(Word::News);
        match self.0.is_shared() {
            true => woken + duty::tell(self.0),
            false => woken,
        }
    }
}

impl MarkedWord for News<'_> {
    fn is_marked(&self) -> bool {
        self.0.are_news_awaited()
    }

    fn set_marked(&self, marked: bool) {
        self.0.set_news_awaited(marked);
    }
}

/// The mapped page, or memory if there is no page on disk.
#[derive(Debug)]
pub struct StatePage {
    pub(super) fields: Fields,
    /// The marks stored by this process, in the order of the page. Only the writer moves them, so
    /// it reads them here instead of in the map, where a load can fault.
    own: [CachePadded<AtomicU64>; MARKS],
    /// Boot id of the running machine; zeros if the system does not say.
    pub(super) boot_id: [u8; 16],
    /// Identity of the file, if the whole store is on the same mount.
    pub(super) identity: Option<Identity>,
    /// Whether other processes move the marks too.
    pub(super) shared: bool,
}

impl StatePage {
    /// A page in memory, for a directory that has none and cannot get one.
    pub fn in_memory() -> Result<StatePage> {
        let path = PathBuf::from(FILE_NAME);
        let region = Region::anonymous(PAGE, &path).at(Op::Map, &path)?;
        Ok(StatePage::new(region, [0; 16], None))
    }

    /// Opens the page of the store at `root`; `None` if there is none, or it is not Forebay's.
    pub fn open(disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<StatePage>> {
        let Some(region) = map_page(disk, &root.join(FILE_NAME), access)? else {
            return Ok(None);
        };
        StatePage::of(disk, root, region).checked()
    }

    /// Opens a page that is used for its words only; `None` if there is none.
    pub fn open_words(disk: &dyn Disk, path: &Path, access: Access) -> Result<Option<StatePage>> {
        let Some(region) = map_page(disk, path, access)? else {
            return Ok(None);
        };
        StatePage::new(region, [0; 16], None).checked()
    }

    /// Opens a page with marks that only processes of this boot believe; `None` if there is none.
    pub fn open_marks(disk: &dyn Disk, path: &Path, access: Access) -> Result<Option<StatePage>> {
        let Some(region) = map_page(disk, path, access)? else {
            return Ok(None);
        };
        StatePage::new(region, disk.boot_id(), None).checked()
    }

    /// Creates such a page, or replaces it, with all marks zero.
    pub fn create_marks(disk: &dyn Disk, path: &Path) -> Result<StatePage> {
        replace(disk, path, &StatePage::empty())?;
        disk.reserve(path, 0, PAGE as u64)?;
        let region = disk.map(path, PAGE, Access::ReadWrite)?;
        Ok(StatePage::new(region, disk.boot_id(), None))
    }

    /// The bytes of a page without marks.
    pub fn empty() -> Vec<u8> {
        let mut page = MAGIC.to_vec();
        page.extend(VERSION.to_ne_bytes());
        page.resize(PAGE, 0);
        page
    }

    /// Makes a file that is no page one that is used for its words only. It stays the same file,
    /// and the words keep their values: another process may do the same, and use the page already.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn complete_words(disk: &dyn Disk, path: &Path) -> Result<()> {
        let mut page = StatePage::empty();
        page.truncate(AT_PENDING);
        disk.write_at(path, 0, &page)?;
        disk.set_len(path, PAGE as u64)
    }

    /// The page, with the marks that it has; `None` if it is not Forebay's.
    fn checked(self) -> Result<Option<StatePage>> {
        let ours = self.fields.words(0) == MAGIC && self.fields.word(AT_VERSION) == VERSION;
        for (at, mark) in (AT_PUBLISHED..).step_by(MARK_LEN).zip(&self.own) {
            mark.store(self.fields.load(at), Ordering::Relaxed);
        }
        self.check()?;
        Ok(ours.then_some(self))
    }

    /// Durably creates the page of a store that has none, or replaces it, with all marks zero. The
    /// page exists at every moment, because it identifies a store.
    pub fn create(disk: &dyn Disk, root: &Path) -> Result<StatePage> {
        let path = root.join(FILE_NAME);
        replace(disk, &path, &StatePage::empty())?;
        disk.reserve(&path, 0, PAGE as u64)?;
        let region = disk.map(&path, PAGE, Access::ReadWrite)?;
        Ok(StatePage::of(disk, root, region))
    }

    fn of(disk: &dyn Disk, root: &Path, region: Region) -> StatePage {
        let own = disk.identity(&root.join(FILE_NAME));
        let is_beside = |own: &Identity| {
            PARTS.iter().all(|part| {
                let path = root.join(part);
                match disk.identity(&path) {
                    Some(part) => part.is_beside(own),
                    // It will be created in the same directory as the page.
                    None => matches!(disk.stat(&path), Ok(None)),
                }
            })
        };
        StatePage::new(region, disk.boot_id(), own.filter(is_beside))
    }

    fn new(region: Region, boot_id: [u8; 16], identity: Option<Identity>) -> StatePage {
        StatePage {
            fields: Fields::new(region),
            own: Default::default(),
            boot_id,
            identity,
            shared: false,
        }
    }

    /// Returns an error if an access to the page has faulted since it was mapped; see
    /// [`Fields::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.fields.check()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.fields.path()
    }

    #[inline]
    fn own(&self, mark: Mark) -> Option<&AtomicU64> {
        let mark = self.own.get((mark as usize - AT_PUBLISHED) / MARK_LEN)?;
        (self.fields.is_writable() && !self.shared).then_some(mark)
    }

    /// Reads a mark.
    #[inline]
    pub fn get(&self, mark: Mark) -> u64 {
        match self.own(mark) {
            Some(own) => own.load(Ordering::Acquire),
            None => self.fields.load(mark as usize),
        }
    }

    /// Moves a mark. The bytes that it covers must be stored before.
    #[inline]
    pub fn set(&self, mark: Mark, position: u64) {
        if let Some(own) = self.own(mark) {
            own.store(position, Ordering::Release);
            self.fields.store(mark as usize, position);
        } else if self.shared {
            self.fields.store(mark as usize, position);
        }
    }

    /// Reads a word, to sleep on it later.
    pub fn read_word(&self, word: Word) -> u32 {
        self.fields.word(word as usize)
    }

    /// Sleeps until a word is notified, at most for `timeout`. Returns at once if it has changed
    /// since it was `seen`, and may return early.
    pub fn sleep_on(&self, word: Word, seen: u32, timeout: Duration) {
        self.fields.sleep_on(word as usize, seen, timeout);
    }

    /// Changes a word and wakes the sleepers on it, in all processes. Returns how many were woken;
    /// 0 on a system that does not say.
    pub fn notify(&self, word: Word) -> usize {
        self.fields.notify(word as usize)
    }

    /// Wakes the sleepers on a word without changing it. Returns as [`StatePage::notify`].
    pub fn wake(&self, word: Word) -> usize {
        self.fields.wake(word as usize)
    }

    /// Whether a recovery of another system's store has begun and not finished. Until then the
    /// marks say nothing about the end of the log.
    pub fn is_foreign(&self) -> bool {
        self.fields.word(AT_FOREIGN) == 1
    }

    /// Marks the beginning of a recovery; `foreign` if another system may have written.
    pub fn begin_recovery(&self, foreign: bool) {
        self.fields.set_word(AT_FOREIGN, u32::from(foreign));
        self.doubt();
        self.end_epoch(false);
    }

    /// Whether the writer of this epoch builds no index: its messages are only in the log.
    pub fn is_unindexed(&self) -> bool {
        self.fields.word(AT_UNINDEXED) == 1
    }

    /// Sets whether the next epoch will build no index.
    pub fn set_unindexed(&self, unindexed: bool) {
        self.fields.set_word(AT_UNINDEXED, u32::from(unindexed));
    }

    /// A number that changes when existing files are replaced, under the same or other names.
    pub fn generation(&self) -> u32 {
        self.fields.word(AT_GENERATION)
    }

    /// Makes readers reopen files. Must be called before they learn what the files contain.
    pub fn next_generation(&self) {
        let next = self.generation().wrapping_add(1);
        self.fields.set_word(AT_GENERATION, next);
    }

    /// End of the bytes after the log that a process began to erase and may not have synced: in the
    /// page cache they look erased, and a power loss may bring them back. 0 if there are none.
    pub fn erasing(&self) -> u64 {
        self.fields.load(AT_ERASING)
    }

    /// Records that this process erases what follows the log, up to `end`. Reset when an epoch
    /// begins.
    pub fn set_erasing(&self, end: u64) {
        self.fields.store(AT_ERASING, end);
    }

    /// Position of the last record when the store was closed properly; `None` if unknown.
    pub fn last_record(&self) -> Option<u64> {
        self.fields.load(AT_LAST).checked_sub(1)
    }

    /// Saves the position of the last record, for [`StatePage::last_record`].
    pub fn set_last_record(&self, position: Option<u64>) {
        self.fields
            .store(AT_LAST, position.map_or(0, |position| position + 1));
    }

    /// Makes the page durable.
    ///
    /// After a failed sync the kernel may drop the page from its cache. The page on disk may still
    /// vouch for a cache that has lost bytes, so the page is marked as not stored.
    #[cfg_attr(test, track_caller)]
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        self.check()?;
        let region = self.fields.region();
        disk.sync_range(region, 0, PAGE).inspect_err(|_| {
            if !planted(Bug::DropDoubt) {
                let _ = disk.dirty_range(region, 0, PAGE);
            }
        })
    }
}

/// Maps the page at `path`; `None` if there is none of its length.
fn map_page(disk: &dyn Disk, path: &Path, access: Access) -> Result<Option<Region>> {
    match disk.stat(path)? {
        Some(entry) if entry.kind == Kind::File && entry.len == PAGE as u64 => {}
        Some(entry) if entry.kind != Kind::File => {
            let what = format!("{} is not a regular file", path.display());
            return Err(Error::Unsupported { what });
        }
        _ => return Ok(None),
    }
    if access == Access::ReadWrite {
        // If the page shares its block with a copy of the store, a store to it needs another
        // block. Reserving makes opening fail if there is none.
        disk.reserve(path, 0, PAGE as u64)?;
    }
    disk.map(path, PAGE, access).map(Some)
}
