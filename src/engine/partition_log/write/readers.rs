//! Notifies readers in other processes that there is something new.
//!
//! They sleep on a word of `forebay.meters`, a page that stays in the directory, and store nothing
//! ([`listening`]). So a sender cannot see whether somebody sleeps; the kernel tells it, by the
//! number of threads that a notification woke.
//!
//! ```text
//!   sender: publish --> did the last ones wake somebody, or was there none in this tick?
//!           --> change the word, wake the sleepers on it
//! ```
//!
//! A *tick* of the coarse clock takes at most 10 ms ([`TICK`]). While messages are sent, there is
//! one system call per tick and not one per message, unless readers sleep: then each message
//! notifies them. A sender reads the clock after it has published, so a message that notifies
//! nobody is less than a tick younger than the last notification. A reader checks once more after
//! that time.
//!
//! [`listening`]: crate::engine::partition_log::listening

use crate::disk::{Disk, coarse_ms};
use crate::engine::directory::names::METERS;
use crate::engine::directory::page::{News, StatePage};
use crate::engine::service::shared_condition::SharedCondition;
use crate::error::Result;
use crate::region::Access;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The longest tick of the coarse clock: that of a kernel with 100 ticks a second.
pub const TICK: Duration = Duration::from_millis(10);

/// The readers in other processes.
#[derive(Debug, Default)]
pub struct Readers {
    page: OnceLock<StatePage>,
    condition: SharedCondition,
    /// The tick of the last notification, in ms since 1970.
    notified_ms: AtomicI64,
}

impl Readers {
    /// Opens the page. Creates it if it does not exist, or if a power loss has left only its name.
    /// Without room for it nobody is notified, and the next call tries again.
    pub fn open_page(&self, disk: &dyn Disk, root: &Path) {
        if self.page.get().is_none()
            && let Ok(Some(page)) = make(disk, root)
        {
            let _ = self.page.set(page);
        }
    }

    /// The page, if it is open.
    pub fn page(&self) -> Option<&StatePage> {
        self.page.get()
    }

    /// Notifies the readers, if some may sleep. The caller has published what they check.
    #[inline]
    pub fn notify(&self) {
        let Some(page) = self.page.get() else {
            return;
        };
        let tick = coarse_ms();
        if self.condition.is_followed() || self.notified_ms.load(Ordering::Relaxed) != tick {
            self.notified_ms.store(tick, Ordering::Relaxed);
            self.condition.notify(&News(page));
        }
    }
}

fn make(disk: &dyn Disk, root: &Path) -> Result<Option<StatePage>> {
    let path = root.join(METERS);
    if let Some(page) = StatePage::open_words(disk, &path, Access::ReadWrite)? {
        return Ok(Some(page));
    }
    // Completed in place, because other processes may have mapped the file or be about to.
    StatePage::complete_words(disk, &path)?;
    StatePage::open_words(disk, &path, Access::ReadWrite)
}
