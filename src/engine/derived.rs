//! Methods that every engine gets from the methods of [`Engine`].

use super::{Address, Engine, Files, Point, QueueLogs, Staging, Topic};
use crate::error::{Error, Result};
use crate::record::Message;
use std::ops::Range;
use std::time::Duration;

/// Messages measured between two calls of `go_on`.
const MEASURED_AT_ONCE: u64 = 8192;

impl dyn Engine + '_ {
    /// Operations on the files of a store that has one log; `None` for other engines.
    pub fn files(&self) -> Option<&dyn Files> {
        self.abilities().files
    }

    /// Operations on single queues of a store that has a log for each; `None` for other engines.
    pub fn queue_logs(&self) -> Option<&dyn QueueLogs> {
        self.abilities().queue_logs
    }

    /// Appends of rows that other processes have staged; `None` for engines that accept none.
    pub fn staging(&self) -> Option<&dyn Staging> {
        self.abilities().staging
    }

    /// [`Engine::wait_until`] without another condition.
    pub fn wait_readable(&self, position: u64, timeout: Duration) -> u64 {
        self.wait_until(position, timeout, &|| false)
    }

    /// [`Engine::bounds`] of the messages that lie entirely below a position of the log. Given the
    /// durable position, these are the offsets that survive a power loss.
    pub fn bounds_below(
        &self,
        topic: &Topic,
        queue: u32,
        position: u64,
    ) -> Result<Option<Range<u64>>> {
        match self.bounds(topic, queue)? {
            Some(bounds) if !bounds.is_empty() => {
                let end = self.offset_at(topic, queue, Point::Position(position))?;
                Ok(Some(bounds.start.min(end)..end))
            }
            bounds => Ok(bounds),
        }
    }

    /// Bytes of the records of the messages from an offset on, which must be within the bounds.
    /// Where records share a batch, an estimate from the sizes of the batches. Calls `go_on` after
    /// every few thousand messages; once it returns false, the remaining messages do not count.
    pub fn bytes_from(
        &self,
        topic: &Topic,
        queue: u32,
        offset: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<u64> {
        if let Some(logs) = self.queue_logs() {
            return logs.batch_bytes_from(topic, queue, offset);
        }
        let end = self.bounds(topic, queue)?.map_or(offset, |it| it.end);
        let (mut next, mut bytes) = (offset, 0);
        while next < end {
            let part = next..end.min(next + MEASURED_AT_ONCE);
            let (fitted, of_part) = self.fit(topic, queue, part.clone(), u64::MAX)?;
            bytes += of_part;
            if fitted < part.end || !go_on() {
                break;
            }
            next = fitted;
        }
        Ok(bytes)
    }

    /// The message with this id.
    pub fn message_with_id(&self, id: &str) -> Result<Message> {
        let (name, queue, offset) = match self.meanings().address_of(id)? {
            Address::Position(position) => return self.message_at(position),
            Address::Offset(topic, queue, offset) => (topic, queue, offset),
        };
        let topic = self.topics().get(name).ok_or_else(|| Error::UnknownTopic {
            topic: name.to_owned(),
        })?;
        let bounds = self.bounds(&topic, queue)?.unwrap_or_default();
        self.get_within(&topic, queue, offset.cast_signed(), bounds)
    }

    /// The message at an offset of a queue that had these bounds just before.
    ///
    /// # Errors
    ///
    /// [`Error::OffsetOutOfRange`] with the bounds that the offset is outside of: those given, or
    /// the current ones if retention has deleted the message since; errors of [`Engine::get`].
    pub fn get_within(
        &self,
        topic: &Topic,
        queue: u32,
        offset: i64,
        bounds: Range<u64>,
    ) -> Result<Message> {
        let outside = |bounds: Range<u64>| Error::OffsetOutOfRange {
            topic: topic.name.to_string(),
            queue,
            offset,
            min: bounds.start,
            max: bounds.end,
        };
        let within = u64::try_from(offset).ok();
        let Some(number) = within.filter(|number| bounds.contains(number)) else {
            return Err(outside(bounds));
        };
        match self.get(topic, queue, number)? {
            Some(message) => Ok(message),
            None => Err(outside(self.bounds(topic, queue)?.unwrap_or(bounds))),
        }
    }
}
