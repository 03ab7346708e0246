//! What the process that leads does for all, besides the services of its parts: it seals log files,
//! and has the layers above do what one process does at a time.

use super::core::{Core, Role};
use crate::engine::commit_log::read::follow;
use crate::engine::directory::page::Mark;
use crate::engine::service::durability::Durable;
use crate::engine::service::watch::Watch;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

impl Core {
    /// Sets the watch that is called about once a second while this process leads.
    pub fn set_watch(&self, watch: Arc<dyn Watch>) {
        let _ = self.watch.set(watch);
    }

    /// Does what is due, if this process leads.
    pub(super) fn tend(&self) {
        let clock_ms = self.machine.clock.now_ms();
        let due = {
            let Some(role) = self.role.try_lock() else {
                return;
            };
            let Role::Leader(leader) = &*role else {
                return;
            };
            leader.parts.report.pass_on(&self.parts.report);
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

    /// Dispatches what a thread of this process, which leads, has sent, if readers in other
    /// processes wait: the thread of dispatch would have to be woken first.
    pub(super) fn dispatch_for_readers(&self) {
        if let Some(role) = self.role.try_lock()
            && let Role::Leader(leader) = &*role
            && leader.parts.dispatcher.is_followed()
        {
            // A failure meets the thread again, which reports it.
            let _ = leader.parts.dispatcher.try_step();
        }
    }

    /// Lets readers in all processes see the log up to `end`, or up to its end when the call began
    /// if that is less.
    ///
    /// # Errors
    ///
    /// Those of a flush and of dispatch; [`Error::Busy`] if the leader is another process and does
    /// not get there.
    pub fn make_readable(&self, end: u64) -> Result<()> {
        let (began, end) = (Instant::now(), end.min(self.published()));
        if self.is_sync() {
            // Readers see only durable messages.
            self.flush_to(end)?;
        }
        self.dispatch_to(end)?;
        if self.member.page.get(Mark::Dispatched) < end {
            let waited_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Busy { waited_ms });
        }
        // The table of topics does not list those of the system.
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
