//! What tests need to step through an engine without threads.

use super::PartitionLog;
use super::write::Writer;
use crate::engine::service::durability::Durable;
use std::time::Instant;

/// For a caller that steps.
impl PartitionLog {
    /// The rules of the flush service.
    pub(crate) fn flush_rules(&self) -> crate::engine::service::flush::FlushRules {
        self.written().services.flush_rules
    }

    /// What the flush service flushes.
    pub(crate) fn parts(&self) -> &impl Durable {
        &*self.written().parts
    }

    /// One step of group commit.
    pub(crate) fn step_group_commit(&self) {
        let writer = self.written();
        writer.services.group.step_once(&*writer.parts);
    }

    /// Appends the messages that linger, as if their time had come.
    pub(crate) fn step_linger(&self) {
        if let Some(open) = &self.written().open_batches {
            open.step();
        }
    }

    /// One step of retention. `wall_ms` is the wall clock.
    pub(crate) fn step_retention(&self, wall_ms: i64, now: Instant) {
        if let Some(retention) = &self.retention {
            retention.step(&self.written().parts, wall_ms, now);
        }
    }

    fn written(&self) -> &Writer {
        let Some(writer) = &self.writer else {
            unreachable!("a story opens the log for writing")
        };
        writer
    }
}
