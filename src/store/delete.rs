//! Deleting the messages of one topic before an offset or a time.

use super::Store;
use crate::bound::{Bound, Bounded};
use crate::engine::Point;
use crate::error::Result;

impl Store {
    /// Deletes the messages of a topic before `to`, and log files that hold no others. Returns the
    /// first offset of each queue that `to` covers. An offset in `to` below the first one of its
    /// queue changes nothing. Durable on return.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Unsupported`] unless the engine keeps a log for each queue;
    /// [`crate::Error::UnknownTopic`], [`crate::Error::UnknownQueue`];
    /// [`crate::Error::OffsetOutOfRange`] for an offset after the next to be written;
    /// [`crate::Error::ReadOnly`]; errors of the disk.
    pub fn delete_before(&self, topic: &str, to: &Bound) -> Result<Vec<(u32, u64)>> {
        self.delete_before_while(topic, to, &mut || true)
    }

    /// As [`Store::delete_before`]. Calls `go_on` after every few dozen log files; once it returns
    /// false, the remaining files are removed later, at the latest by the next opening. The
    /// messages are deleted even then.
    ///
    /// # Errors
    ///
    /// As [`Store::delete_before`].
    pub fn delete_before_while(
        &self,
        topic: &str,
        to: &Bound,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<(u32, u64)>> {
        let logs = self.queue_logs("deleting messages of one queue")?;
        let engine = self.writer()?;
        let topic = self.topic(topic)?;
        let queues = match to {
            Bound::Offsets(offsets) => offsets.keys().copied().collect(),
            _ => engine.queues(&topic),
        };
        // The deleted files may be the only durable record of the next offset, so the rest is made
        // durable first.
        engine.flush(&mut || true)?;
        let mut starts = Vec::with_capacity(queues.len());
        for queue in queues {
            let Some(mut offsets) = engine.bounds(&topic, queue)? else {
                return Err(topic.unknown_queue(queue));
            };
            let min = std::mem::take(&mut offsets.start);
            let bounded = Bounded {
                topic: &topic.name,
                queue,
                offsets,
            };
            let at = |time| engine.offset_at(&topic, queue, Point::Time(time));
            let start = bounded.start(to, at)?;
            starts.push((queue, start.max(min)));
        }
        logs.delete_before(&topic, &starts, go_on)?;
        Ok(starts)
    }
}
