//! Durability: syncs of the log, full passes, and the state that a clean close leaves.
//!
//! Senders wait for a sync of the log. A *full pass* makes log, queues, index and tables durable.
//! Marks and times are stored after what they describe:
//!
//! ```text
//!   bounds of the queues taken --> log --> queues, index --> checkpoint --> forebay.offsets -->
//!   the mark of the full pass
//! ```
//!
//! A crash between any two of these leaves marks that promise too little, never too much.

use super::Parts;
use crate::engine::commit_log::tables::abort;
use crate::engine::commit_log::tables::checkpoint::Stamp;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::page::{Mark, Word};
use crate::engine::service::durability::Durable;
use crate::error::Result;
use crate::mapped::TransientPool;
use crate::plant::{Bug, Point, pass, planted};
use crate::region::PAGE;
use crate::sync::MutexGuard;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// What [`Parts::flush_all`] has made durable.
#[derive(Debug)]
pub struct Flushed<'a> {
    /// The bounds of queues and index files.
    pub inventory: Inventory,
    _alone: MutexGuard<'a, ()>,
}

impl Durable for Parts {
    fn published(&self) -> u64 {
        self.log.published()
    }

    fn durable(&self) -> u64 {
        self.log.state.get(Mark::Durable)
    }

    fn flush_to(&self, position: u64) -> Result<()> {
        Parts::flush_to(self, position)
    }

    fn count_wait(&self, waited: Duration) {
        self.flushing.meter.waited(waited);
    }

    fn full_pass(&self) -> Result<()> {
        Parts::full_pass(self)
    }

    fn tidy(&self) {
        // If the table cannot be saved, the next call tries again.
        let _ = self.save_table();
        self.queues.unmap_idle();
    }

    fn unmap_unused(&self) {
        // Nothing below the mark is synced or dispatched again.
        let passed = self.log.state.get(Mark::FullPass);
        self.log.files.unmap_unused(passed);
    }
}

impl Parts {
    /// Makes everything appended before the call durable. Does nothing if another process writes
    /// the store.
    pub fn flush(&self) -> Result<()> {
        if !self.is_written() {
            return Ok(());
        }
        self.health.check()?;
        self.flush_to(self.wrote())?;
        // Readers in other processes see only what is dispatched.
        self.catch_up();
        Ok(())
    }

    /// Makes the log durable up to `position`, with one sync that concurrent callers share. A
    /// failure is final: the kernel may have marked the pages clean, so that a second sync would
    /// report success although bytes are missing.
    pub fn flush_to(&self, position: u64) -> Result<()> {
        if self.log.state.get(Mark::Durable) >= position {
            return Ok(());
        }
        // Read before the write-out: the record of that time is already published.
        let stored_ms = self.log.stored_ms.load(Ordering::Acquire);
        self.write_out()?;
        let alone = self.flushing.log.lock();
        let durable = self.log.state.get(Mark::Durable);
        if durable >= position {
            return Ok(());
        }
        self.health.check_appended()?;
        let published = self.log.join()?;
        let began = Instant::now();
        let flushed = self.sync_log(durable, published);
        let len = published.saturating_sub(durable);
        self.flushing.meter.flushed(len, began.elapsed());
        flushed.map_err(|error| self.fail_appended(&error))?;
        // A sync that failed in another process may have left these bytes clean and missing.
        self.check_others()?;
        pass(Point::Synced);
        self.log.state.set(Mark::Durable, published);
        if self.log.state.is_shared() {
            self.log.state.notify(Word::Flushed);
        }
        self.stamp(&[Stamp::Log], stored_ms);
        drop(alone);
        if self.log.sync {
            self.tell_readers();
        }
        Ok(())
    }

    /// Syncs `durable..published` of the log. The durable mark may move only after it.
    fn sync_log(&self, durable: u64, published: u64) -> Result<()> {
        if planted(Bug::ProgressAhead) {
            self.log.state.set(Mark::Durable, published);
        }
        let until = match planted(Bug::SyncPopulated) {
            true => published + PAGE as u64,
            false => published,
        };
        let synced = self.log.files.flush(durable, until);
        match planted(Bug::RetryFailedSync) && synced.is_err() {
            true => self.log.files.flush(durable, until),
            false => synced,
        }
    }

    fn stamp(&self, stamps: &[Stamp], ms: i64) {
        if let Some(checkpoint) = self.flushing.checkpoint.as_ref().filter(|_| ms > 0) {
            let set = |stamp: &Stamp| checkpoint.set(*stamp, ms);
            if let Err(error) = stamps.iter().try_for_each(set) {
                self.fail(&error);
            }
        }
    }

    /// A full pass: makes log, queues, index and tables durable, then sets the marks.
    pub fn full_pass(&self) -> Result<()> {
        self.health.check()?;
        self.save_table()?;
        if self.dispatcher.dispatched() <= self.log.state.get(Mark::FullPass) {
            return Ok(());
        }
        let flushed = self.flush_all()?;
        self.save_inventory(flushed)
    }

    /// Withdraws the mark of the last full pass before queues are changed in place, so that after a
    /// crash the next opening makes all of them durable again. While the guard lives, no full pass
    /// can set the mark again.
    pub fn withdraw_full_pass(&self) -> MutexGuard<'_, ()> {
        let alone = self.flushing.full_pass.lock();
        let min = self.log.min_position();
        self.log.state.set(Mark::FullPass, min);
        alone
    }

    /// Makes log, queues and index durable, at least as far as they were dispatched before the
    /// call. No other thread may do this until the result is saved or dropped: pages that one
    /// thread has begun to flush look clean to another.
    pub fn flush_all(&self) -> Result<Flushed<'_>> {
        let alone = self.flushing.full_pass.lock();
        self.keep_offsets_of_holes()?;
        // Taken before the flush, so that everything it describes is durable when it is saved.
        let (inventory, dispatched_ms) = self.inventory()?;
        // Everything in the queues is published, even if a step of dispatch is not complete.
        self.flush_to(self.log.readable_end())?;
        let flushed = self
            .dirty_what_is_in_doubt()
            .and_then(|()| self.queues.flush())
            .and_then(|()| self.index.as_ref().map_or(Ok(()), |index| index.flush()));
        if let Err(error) = flushed {
            // After a temporary failure the next flush syncs everything again.
            if error.ends_writing() {
                self.fail(&error);
            }
            return Err(error);
        }
        self.stamp(&[Stamp::Queues, Stamp::Index], dispatched_ms);
        if let Some(checkpoint) = &self.flushing.checkpoint {
            checkpoint.sync(&*self.disk)?;
        }
        Ok(Flushed {
            inventory,
            _alone: alone,
        })
    }

    /// Marks pages of queues and index dirty that a crashed process may have failed to sync.
    fn dirty_what_is_in_doubt(&self) -> Result<()> {
        let mut in_doubt = self.flushing.in_doubt.lock();
        let Some(position) = *in_doubt else {
            return Ok(());
        };
        // A queue that is not open yet was durable when the store was closed.
        for (_, queue) in self.queues.all_opened(&self.topics) {
            queue.dirty_from(position)?;
            self.queues.limit_maps();
        }
        if let Some(index) = &self.index {
            index.dirty_from(position)?;
        }
        *in_doubt = None;
        Ok(())
    }

    /// Saves the bounds that [`Parts::flush_all`] has made durable, then moves the mark.
    pub fn save_inventory(&self, flushed: Flushed<'_>) -> Result<()> {
        // A failure, perhaps during a repair, may have left less than the inventory describes.
        self.health.check()?;
        let inventory = &flushed.inventory;
        inventory.save(&self.disk, &self.root)?;
        self.log.state.set(Mark::FullPass, inventory.position);
        self.vouch()?;
        self.log.state.sync(&*self.disk)
    }

    /// Vouches for the page cache, unless writing has failed.
    fn vouch(&self) -> Result<()> {
        self.health.unless_failed(|| self.log.state.vouch());
        // Another process shows its failure first and then doubts. So either it doubts after this
        // process has vouched, or its failure is seen here.
        fence(Ordering::SeqCst);
        self.check_others()
    }

    /// Ends writing if it has failed in another process of a shared store.
    fn check_others(&self) -> Result<()> {
        let state = &self.log.state;
        let failed = state.is_shared().then(|| state.failed()).flatten();
        failed.map_or(Ok(()), |reason| {
            self.health.fail(&reason, || state.doubt());
            self.health.check_appended()
        })
    }

    /// The bounds of all queues and index files, and the store time of the last record in them.
    /// Dispatch is paused meanwhile, so they all describe the same position of the log.
    fn inventory(&self) -> Result<(Inventory, i64)> {
        self.dispatcher.hold(|position, stored_ms| {
            let index = self.index.as_deref();
            let inventory = Inventory::of(position, &self.topics, &self.queues, index)?;
            Ok((inventory, stored_ms))
        })
    }

    /// Writes what a clean close leaves: everything durable, then the bounds, the checkpoint and
    /// the clean flag. The file `abort` is removed last.
    pub fn full_pass_for_close(&self, last_store_ms: i64) -> Result<()> {
        self.write_out()?;
        let end = self.log.published();
        // A synchronous store dispatches only durable messages, so the flush comes first.
        self.flush_to(end)?;
        self.pool.iter().for_each(TransientPool::let_go);
        self.dispatcher.catch_up(end)?;
        self.keep_offsets(&self.given_offsets())?;
        self.table_dirty.store(true, Ordering::Release);
        self.save_table()?;
        let flushed = self.flush_all()?;
        self.save_inventory(flushed)?;
        self.stamp(&[Stamp::Log, Stamp::Queues, Stamp::Index], last_store_ms);
        if let Some(checkpoint) = &self.flushing.checkpoint {
            checkpoint.sync(&*self.disk)?;
        }
        self.log
            .state
            .set_last_record(self.dispatcher.last_record());
        self.log.state.end_epoch(true);
        self.log.state.sync(&*self.disk)?;
        abort::take_away(&*self.disk, &self.root)
    }

    /// Drops pages after the end of the log from the page cache that were faulted in ahead of use.
    /// They are zeros, but the kernel would write them, and each opening would search them for
    /// records.
    pub fn drop_unused_pages(&self) {
        if let Some((file, range)) = self.tail.lock().unused_pages() {
            let len = range.end - range.start;
            self.disk.drop_zeros(file.path(), range.start, len);
        }
    }
}
