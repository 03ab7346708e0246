//! The words through which drivers and the writer of a store wake each other.

use super::place::StagePlace;
use crate::disk::Disk;
use crate::engine::directory::page::{StatePage, Word};
use crate::error::Result;
use crate::region::Access;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long to sleep without a page.
const PAUSE: Duration = Duration::from_millis(50);

/// The words, once the page that has them exists.
#[derive(Debug, Default)]
pub struct Words(OnceLock<Arc<StatePage>>);

impl Words {
    /// The words of this page.
    pub fn of(page: Arc<StatePage>) -> Words {
        Words(OnceLock::from(page))
    }

    /// Finds the page, unless it was found before. Returns whether there is one.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn find(&self, disk: &dyn Disk, place: &StagePlace) -> Result<bool> {
        if self.0.get().is_none()
            && let Some(page) = place.page(disk, Access::ReadWrite)?
        {
            let _ = self.0.set(Arc::new(page));
        }
        Ok(self.0.get().is_some())
    }

    /// Reads a word, to sleep on it later.
    pub fn read(&self, word: Word) -> u32 {
        self.0.get().map_or(0, |page| page.read_word(word))
    }

    /// Changes a word, and wakes all threads that sleep on it.
    pub fn notify(&self, word: Word) {
        if let Some(page) = self.0.get() {
            page.notify(word);
        }
    }

    /// Sleeps until a word changes from what was `seen`, at most for `timeout`.
    pub fn sleep_on(&self, word: Word, seen: u32, timeout: Duration) {
        match self.0.get() {
            Some(page) => page.sleep_on(word, seen, timeout),
            None => std::thread::sleep(timeout.min(PAUSE)),
        }
    }
}
