//! What the leader does for all processes, besides the services of its parts: it seals log files,
//! and calls the layers above for work that one process does at a time.

use super::core::{Core, Role};
use crate::engine::commit_log::read::follow;
use crate::engine::commit_log::services::{self, BUSY_LEN};
use crate::engine::directory::page::Mark;
use crate::engine::directory::page::StatePage;
use crate::engine::service::durability::Durable;
use crate::engine::service::duty::{self, Desk, Lead};
use crate::engine::service::watch::Watch;
use crate::error::{Awaited, Error, Result};
use crate::meter::Meters;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Core {
    /// Sets the watch that is called about once a second while this process leads.
    pub fn set_watch(&self, watch: Arc<dyn Watch>) {
        let _ = self.watch.set(watch);
    }

    /// Shows these measurements to other processes, about once a second while this process leads.
    pub fn show_meters(&self, meters: &Arc<Meters>) {
        let _ = self.meters.set(Arc::clone(meters));
    }

    /// Does what is due, if this process leads.
    pub(super) fn tend(&self) {
        let clock_ms = self.machine.clock.now_ms();
        let due = {
            let Some(mut role) = self.role.try_lock() else {
                return;
            };
            let Role::Leader(leader) = &mut *role else {
                return;
            };
            leader.renew(&self.member.page, &self.options);
            leader.parts.report.pass_on(&self.parts.report);
            if let Some(meters) = self.meters.get() {
                services::show(&leader.parts, self.counters(), meters);
            }
            leader.services.rolling.due(&leader.parts, clock_ms)
        };
        if let Some(start) = due {
            // If there is no room for another file, the next call tries again.
            let _ = self.seal(Some(start));
        }
        if let Some(watch) = self.watch.get() {
            watch.check();
        }
    }

    /// If this process leads and readers wait, dispatches what it has sent: the dispatch thread
    /// would have to be woken first.
    pub(super) fn dispatch_for_readers(&self) {
        if let Some(role) = self.role.try_lock()
            && let Role::Leader(leader) = &*role
            && leader.parts.dispatcher.is_followed()
        {
            // The dispatch thread will meet the same failure and report it.
            let _ = leader.parts.dispatcher.try_step();
        }
    }

    /// Runs a step of dispatch if this process leads and no thread runs one.
    pub(super) fn try_dispatch(&self) {
        if let Some(role) = self.role.try_lock()
            && let Role::Leader(leader) = &*role
        {
            let _ = leader.parts.dispatcher.try_step();
        }
    }

    /// Sleeps until there is something to dispatch, at most for `timeout`, and perhaps less, and
    /// dispatches it. Returns at once if `ready` holds. Returns false if another process leads, if
    /// the store is synchronous, if dispatch fails, or if messages come so fast that readers should
    /// leave dispatch to its thread, which rests between steps and so wakes them less often.
    pub fn serve(&self, timeout: Duration, ready: &dyn Fn() -> bool) -> bool {
        // Readers of a synchronous store wait for the disk.
        if !self.lead.is_held() || self.is_sync() {
            return false;
        }
        let published = self.published();
        let before = self.rested.swap(published, Ordering::Relaxed);
        published.saturating_sub(before) < BUSY_LEN
            && self
                .polling
                .measure(timeout, || duty::serve(self, timeout, ready))
    }

    /// Whether a reader of this process that waits will dispatch something.
    pub fn dispatches_next(&self) -> bool {
        self.lead.is_held() && !self.is_sync() && self.member.page.is_due()
    }

    /// Makes the log visible to readers in all processes up to `end`, or up to its end at the time
    /// of the call if that is less.
    ///
    /// # Errors
    ///
    /// Those of a flush and of dispatch; [`Error::Busy`] if the leader is another process and does
    /// not dispatch in time.
    pub fn make_readable(&self, end: u64) -> Result<()> {
        let (began, end) = (Instant::now(), end.min(self.published()));
        if self.is_sync() {
            // Readers see only durable messages.
            self.flush_to(end)?;
        }
        self.dispatch_to(end)?;
        if self.member.page.get(Mark::Dispatched) < end {
            let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Busy {
                what: Awaited::Dispatch,
                waited_ms,
            });
        }
        // The table of topics does not list system topics.
        follow::refresh_queues(&self.parts)
    }

    fn dispatch_to(&self, end: u64) -> Result<()> {
        if let Some(role) = self.role.try_lock()
            && let Role::Leader(leader) = &*role
        {
            return leader.parts.make_readable(end);
        }
        self.await_dispatched(end);
        Ok(())
    }
}

impl Lead for Core {
    type Desk = StatePage;

    fn desk(&self) -> &StatePage {
        &self.member.page
    }

    fn begin_duty(&self) -> bool {
        self.change_duty(|readers| readers + 1)
    }

    fn end_duty(&self) {
        self.change_duty(|readers| readers.saturating_sub(1));
    }

    fn poll(&self, timeout: Duration, is_over: &dyn Fn() -> bool) -> bool {
        self.polling.poll(timeout, is_over)
    }

    fn dispatch(&self) -> bool {
        match &*self.role.lock() {
            Role::Leader(leader) => {
                let done = leader.parts.dispatcher.step_for_reader();
                // Another thread may have done it.
                done.is_ok_and(|worked| worked || !self.desk().is_due())
            }
            Role::Follower | Role::Gone => false,
        }
    }
}

impl Core {
    /// Changes the number of readers on duty. Returns false if this process does not lead.
    fn change_duty(&self, change: impl FnOnce(u32) -> u32) -> bool {
        let mut role = self.role.lock();
        let Role::Leader(leader) = &mut *role else {
            return false;
        };
        leader.on_duty = change(leader.on_duty);
        self.member.page.set_on_duty(leader.on_duty);
        true
    }
}
