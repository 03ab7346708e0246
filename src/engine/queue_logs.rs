//! What an engine that keeps a log for each queue can do in addition.
//!
//! Such an engine can remove messages of one queue and keep those of the others. An engine with one
//! log for all queues cannot.

use super::archive::{SealedSegment, SegmentSurvey};
use super::{Compacted, Engine, Keyless, Linger, Repair, Topic};
use crate::error::Result;

/// An engine with a log for each queue; see `queue_logs` of an [`Engine`].
pub trait QueueLogs: Engine {
    /// Whether a message without a key is refused, because the topic is compacted.
    fn needs_key(&self, topic: &str) -> bool;

    /// Where messages linger; `None` if each is appended at once.
    fn linger(&self) -> Option<&dyn Linger>;

    /// Completes the last log file of each queue that has messages in it, so that compaction and
    /// retention can take them. Durable on return. Returns whether there were any.
    fn roll(&self) -> Result<bool>;

    /// Drops messages that have a later one with the same key, of all topics that are compacted or
    /// of one of them. `progress` receives the bytes done and the total; if it returns false,
    /// compaction stops.
    fn compact(
        &self,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        self.compact_with(Keyless::Drop, topic, progress)
    }

    /// As [`QueueLogs::compact`], and says what happens to messages without a key.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidOption`] for the first message without a key that is refused, after
    /// the other partitions were compacted.
    fn compact_with(
        &self,
        keyless: Keyless,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted>;

    /// Raises the first offsets of queues: messages before them are deleted, and log files that
    /// hold no others. An offset that is lower than the first one changes nothing. Durable on
    /// return. The offsets are at most the next to be written. Once `go_on` returns false, the
    /// remaining log files are removed later, at the latest by the next opening.
    ///
    /// # Errors
    ///
    /// [`crate::Error::UnknownQueue`]; errors of the disk.
    fn delete_before(
        &self,
        topic: &Topic,
        starts: &[(u32, u64)],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()>;

    /// Repairs what it can; see [`Repair`]. `progress` works as in [`Engine::verify`]; if it
    /// returns false, nothing is changed. Durable on return.
    fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair>;

    /// Approximate bytes of the messages from an offset on, which must be within the bounds: the
    /// bytes of their batches. Reads no message.
    fn batch_bytes_from(&self, topic: &Topic, queue: u32, offset: u64) -> Result<u64>;

    // Archives.

    /// Segments that will never be written again and are durable, those of each queue in order and
    /// without gaps; of all queues or of one. Never includes the last segment of a queue.
    fn sealed_segments(&self, queue: Option<(&Topic, u32)>) -> Result<Vec<SealedSegment>>;

    /// What an archive keeps of a sealed segment if it has all messages of the queue before the
    /// offset `after`; `None` if it has none of those right before the segment.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotFound`] if the segment has been deleted or replaced since it was listed;
    /// errors of the disk.
    fn survey_segment(&self, segment: &SealedSegment, after: Option<u64>) -> Result<SegmentSurvey>;
}
