//! Shows readers in other processes how long the sends of this one take.
//!
//! A partition log has no state page, so the writer stores these times in `forebay.meters`, which
//! has the same form and by which it notifies readers ([`readers`]). Nobody syncs the page: its
//! contents have a meaning only while the process that wrote them lives, and the lock says which
//! process that is.
//!
//! [`readers`]: super::readers

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
}

impl Showing {
    /// Sets the measurements that are shown from now on. May be called once.
    pub fn set(&self, meters: &Arc<Meters>) {
        let _ = self.meters.set(Arc::clone(meters));
    }

    /// Shows them as they are, unless nothing has changed. Without a page, readers see nothing.
    pub fn show(&self, parts: &Parts) {
        if let (Some(meters), Some(page)) = (self.meters.get(), parts.readers.page()) {
            let counters = parts.tail.counters();
            let stats = WriterStats::measure(counters, meters, &parts.meter.read());
            page.show_writer(&stats, parts.clock.now_ns());
        }
    }
}

/// The figures that the writer of the directory shows of itself at `now_ns`; in a shared log, those
/// of the leader. `None` if no process of Forebay writes, or it has shown nothing yet.
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
