//! What a store with a log for each queue can do in addition.

use super::segments::names;
use super::{PartitionLog, archive, fit, repair, unsupported};
use crate::engine::archive::{SealedSegment, SegmentSurvey};
use crate::engine::{Compacted, Keyless, Linger, QueueLogs, Repair, Topic};
use crate::error::{Error, Result};

impl QueueLogs for PartitionLog {
    fn needs_key(&self, topic: &str) -> bool {
        let compactor = self.compactor.as_ref();
        compactor.is_some_and(|compactor| compactor.compacts(topic))
    }

    fn linger(&self) -> Option<&dyn Linger> {
        let open = self.writer.as_ref()?.open_batches.as_ref()?;
        Some(&**open)
    }

    fn roll(&self) -> Result<bool> {
        self.update()?;
        let writer = self.writer()?;
        writer
            .open_batches
            .iter()
            .for_each(|open| open.append_all());
        writer.parts.roll()
    }

    fn compact_with(
        &self,
        keyless: Keyless,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        let writer = self.writer()?;
        self.check_alone("compacting")?;
        let Some(compactor) = &self.compactor else {
            return unsupported("compaction of a store that is open for reading");
        };
        if let Some(name) = topic {
            names::check_topic(name)?;
            self.topics.get(name).ok_or_else(|| Error::UnknownTopic {
                topic: name.to_owned(),
            })?;
        }
        compactor.compact(&writer.parts, keyless, topic, progress)
    }

    fn delete_before(
        &self,
        topic: &Topic,
        starts: &[(u32, u64)],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let writer = self.writer()?;
        self.check_alone("deleting messages of")?;
        match &self.retention {
            Some(retention) => retention.delete_before(&writer.parts, topic, starts, go_on),
            None => Ok(()),
        }
    }

    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair> {
        self.check_alone("repairing")?;
        repair::repair(self, progress)
    }

    fn batch_bytes_from(&self, topic: &Topic, queue: u32, offset: u64) -> Result<u64> {
        let (_, view) = self.existing(topic, queue)?;
        fit::bytes_from(self.disk(), &view, offset)
    }

    fn sealed_segments(&self, queue: Option<(&Topic, u32)>) -> Result<Vec<SealedSegment>> {
        archive::sealed(self, queue)
    }

    fn survey_segment(&self, segment: &SealedSegment, after: Option<u64>) -> Result<SegmentSurvey> {
        archive::survey(self, segment, after)
    }
}
