//! The state page as this process has it: its marks, and the words that processes sleep on.
//!
//! `page_layout` has the table of its bytes, `page_file` finds and creates its file.

pub use super::page_layout::{Mark, Word};

use super::page_layout::{
    AT_ERASING, AT_FOREIGN, AT_GENERATION, AT_LAST, AT_PUBLISHED, AT_UNINDEXED, MARK_LEN, MARKS,
};
use crate::disk::Identity;
use crate::engine::directory::fields::Fields;
use crate::engine::service::duty;
use crate::engine::service::shared_condition::{MarkedWord, SharedWord};
use crate::error::Result;
use crossbeam_utils::CachePadded;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    pub(super) own: [CachePadded<AtomicU64>; MARKS],
    /// Boot id of the running machine; zeros if the system does not say.
    pub(super) boot_id: [u8; 16],
    /// Identity of the file, if the whole store is on the same mount.
    pub(super) identity: Option<Identity>,
    /// Whether other processes move the marks too.
    pub(super) shared: bool,
}

impl StatePage {
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
}
