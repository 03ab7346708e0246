//! Sends messages that were not handled to the retry topic or to the dead letters.
//!
//! ```text
//!   nack    --> SCHEDULE_TOPIC_XXXX, for as long as its level says --> %RETRY%group
//!   reject, or more attempts than allowed                           --> %DLQ%group
//! ```
//!
//! Both are new messages, with the properties that RocketMQ gives them, so that a broker could
//! continue. The original is settled after its successor is appended: a process that dies in
//! between leaves both, and loses none.

use crate::engine::{Atomicity, Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::record::names::{
    DEAD_PREFIX, DELAY, DELAY_LEVELS_MS, ORIGIN_MESSAGE_ID, REAL_QID, REAL_TOPIC, RETRY_PREFIX,
    RETRY_TOPIC, SCHEDULE_TOPIC,
};
use crate::record::{Copied, Message};
use std::sync::Arc;

/// Number of attempts after which a message becomes a dead letter, as in RocketMQ.
pub const ATTEMPTS_MAX: i32 = 16;
/// The delay level of the first retry. Each further retry uses the next level.
const FIRST_LEVEL: i32 = 3;
/// Property of a dead letter with the reason for its rejection.
const REASON: &str = "FOREBAY_REASON";
/// Maximum length of the reason, in characters.
const REASON_LEN_MAX: usize = 1_000;
/// Properties that applied to another copy of the message.
const OF_ONE_COPY: [&str; 3] = [DELAY, REAL_TOPIC, REAL_QID];

/// The topic of a group's messages to be retried.
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The topic of a group's dead letters.
pub fn dead_topic(group: &str) -> String {
    format!("{DEAD_PREFIX}{group}")
}

/// What becomes of a message that was not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate<'a> {
    /// It is delivered again after the delay of this level, or of one that grows with the attempts.
    Retry(Option<u8>),
    /// It becomes a dead letter, for this reason.
    Dead(Option<&'a str>),
}

/// Appends the successor of a message. On return it is as durable as a sent message.
pub(super) fn send_back(
    handle: &Handle,
    group: &str,
    message: &Message,
    fate: Fate<'_>,
) -> Result<()> {
    let engine = handle.writer()?;
    let record = message.record();
    let attempts = record.reconsume_times().max(0);
    let (sent_to, id) = (message.topic(), message.id());
    let mut with = Vec::new();
    for (name, value) in [(RETRY_TOPIC, &*sent_to), (ORIGIN_MESSAGE_ID, &id)] {
        if record.property(name).is_none() {
            with.push((name, value));
        }
    }
    let is_tried_again = matches!(fate, Fate::Retry(_)) && attempts < ATTEMPTS_MAX;
    let level = match fate {
        Fate::Retry(Some(level)) => i32::from(level),
        _ => (FIRST_LEVEL + attempts).min(i32::try_from(DELAY_LEVELS_MS.len()).unwrap_or(1)),
    };
    let (retry, level_text) = (retry_topic(group), level.to_string());
    let reason = match fate {
        Fate::Dead(Some(reason)) => printable(reason),
        _ => String::new(),
    };
    let (topic, queue) = if is_tried_again {
        single_queue(engine, &retry)?;
        with.extend([
            (DELAY, &*level_text),
            (REAL_TOPIC, &*retry),
            (REAL_QID, "0"),
        ]);
        let schedule = engine.topic_for_append(SCHEDULE_TOPIC)?;
        (schedule, level.unsigned_abs().saturating_sub(1))
    } else {
        if !reason.is_empty() {
            with.push((REASON, &*reason));
        }
        (single_queue(engine, &dead_topic(group))?, 0)
    };
    let copied = Copied {
        topic: &topic.name,
        queue,
        without: &OF_ONE_COPY,
        with: &with,
        reconsume_times: attempts.saturating_add(1),
        clock_ms: handle.clock.now_ms(),
    };
    let mut batch = engine.batch();
    batch.push_copy(&record, &copied)?;
    let batches = &mut [(&*topic, &mut batch)];
    engine.append(batches, Atomicity::Rows, Durability::Default)?;
    Ok(())
}

/// The topic; created with one queue if it does not exist.
fn single_queue(engine: &dyn Engine, name: &str) -> Result<Arc<Topic>> {
    match engine.topics().get(name) {
        Some(topic) => Ok(topic),
        None => engine.create_topic(name, 1, Durability::Flushed),
    }
}

/// A reason without the characters that separate properties, and of limited length.
fn printable(reason: &str) -> String {
    let kept = reason.chars().take(REASON_LEN_MAX);
    kept.map(|it| if it.is_control() { ' ' } else { it })
        .collect()
}

/// Checks the delay level given by a caller.
///
/// # Errors
///
/// [`Error::InvalidOption`] for an invalid level.
pub(super) fn check_level(level: Option<u8>) -> Result<()> {
    let levels = DELAY_LEVELS_MS.len();
    match level {
        Some(level) if level == 0 || usize::from(level) > levels => {
            let reason = format!("must be from 1 to {levels}, or None");
            Err(Error::option("delay_level", level, reason))
        }
        _ => Ok(()),
    }
}
