//! Shows readers in other processes how long the sends of this one take.
//!
//! A partition log has no state page, so the writer has a page of its own for this,
//! `forebay.meters`, of the same form. Nobody syncs it: what it says has a meaning only while the
//! process that wrote it lives, and who that is the lock says.

use super::parts::Parts;
use crate::disk::{Disk, Holder};
use crate::engine::directory::member::LEADER;
use crate::engine::directory::names::{METERS, SHARED};
use crate::engine::directory::page::StatePage;
use crate::engine::directory::writer::pid_of_writer;
use crate::engine::partition_log::segments::names::LOCK;
use crate::error::Result;
use crate::meter::{Meters, WriterStats};
use crate::region::Access;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// What is shown, and where.
#[derive(Debug, Default)]
pub struct Showing {
    meters: OnceLock<Arc<Meters>>,
    page: OnceLock<StatePage>,
}

impl Showing {
    /// Sets the measurements that are shown from now on. May be called once.
    pub fn set(&self, meters: &Arc<Meters>) {
        let _ = self.meters.set(Arc::clone(meters));
    }

    /// Shows them as they are, unless nothing has changed. Without room for the page, readers see
    /// nothing, and the next call tries again.
    pub fn show(&self, parts: &Parts) {
        let Some(meters) = self.meters.get() else {
            return;
        };
        if self.page.get().is_none()
            && let Ok(Some(page)) = make(&*parts.disk, &parts.root)
        {
            let _ = self.page.set(page);
        }
        if let Some(page) = self.page.get() {
            let counters = parts.tail.counters();
            let stats = WriterStats::measure(counters, meters, &parts.meter.read());
            page.show_writer(&stats, parts.clock.now_ns());
        }
    }
}

/// Opens the page. Creates it if it does not exist, or if a power loss has left its name alone.
fn make(disk: &dyn Disk, root: &Path) -> Result<Option<StatePage>> {
    let path = root.join(METERS);
    if let Some(page) = StatePage::open_words(disk, &path, Access::ReadWrite)? {
        return Ok(Some(page));
    }
    // A reader may have mapped a file of this name, so it is not replaced.
    disk.write_at(&path, 0, &StatePage::empty())?;
    StatePage::open_words(disk, &path, Access::ReadWrite)
}

/// What the writer of the directory shows of itself at `now_ns`; in a shared log, the process that
/// runs the services. `None` if no process of Forebay does, or it has shown nothing yet.
pub fn shown(disk: &dyn Disk, root: &Path, now_ns: u64) -> Option<WriterStats> {
    let page = StatePage::open_words(disk, &root.join(METERS), Access::Read);
    let page = page.ok().flatten()?;
    page.shown_by(shower(disk, root).ok().flatten()?, now_ns)
}

/// The process that shows its measurements.
fn shower(disk: &dyn Disk, root: &Path) -> Result<Option<u32>> {
    let lock = root.join(LOCK);
    if disk.probe(&lock)? != Holder::Forebay {
        return Ok(None);
    }
    // A leader that was killed stays named until another one leads.
    let marks = StatePage::open_marks(disk, &root.join(SHARED), Access::Read)?;
    match marks.is_some_and(|it| it.is_written_to()) && !disk.is_byte_locked(&lock, LEADER)? {
        true => Ok(None),
        false => pid_of_writer(disk, root, LOCK),
    }
}
