//! What the store appends for others: rows that were staged, and markers of its own.

use super::PartitionLog;
use crate::engine::service::durability::Durable;
use crate::engine::service::watch::Watch;
use crate::engine::{Appended, Atomicity, Staging, Topic};
use crate::error::Result;
use crate::record::Batch;
use std::sync::Arc;

impl PartitionLog {
    /// Sets the watch that is called about once a second, if the directory is written.
    pub(crate) fn set_watch(&self, watch: Arc<dyn Watch>) {
        if let Some(writer) = &self.writer {
            writer.services.set_watch(watch);
        }
    }
}

impl Staging for PartitionLog {
    fn append_staged(
        &self,
        batches: &mut [(&Topic, &mut Batch)],
        atomicity: Atomicity,
    ) -> Result<u64> {
        let writer = self.writer()?;
        if let Some(open) = &writer.open_batches {
            open.append_before(batches);
        }
        let mut appended = Appended::default();
        let parts = &writer.parts;
        // Whoever stages rows flushes them.
        parts.append_uncounted(batches, atomicity, &mut appended)?;
        Ok(appended.end)
    }

    fn flush_to(&self, end: u64) -> Result<()> {
        self.writer()?.parts.flush_to(end)
    }

    fn make_readable(&self, end: u64) -> Result<()> {
        let parts = &self.writer()?.parts;
        match parts.rules.sync {
            true => parts.flush_to(end.min(parts.published())),
            // Readers see what is appended.
            false => Ok(()),
        }
    }
}
