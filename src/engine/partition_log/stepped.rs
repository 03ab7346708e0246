//! What tests need to step through an engine without threads.

use super::PartitionLog;
use super::write::{Writer, room};
use crate::engine::service::durability::Durable;
use crate::engine::service::retention::Now;
use crate::error::Result;
use std::path::PathBuf;
use std::sync::Arc;
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

    /// Complete segments of partitions that processes share, which have room after their batches.
    pub(crate) fn with_room(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let parts = self.writer.iter().map(|writer| &writer.parts);
        for parts in parts.filter(|parts| parts.shared.is_some()) {
            for (_, _, ends) in parts.all_ends()? {
                let long = room::with_room(&*parts.disk, &ends, |_| true)?;
                found.extend(long.into_iter().map(|(segment, _)| segment.path.clone()));
            }
        }
        Ok(found)
    }

    /// One step of retention. `wall_ms` is the wall clock.
    pub(crate) fn step_retention(&self, wall_ms: i64, now: Instant) {
        if let Some(retention) = &self.retention {
            retention.step(&self.written().parts, Now::stepped(wall_ms, now));
        }
    }

    /// One step of retention by the clocks of the store, as its thread takes it. `at`: when it
    /// runs.
    pub(crate) fn step_retention_at(&self, at: Instant) {
        if let Some(retention) = &self.retention {
            let parts = &self.written().parts;
            let now = retention.now(parts);
            retention.step(parts, Now { at, ..now });
        }
    }

    /// Becomes the process that runs the services for all that share the log, if there is none.
    /// Returns whether this process is.
    pub(crate) fn try_lead(&self) -> Result<bool> {
        self.written().parts.try_lead()
    }

    /// Takes the append lock, which removes what a process that died with it has left. Returns the
    /// next offsets of all partitions.
    pub(crate) fn mended_ends(&self) -> Result<Vec<(Arc<str>, u32, u64)>> {
        let parts = &self.written().parts;
        drop(parts.take(parts.clock.now_ms())?);
        let all = parts.all_ends()?;
        Ok(all
            .into_iter()
            .map(|(topic, queue, ends)| (topic, queue, ends.next_offset(false)))
            .collect())
    }

    fn written(&self) -> &Writer {
        let Some(writer) = &self.writer else {
            unreachable!("a story opens the log for writing")
        };
        writer
    }
}
