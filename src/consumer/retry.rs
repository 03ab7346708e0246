//! Sends messages that were not handled to the retry topic or to the dead letters.
//!
//! ```text
//!   nack    --> SCHEDULE_TOPIC_XXXX, for as long as its level says --> %RETRY%group
//!   reject, or more attempts than allowed                           --> %DLQ%group
//! ```
//!
//! In a partition log the first goes to `rmq_sys_forebay_delay`, with its time, and the topics are
//! `retry.group` and `dlq.group`.
//!
//! Both are new messages, with the properties that RocketMQ gives them, so that a broker could
//! continue. The original is settled after its successor is appended: a process that dies in
//! between leaves both, and loses none.

use crate::engine::{Atomicity, Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::num::short;
use crate::options::{DelayLevels, TOPIC_QUEUES_MAX};
use crate::record::names::{
    DELAY, DELIVER_AT, ORIGIN_MESSAGE_ID, REAL_QID, REAL_TOPIC, RETRY_TOPIC, TIMER_OFFSET,
    TIMER_TOPIC,
};
use crate::record::{Copied, Message};
use crate::table::subscriptions::Subscription;
use std::sync::Arc;

/// Number of retries after which a message becomes a dead letter, unless the group's subscription
/// states another number.
pub const ATTEMPTS_MAX: i32 = 16;
/// The delay level of the first retry. Each further retry uses the next level.
const FIRST_LEVEL: u32 = 3;
/// Property of a dead letter with the reason for its rejection.
const REASON: &str = "FOREBAY_REASON";
/// Maximum length of the reason, in characters.
const REASON_LEN_MAX: usize = 1_000;
/// Properties that applied to another copy of the message.
const OF_ONE_COPY: [&str; 4] = [DELAY, REAL_TOPIC, REAL_QID, TIMER_OFFSET];

/// What happens to a message that was not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate<'a> {
    /// It is delivered again after the delay of this level, or of one that grows with the attempts.
    Retry(Option<u8>),
    /// It becomes a dead letter, for this reason.
    Dead(Option<&'a str>),
}

/// A message that was not handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed<'a> {
    pub(super) message: &'a Message,
    /// Attempts at it since it was appended to its queue.
    pub(super) attempts: u32,
    pub(super) fate: Fate<'a>,
}

/// Appends the successor of a message that `group` could not handle. On return it is as durable as
/// a sent message. Returns its end in the log, and whether the message will be retried.
pub(super) fn send_back(
    handle: &Handle,
    (group, subscription): (&str, &Subscription),
    failed: &Failed<'_>,
) -> Result<(u64, bool)> {
    let engine = handle.writer()?;
    let (message, fate) = (failed.message, failed.fate);
    let record = message.record();
    let retries = record.reconsume_times().max(0);
    let (sent_to, id) = (message.topic(), message.id());
    let mut with = Vec::new();
    for (name, value) in [(RETRY_TOPIC, &*sent_to), (ORIGIN_MESSAGE_ID, &id)] {
        if record.property(name).is_none() {
            with.push((name, value));
        }
    }
    let queues = u32::try_from(subscription.retry_queue_nums).unwrap_or(0);
    let queues = queues.min(TOPIC_QUEUES_MAX);
    let is_tried_again =
        matches!(fate, Fate::Retry(_)) && retries < subscription.retry_max_times && queues > 0;
    let delays = handle.options.delay_levels();
    let levels = delays.all_ms().len();
    let level = level_of(fate, retries, levels);
    let delay = delays.of(level as usize).unwrap_or_default();
    let now = handle.clock.now_ms();
    let (level_text, at_text) = (level.to_string(), now.saturating_add(delay).to_string());
    let retry = engine.meanings().retry_topic(group);
    let queue_text;
    let reason = match fate {
        Fate::Dead(Some(reason)) => printable(reason),
        _ => String::new(),
    };
    let (topic, queue) = if is_tried_again {
        queue_text = (topic_of(engine, &retry, queues)?.next_queue() % queues).to_string();
        with.extend([(REAL_TOPIC, &*retry), (REAL_QID, &*queue_text)]);
        match engine.meanings().append_times {
            true => {
                with.push((DELAY, &*level_text));
                let schedule = Handle::schedule_topic(engine, levels)?;
                (schedule, level.saturating_sub(1))
            }
            false => {
                with.push((DELIVER_AT, &*at_text));
                (engine.topic_for_append(TIMER_TOPIC)?, 0)
            }
        }
    } else {
        if !reason.is_empty() {
            with.push((REASON, &*reason));
        }
        (
            topic_of(engine, &engine.meanings().dead_topic(group), 1)?,
            0,
        )
    };
    let attempts = i32::try_from(failed.attempts.max(1)).unwrap_or(i32::MAX);
    let copied = Copied {
        topic: &topic.name,
        queue,
        without: &OF_ONE_COPY,
        with: &with,
        reconsume_times: retries.saturating_add(attempts),
        clock_ms: now,
    };
    let mut batch = engine.form().batch();
    batch.push_copy(&record, &copied)?;
    let batches = &mut [(&*topic, &mut batch)];
    let appended = engine.append(batches, Atomicity::Rows, Durability::Default)?;
    Ok((appended.end, is_tried_again))
}

/// The delay level of a message that was retried before, so many times.
fn level_of(fate: Fate<'_>, retries: i32, levels: usize) -> u32 {
    match fate {
        Fate::Retry(Some(level)) => level.into(),
        _ => FIRST_LEVEL
            .saturating_add(retries.unsigned_abs())
            .min(short(levels)),
    }
}

/// The topic; created, or given more queues, if it has fewer than `queues`.
fn topic_of(engine: &dyn Engine, name: &str, queues: u32) -> Result<Arc<Topic>> {
    match engine.topics().get(name) {
        Some(topic) if topic.write_queues() >= queues => Ok(topic),
        _ => engine.create_topic(name, queues, Durability::Flushed),
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
pub(super) fn check_level(level: Option<u8>, delays: &DelayLevels) -> Result<()> {
    let levels = delays.all_ms().len();
    match level {
        Some(level) if level == 0 || usize::from(level) > levels => {
            let rule = format!("be from 1 to {levels}, or None");
            Err(Error::must("delay_level", level, rule))
        }
        _ => Ok(()),
    }
}
