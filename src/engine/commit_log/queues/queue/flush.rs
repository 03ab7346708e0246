//! Making a queue durable.

use super::{ConsumeQueue, ENTRY_LEN};
use crate::error::Result;
use crate::num::index;
use crate::region::{Access, Region};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The part of a queue that is not durable yet.
#[derive(Clone, Copy, Debug)]
pub struct Unflushed {
    /// First entry.
    from: u64,
    /// Number after the last entry.
    pub max: u64,
    /// Number after the last erased entry; 0 if there is none.
    erased: u64,
    /// Whether names of files are not durable yet.
    names_changed: bool,
}

impl ConsumeQueue {
    /// Makes changes durable. Returns whether there were any.
    pub fn flush(&self) -> Result<bool> {
        let Some(unflushed) = self.take_unflushed() else {
            return Ok(false);
        };
        let synced = self.sync(unflushed);
        synced.inspect_err(|_| self.give_back(unflushed))?;
        self.set_flushed(unflushed.max);
        Ok(true)
    }

    fn sync(&self, unflushed: Unflushed) -> Result<()> {
        let end = unflushed.max.max(unflushed.erased);
        self.each_range(unflushed.from..end, |region, from, len| {
            self.store.disk.sync_range(region, from, len)
        })?;
        if unflushed.names_changed {
            let parts = self.directory.ancestors().take(3);
            for directory in parts {
                self.store.disk.sync_directory(directory)?;
            }
        }
        Ok(())
    }

    /// Restores what [`ConsumeQueue::take_unflushed`] took, because it is not durable yet.
    pub fn give_back(&self, unflushed: Unflushed) {
        self.dirty.fetch_min(unflushed.from, Ordering::AcqRel);
        self.erased.fetch_max(unflushed.erased, Ordering::AcqRel);
        self.names_changed
            .fetch_or(unflushed.names_changed, Ordering::AcqRel);
    }

    /// Marks the pages of entries that point to `position` or after it dirty, so that the next sync
    /// writes them even if the kernel considers them clean.
    pub fn dirty_from(&self, position: u64) -> Result<()> {
        self.each_range(
            self.first_from(position)?..self.max(),
            |region, from, len| self.store.disk.dirty_range(region, from, len),
        )
    }

    /// Calls `act` with region, first byte and length of the entries in each existing file.
    fn each_range(
        &self,
        entries: Range<u64>,
        mut act: impl FnMut(&Region, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut number = entries.start;
        while number < entries.end {
            let Some(map) = self.map_of(number)? else {
                let files = self.files.lock();
                let next = files.on_disk.range(number..).next();
                number = next.map_or(entries.end, |(start, _)| *start);
                continue;
            };
            let end = entries.end.min(map.end);
            let len = index((end - number) * ENTRY_LEN);
            act(&map.region, map.byte_of(number), len)?;
            number = end;
        }
        Ok(())
    }

    /// Takes what changed since the last flush. The caller makes it durable, then calls
    /// [`ConsumeQueue::set_flushed`] with its end.
    pub fn take_unflushed(&self) -> Option<Unflushed> {
        if self.store.access == Access::Read {
            return None;
        }
        let corrected = self.dirty.swap(u64::MAX, Ordering::AcqRel);
        let erased = self.erased.swap(0, Ordering::AcqRel);
        let names_changed = self.names_changed.swap(false, Ordering::AcqRel);
        let max = self.max();
        let from = self.flushed.load(Ordering::Acquire).min(corrected);
        let from = from.max(self.first_on_disk().unwrap_or(0));
        (names_changed || from < max.max(erased)).then_some(Unflushed {
            from,
            max,
            erased,
            names_changed,
        })
    }

    /// Records that the entries below `max` are durable.
    pub fn set_flushed(&self, max: u64) {
        self.flushed.store(max, Ordering::Release);
    }

    /// Whether anything changed since the last flush.
    pub fn is_behind(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.max()
            || self.dirty.load(Ordering::Acquire) != u64::MAX
            || self.erased.load(Ordering::Acquire) != 0
            || self.names_changed.load(Ordering::Acquire)
    }

    /// Makes the next flush write everything that existed when the queue was opened, including the
    /// names.
    pub fn doubt(&self) {
        self.flushed.store(0, Ordering::Release);
        if self.first_on_disk().is_some() {
            self.names_changed.store(true, Ordering::Release);
        }
    }
}
