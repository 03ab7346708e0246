//! Delivery of a message that has waited: it is appended to the topic that it is meant for.

use crate::engine::{Atomicity, Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::options::Flush;
use crate::record::names::{DELAY, REAL_QID, REAL_TOPIC, SCHEDULE_TOPIC, TIMER_OFFSET};
use crate::record::{Copied, Message, Row};
use crate::warning::Warning;
use std::sync::Arc;

/// Properties that a delivered message can do without.
const NOT_NEEDED: &[&str] = &[DELAY, REAL_TOPIC, REAL_QID, TIMER_OFFSET];

/// Deliveries of one step. At its end the disk begins to store them if readers wait for that.
pub(super) struct Delivered<'a> {
    handle: &'a Handle,
    end: Option<u64>,
}

impl Delivered<'_> {
    /// No deliveries yet, to the store of `handle`.
    pub(super) fn to(handle: &Handle) -> Delivered<'_> {
        Delivered { handle, end: None }
    }

    /// Adds one, by the end of its record.
    pub(super) fn add(&mut self, end: Option<u64>) {
        self.end = end.or(self.end);
    }
}

impl Drop for Delivered<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end
            && self.handle.options.flush() == Flush::Sync
        {
            // This thread does not wait for it.
            drop(self.handle.engine.enlist(end));
        }
    }
}

/// Appends a message to the topic and queue that it is meant for, and returns the end of its
/// record. One that names none, or that no record can hold, stays where it is, with a warning: it
/// must not stop those after it.
pub(super) fn deliver(
    handle: &Handle,
    message: &Message,
    without: &[&str],
    with: &[(&str, &str)],
) -> Result<Option<u64>> {
    let record = message.record();
    let delivered = match target(&*handle.engine, &record)? {
        Some((topic, queue)) => {
            let full = append(handle, &record, (&*topic, queue), (without, with));
            match full {
                // Sent by a version or with options that left less room. Without `TIMER_OFFSET` a
                // process that dies now may deliver it again.
                Err(Error::TooLarge { .. }) => {
                    append(handle, &record, (&*topic, queue), (NOT_NEEDED, &[]))
                }
                appended => appended,
            }
        }
        None => Ok(None),
    };
    match delivered {
        Ok(None) | Err(Error::TooLarge { .. }) => {
            handle.warnings().add(Warning::Undelivered {
                position: record.position().cast_unsigned(),
            });
            Ok(None)
        }
        delivered => delivered,
    }
}

/// Appends a copy without some properties and with others; returns its end.
fn append(
    handle: &Handle,
    record: &Row<'_>,
    (topic, queue): (&Topic, u32),
    (without, with): (&[&str], &[(&str, &str)]),
) -> Result<Option<u64>> {
    let engine = &*handle.engine;
    let copied = Copied {
        topic: &topic.name,
        queue,
        without,
        with,
        reconsume_times: record.reconsume_times(),
        clock_ms: handle.clock.now_ms(),
    };
    let mut batch = engine.form().batch();
    batch.push_copy(record, &copied)?;
    let batches = &mut [(topic, &mut batch)];
    let appended = engine.append(batches, Atomicity::Rows, Durability::Written)?;
    Ok(Some(appended.end))
}

/// The topic and queue that a delayed message is meant for; `None` if it names none that can exist.
///
/// # Errors
///
/// Those of creating the topic. They may pass, and then the message can be delivered.
fn target(engine: &dyn Engine, record: &Row<'_>) -> Result<Option<(Arc<Topic>, u32)>> {
    let Some((name, queue)) = named(record) else {
        return Ok(None);
    };
    // A message that is delayed to the schedule would come back for ever.
    if name == SCHEDULE_TOPIC || engine.meanings().check_topic(name).is_err() {
        return Ok(None);
    }
    let topic = match engine.topics().get(name) {
        Some(topic) => topic,
        None => match engine.topic_for_append(name) {
            Err(Error::InvalidTopic { .. }) => return Ok(None),
            created => created?,
        },
    };
    let queue = queue % topic.write_queues().max(1);
    Ok(Some((topic, queue)))
}

/// The topic and the number of the queue that a delayed message names.
fn named<'a>(record: &'a Row<'_>) -> Option<(&'a str, u32)> {
    let text = |name: &str| str::from_utf8(record.property(name)?).ok();
    Some((text(REAL_TOPIC)?, text(REAL_QID)?.parse().ok()?))
}
