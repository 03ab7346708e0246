//! What tests need to step through an engine without threads.

use super::CommitLog;
use super::parts::Parts;
use super::share::Core;
use crate::engine::service::flush::FlushRules;
use crate::engine::service::retention::Now;
use crate::error::Result;
use std::sync::Arc;
use std::time::Instant;

/// For a caller that steps.
impl CommitLog {
    /// The rules of the flush service.
    pub(crate) fn flush_rules(&self) -> FlushRules {
        self.services.flush_rules
    }

    /// The parts.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// One step of rolling, then one of retention.
    pub(crate) fn step_retention(&self, clock_ms: i64, now: Instant) {
        self.services.rolling.step(&self.parts, clock_ms);
        self.services
            .retain(&self.parts, Now::stepped(clock_ms, now));
    }

    /// One step of group commit.
    pub(crate) fn step_group_commit(&self) {
        self.services.group.step_once(&**self.parts);
    }

    /// One step of dispatch. As in its thread, a failure ends writing.
    pub(crate) fn step_dispatch(&self) {
        if let Err(error) = self.parts.dispatcher.step()
            && error.ends_writing()
        {
            self.parts.fail(&error);
        }
    }
}

/// For a caller that steps through one of the processes that share a store.
impl CommitLog {
    /// The parts that the services work on, if this process leads or can take the lead.
    pub(crate) fn led_parts(&self) -> Result<Option<Arc<Parts>>> {
        self.core().led_parts()
    }

    /// Seals the log file in use, and waits for nobody.
    pub(crate) fn step_seal(&self) -> Result<()> {
        self.core().seal(None).map(drop)
    }

    /// Takes the append lock, which erases what a holder that died has left. Returns the end of the
    /// log, and the next offset of a queue.
    pub(crate) fn mended_end(&self, topic: &str, queue: u32) -> Result<(u64, u64)> {
        self.core().mended_end(topic, queue)
    }

    fn core(&self) -> &Core {
        let Some(share) = &self.share else {
            unreachable!("the story shares the store")
        };
        &share.core
    }
}
