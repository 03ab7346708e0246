//! What of a queue is durable.

use super::{ConsumeQueue, ENTRY_LEN};
use crate::error::{Error, Result};
use crate::mapped::{Access, Region};
use crate::num::index;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Entries of a queue that are not durable yet.
#[derive(Clone, Copy, Debug)]
pub struct Unflushed {
    from: u64,
    /// Number behind the last of them.
    pub max: u64,
    /// Whether the name of a file is not durable yet.
    made: bool,
}

impl ConsumeQueue {
    /// Makes what was stored durable; returns whether there was something.
    pub fn flush(&self) -> Result<bool> {
        let Some(unflushed) = self.take_unflushed() else {
            return Ok(false);
        };
        let synced = self.sync(unflushed);
        synced.inspect_err(|_| self.give_back(unflushed))?;
        self.set_flushed(unflushed.max);
        Ok(true)
    }

    fn sync(&self, Unflushed { from, max, made }: Unflushed) -> Result<()> {
        self.each_range(from..max, |region, from, len| {
            let synced = self.store.disk.sync_range(region, from, len);
            synced.map_err(|e| Error::io("sync", region.path(), e))
        })?;
        if made {
            let parts = self.directory.ancestors().take(3);
            for directory in parts {
                let synced = self.store.disk.sync_directory(directory);
                synced.map_err(|e| Error::io("sync", directory, e))?;
            }
        }
        Ok(())
    }

    /// Says that what [`ConsumeQueue::take_unflushed`] gave is not durable yet.
    pub fn give_back(&self, unflushed: Unflushed) {
        self.dirty.fetch_min(unflushed.from, Ordering::AcqRel);
        self.made.fetch_or(unflushed.made, Ordering::AcqRel);
    }

    /// Has the next sync write the entries that lead to `position` or behind it, whether the kernel
    /// takes their pages for clean or not.
    pub fn dirty_from(&self, position: u64) -> Result<()> {
        self.each_range(
            self.first_from(position)?..self.max(),
            |region, from, len| {
                let dirtied = self.store.disk.dirty_range(region, from, len);
                dirtied.map_err(|e| Error::io("store to", region.path(), e))
            },
        )
    }

    /// Calls `act` with region, first byte and length of the entries in each file that is there.
    fn each_range(
        &self,
        entries: Range<u64>,
        mut act: impl FnMut(&Region, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut number = entries.start;
        while number < entries.end {
            let Some(map) = self.map_of(number)? else {
                number = number - number % self.store.file_entries + self.store.file_entries;
                continue;
            };
            let end = entries.end.min(map.end);
            let len = index((end - number) * ENTRY_LEN);
            act(&map.region, map.byte_of(number), len)?;
            number = end;
        }
        Ok(())
    }

    /// What was stored since the last flush, for the caller to make durable; then
    /// [`ConsumeQueue::set_flushed`] with its end.
    pub fn take_unflushed(&self) -> Option<Unflushed> {
        if self.store.access == Access::Read {
            return None;
        }
        let corrected = self.dirty.swap(u64::MAX, Ordering::AcqRel);
        let max = self.max();
        let from = self.flushed.load(Ordering::Acquire).min(corrected);
        let from = from.max(self.first_on_disk().unwrap_or(0));
        (from < max).then(|| Unflushed {
            from,
            max,
            made: self.made.swap(false, Ordering::AcqRel),
        })
    }

    /// Says that the entries below `max` are durable.
    pub fn set_flushed(&self, max: u64) {
        self.flushed.store(max, Ordering::Release);
    }

    /// Whether something was added since the last flush.
    pub fn is_behind(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.max()
            || self.dirty.load(Ordering::Acquire) != u64::MAX
    }

    /// Takes what is there for durable, as a clean close left it.
    pub fn trust_durable(&self) {
        self.made.store(false, Ordering::Release);
        self.flushed.store(self.max(), Ordering::Release);
    }
}
