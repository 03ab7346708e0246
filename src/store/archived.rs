//! The parts of a store that an archive copies.

use super::Store;
use crate::engine::archive::{SealedFile, SealedSegment, SegmentSurvey, Survey};
use crate::error::{Error, Result};

impl Store {
    /// Log files that will never be written again; see [`crate::Files::sealed_files`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a store in memory; [`Error::Closed`], [`Error::Forked`].
    pub fn sealed_files(&self) -> Result<Vec<SealedFile>> {
        self.files()?.sealed_files()
    }

    /// The tables that an archive keeps beside a sealed log file; see [`crate::Files::survey`].
    ///
    /// # Errors
    ///
    /// As [`Store::sealed_files`], and [`Error::NotFound`] for a file that is not sealed.
    pub fn survey(&self, start: u64) -> Result<Survey> {
        self.files()?.survey(start)
    }

    /// Segments that will never be written again, of all queues or of one; `None` unless the engine
    /// keeps a log for each queue. See [`crate::QueueLogs::sealed_segments`].
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`], [`Error::Closed`], [`Error::Forked`]; of a writer, those of
    /// [`Store::flush`].
    pub fn sealed_segments(
        &self,
        queue: Option<(&str, u32)>,
    ) -> Result<Option<Vec<SealedSegment>>> {
        let engine = self.engine()?;
        let Some(logs) = engine.queue_logs() else {
            return Ok(None);
        };
        let found = match queue {
            None => logs.sealed_segments(None),
            Some((name, queue)) => {
                let topic = engine.topics().get(name);
                let topic = topic.ok_or_else(|| Error::UnknownTopic {
                    topic: name.to_owned(),
                })?;
                logs.sealed_segments(Some((&topic, queue)))
            }
        };
        found.map(Some)
    }

    /// The part of a sealed segment that an archive keeps; see
    /// [`crate::QueueLogs::survey_segment`].
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] for a segment that was deleted or replaced; [`Error::Unsupported`]
    /// unless the engine keeps a log for each queue; [`Error::Closed`], [`Error::Forked`].
    pub fn survey_segment(
        &self,
        segment: &SealedSegment,
        after: Option<u64>,
    ) -> Result<SegmentSurvey> {
        let engine = self.engine()?;
        let logs = engine.queue_logs().ok_or_else(|| Error::Unsupported {
            what: format!("segments in the engine {}", engine.meanings().kind.word()),
        })?;
        logs.survey_segment(segment, after)
    }
}
