//! Sending: appends, wakes other threads, and waits for the disk.

use super::parts::{BACKLOG_MAX, Parts};
use super::share::Core;
use crate::engine::service::durability::Durable;
use crate::engine::service::group_commit::{self, GroupCommit};
use crate::engine::{Appended, Atomicity, Durability, Topic};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::record::Batch;
use crate::record::rocketmq::encode::RECORD_OVERHEAD_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Settings for appends that wait for the disk, and counts of failed appends.
#[derive(Debug)]
pub struct Sending {
    flush_timeout: Duration,
    failed: AtomicU64,
    busy: AtomicU64,
}

impl Sending {
    /// The settings from the options.
    pub fn new(options: &Options) -> Sending {
        Sending {
            flush_timeout: options.flush_timeout,
            failed: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        }
    }

    /// Appends, wakes the threads concerned, and waits for the disk if asked to.
    #[inline]
    pub fn append(
        &self,
        parts: &Arc<Parts>,
        group: &Arc<GroupCommit>,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended> {
        let mut appended = Appended::default();
        let result = match atomicity {
            Atomicity::Rows => parts.append_rows(batches, &mut appended),
            Atomicity::Whole => parts.append_whole(batches, &mut appended),
        };
        result.inspect_err(|error| self.count(error))?;
        parts.announce(appended.end);
        let sync = parts.log.sync;
        if durability.waits(sync) {
            self.wait(group, parts, &mut appended)?;
        } else if sync {
            // The message may be in a buffer of the pool. Written out, it survives a crash of the
            // process.
            parts.write_out()?;
        }
        Ok(appended)
    }

    /// [`Sending::append`] in a shared store.
    pub fn append_shared(
        &self,
        core: &Arc<Core>,
        group: &Arc<GroupCommit>,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
        durability: Durability,
    ) -> Result<Appended> {
        let mut appended = Appended::default();
        let result = match atomicity {
            Atomicity::Rows => core.append(batches, &mut appended),
            Atomicity::Whole => core.append_whole(batches, &mut appended),
        };
        result.inspect_err(|error| self.count(error))?;
        if durability.waits(core.is_sync()) {
            self.wait(group, core, &mut appended)?;
        }
        Ok(appended)
    }

    /// Waits for the disk.
    fn wait<L: Durable>(
        &self,
        group: &Arc<GroupCommit>,
        log: &Arc<L>,
        appended: &mut Appended,
    ) -> Result<()> {
        let waiter = group_commit::enlist(group, log, appended.end);
        appended.await_durable(&waiter, self.flush_timeout)
    }

    /// Number of appends that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Number of appends that failed because the log was busy.
    pub fn busy(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    #[cold]
    fn count(&self, error: &Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let busy = u64::from(matches!(error, Error::Busy { .. }));
        self.busy.fetch_add(busy, Ordering::Relaxed);
    }
}

/// Appends rows that other processes have staged; see
/// [`Engine::append_staged`](crate::Engine::append_staged).
pub fn append_staged(
    parts: &Parts,
    batches: &mut [(&Topic, &mut Batch)],
    atomicity: Atomicity,
) -> Result<u64> {
    let mut appended = Appended::default();
    match atomicity {
        Atomicity::Rows => parts.append_rows(batches, &mut appended)?,
        Atomicity::Whole => parts.append_whole(batches, &mut appended)?,
    }
    parts.announce(appended.end);
    if let Some(first) = appended.rows.first() {
        parts.log.write_back(first.position, appended.end);
    }
    Ok(appended.end)
}

/// [`append_staged`] in a shared store.
pub fn append_staged_shared(
    core: &Core,
    batches: &mut [(&Topic, &mut Batch)],
    atomicity: Atomicity,
) -> Result<u64> {
    let mut appended = Appended::default();
    match atomicity {
        Atomicity::Rows => core.append(batches, &mut appended)?,
        Atomicity::Whole => core.append_whole(batches, &mut appended)?,
    }
    if let Some(first) = appended.rows.first() {
        core.write_back(first.position, appended.end);
    }
    Ok(appended.end)
}

/// Whether an append of a record of `len` bytes would not wait; see
/// [`Engine::is_ready_for`](crate::Engine::is_ready_for).
#[inline]
pub fn is_ready_for(parts: &Parts, len: usize) -> bool {
    let log = &parts.log;
    // With a pool, the sender may have to write out. While a reader in another process waits, the
    // sender dispatches.
    if parts.pool.is_some() || parts.dispatcher.is_followed() {
        return false;
    }
    let published = log.published();
    let end = published + len as u64 + RECORD_OVERHEAD_MAX as u64;
    end <= log.ready_end()
        && published.saturating_sub(parts.dispatcher.dispatched()) <= BACKLOG_MAX
        && !parts.tail.is_locked()
}
