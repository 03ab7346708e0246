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
//! 640   u64    end of the bytes after the log that an opening erases; 0 once that is durable
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
use crate::engine::directory::epochs::{Epoch, Epochs};
use crate::engine::directory::fields::Fields;
use crate::engine::directory::geometry::Geometry;
use crate::engine::directory::names;
use crate::engine::service::duty;
use crate::engine::service::shared_condition::SharedWord;
use crate::error::{At, Error, Op, Result};
use crate::num::{index, short};
use crate::plant::{Bug, planted};
use crate::record::HostBytes;
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
const AT_GENERATION: usize = 120;
const AT_PUBLISHED: usize = 128;
const AT_DISPATCHED: usize = 192;
const AT_DURABLE: usize = 256;
const AT_MINIMUM: usize = 320;
const AT_FULL_PASS: usize = 384;
const AT_PENDING: usize = 448;
const AT_IDENTITY: usize = 456;
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
const EPOCHS_KEPT: u64 = 128;
/// Number of marks; `MARK_LEN` is the length of one.
const MARKS: usize = (AT_PENDING - AT_PUBLISHED) / MARK_LEN;
const MARK_LEN: usize = 64;
/// Length of an epoch.
const EPOCH_LEN: usize = 2 * size_of::<u64>();

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

/// The mapped page, or memory if there is no page on disk.
#[derive(Debug)]
pub struct StatePage {
    pub(super) fields: Fields,
    /// The marks stored by this process, in the order of the page. Only the writer moves them, so
    /// it reads them here instead of in the map, where a load can fault.
    own: [CachePadded<AtomicU64>; MARKS],
    /// Boot id of the running machine; zeros if the system does not say.
    boot_id: [u8; 16],
    /// Identity of the file, if the whole store is on the same mount.
    identity: Option<Identity>,
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

    /// Whether the marks were written since the machine started.
    fn is_of_this_boot(&self) -> bool {
        self.fields.words::<16>(AT_BOOT_ID) == self.boot_id
    }

    /// State of the page cache that the last writer stored to, if it did not close the store.
    pub fn cache(&self) -> Cache {
        let written = self.fields.words::<16>(AT_BOOT_ID);
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
        std::array::from_fn(|number| self.fields.load(AT_IDENTITY + number * size_of::<u64>()))
    }

    fn set_identity(&self, words: [u64; 5]) {
        for (number, word) in words.into_iter().enumerate() {
            self.fields
                .store(AT_IDENTITY + number * size_of::<u64>(), word);
        }
    }

    /// Records that the page cache holds everything that was stored.
    pub fn vouch(&self) {
        self.set_identity(self.identity.as_ref().map_or([0; 5], words_of));
    }

    /// Withdraws [`StatePage::vouch`]. It need not be durable, because another cache has another
    /// identity. The kernel must not drop the page as long as the disk has one that vouches; see
    /// [`StatePage::sync`].
    pub fn doubt(&self) {
        if planted(Bug::VouchBlindly) {
            return;
        }
        self.set_identity([0; 5]);
    }

    /// Whether a writer is running, or died during this boot.
    pub fn is_written_to(&self) -> bool {
        self.pid().is_some() && self.is_of_this_boot()
    }

    /// Whether a writer is running or ended without closing the store, so that stored bytes may be
    /// only in the page cache.
    pub fn is_halted(&self) -> bool {
        self.epoch() > 0 && !self.is_clean() && self.cache() != Cache::Lost
    }

    /// Whether the last writer closed the store.
    pub fn is_clean(&self) -> bool {
        self.fields.word(AT_CLEAN) == 1
    }

    /// The process that writes, if there is one.
    pub fn pid(&self) -> Option<u32> {
        u32::try_from(self.fields.load(AT_PID))
            .ok()
            .filter(|pid| *pid != 0)
    }

    /// Number of the current epoch.
    pub fn epoch(&self) -> u64 {
        self.fields.load(AT_EPOCH)
    }

    /// The recorded epochs.
    pub fn epochs(&self) -> Epochs {
        let last = self.epoch();
        let first = last.saturating_sub(EPOCHS_KEPT - 1).max(1);
        let kept = (first..=last).map(|number| {
            let at = place_of(number);
            Epoch {
                number,
                began_ns: self.fields.load(at),
                start: self.fields.load(at + size_of::<u64>()),
            }
        });
        Epochs {
            number: last,
            known: kept.filter(|epoch| epoch.began_ns > 0).collect(),
        }
    }

    /// Checksum of the fields that never change after creation: host and sizes.
    fn fixed_crc(&self) -> u32 {
        crc32fast::hash(&self.fields.words::<{ AT_CRC - AT_HOST_LEN }>(AT_HOST_LEN))
    }

    fn fixed_holds(&self) -> bool {
        self.fields.word(AT_CRC) == self.fixed_crc()
    }

    /// The start of the epoch, if every record since then carries a whole-record checksum.
    pub fn checksums_from(&self) -> Option<u64> {
        (self.fields.word(AT_CHECKSUMS) == 1).then(|| self.fields.load(AT_EPOCH_START))
    }

    /// Sizes of the files; `None` if they were never set, are damaged or are out of bounds.
    pub fn geometry(&self) -> Option<Geometry> {
        if !self.fixed_holds() {
            return None;
        }
        let geometry = Geometry {
            log_file_len: self.fields.load(AT_LOG_FILE_LEN),
            queue_file_entries: self.fields.load(AT_QUEUE_FILE_ENTRIES),
            index_slots: self.fields.word(AT_INDEX_SLOTS),
            index_entries: self.fields.word(AT_INDEX_ENTRIES),
        };
        geometry.is_within_bounds().then_some(geometry)
    }

    /// Saves the sizes of the files and the store host.
    pub fn set_fixed(&self, geometry: &Geometry, host: &HostBytes) {
        self.set_geometry(geometry);
        self.set_host(host);
        self.fields.set_word(AT_CRC, self.fixed_crc());
    }

    fn set_geometry(&self, geometry: &Geometry) {
        self.fields.store(AT_LOG_FILE_LEN, geometry.log_file_len);
        self.fields
            .store(AT_QUEUE_FILE_ENTRIES, geometry.queue_file_entries);
        self.fields.set_word(AT_INDEX_SLOTS, geometry.index_slots);
        self.fields
            .set_word(AT_INDEX_ENTRIES, geometry.index_entries);
    }

    /// The store host that was set at creation.
    pub fn host(&self) -> Option<HostBytes> {
        if !self.fixed_holds() {
            return None;
        }
        let bytes = self.fields.words::<20>(AT_HOST);
        HostBytes::from_bytes(bytes.get(..self.fields.word(AT_HOST_LEN) as usize)?)
    }

    fn set_host(&self, host: &HostBytes) {
        let bytes = host.as_bytes();
        self.fields.set_words(AT_HOST, bytes);
        self.fields.set_word(AT_HOST_LEN, short(bytes.len()));
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

    /// End of the bytes that an opening began to erase and may not have synced: in the page cache
    /// they look erased, and a power loss may bring them back. 0 if there are none.
    pub fn erasing(&self) -> u64 {
        self.fields.load(AT_ERASING)
    }

    /// Records that an opening erases the log up to `end`. Reset when an epoch begins.
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

    /// Begins an epoch: this process writes from `end` on. Must be made durable before the first
    /// append.
    ///
    /// `checksums`: all records of the epoch will carry one. `now_ns`: the wall clock.
    pub fn begin_epoch(&self, end: u64, checksums: bool, now_ns: u64) {
        // Recovery may have truncated and rebuilt files.
        self.next_generation();
        // The start of the epoch is stored first: the other fields apply from there.
        self.fields.store(AT_EPOCH_START, end);
        self.fields.set_word(AT_CHECKSUMS, u32::from(checksums));
        self.set_erasing(0);
        self.show_sharing();
        self.fields.set_word(AT_FOREIGN, 0);
        self.fields.set_word(AT_CLEAN, 0);
        self.fields.set_words(AT_BOOT_ID, &self.boot_id);
        let number = self.epoch().saturating_add(1);
        let at = place_of(number);
        self.fields.store(at, now_ns);
        self.fields.store(at + size_of::<u64>(), end);
        self.fields.store(AT_EPOCH, number);
        self.begin_catalogue(number);
        self.fields.store(AT_PID, u64::from(std::process::id()));
        // Readers that were opened while nobody wrote follow from here on.
        self.notify(Word::News);
    }

    /// Names this process as the one that runs the services, in the epoch of another that did.
    pub fn take_over(&self) {
        self.fields.store(AT_PID, u64::from(std::process::id()));
    }

    /// Whether a writer has begun another epoch than `epoch` during this boot, and its marks hold:
    /// it is running, has died, or has closed the store.
    pub fn has_begun_since(&self, epoch: u64) -> bool {
        self.epoch() != epoch && self.is_of_this_boot() && (self.pid().is_some() || self.is_clean())
    }

    /// Ends an epoch. `clean`: everything is durable, and queues and index are complete.
    pub fn end_epoch(&self, clean: bool) {
        self.fields.store(AT_PID, 0);
        self.fields.set_word(AT_CLEAN, u32::from(clean));
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

/// An identity as the words of the page.
fn words_of(identity: &Identity) -> [u64; 5] {
    [
        identity.mount,
        identity.device,
        identity.subvolume,
        identity.inode,
        identity.born_ns,
    ]
}

/// First byte of an epoch in the page.
fn place_of(epoch: u64) -> usize {
    AT_EPOCHS + index(epoch % EPOCHS_KEPT) * EPOCH_LEN
}
