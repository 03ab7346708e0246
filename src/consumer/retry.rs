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
    DEAD_REASON, DELAY, DELIVER_AT, ORIGIN_MESSAGE_ID, REAL_QID, REAL_TOPIC, RETRY_TOPIC,
    TIMER_OFFSET, TIMER_TOPIC,
};
use crate::record::{Copied, Message};
use crate::table::subscriptions::Subscription;
use std::sync::Arc;

/// Number of retries after which a message becomes a dead letter, unless the group's subscription
/// states another number.
pub const ATTEMPTS_MAX: i32 = 16;
/// The delay level of the first retry. Each further retry uses the next level.
const FIRST_LEVEL: u32 = 3;
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
///
/// In RocketMQ's form a record has at most 32,767 bytes of properties. If the message's own leave
/// too little room, informative properties are left out. If there is no room for those that a retry
/// needs, the message becomes a dead letter.
pub(super) fn send_back(
    handle: &Handle,
    (group, subscription): (&str, &Subscription),
    failed: &Failed<'_>,
) -> Result<(u64, bool)> {
    let retries = failed.retries();
    let queues = u32::try_from(subscription.retry_queue_nums).unwrap_or(0);
    let queues = queues.min(TOPIC_QUEUES_MAX);
    let may_retry = retries < subscription.retry_max_times && queues > 0;
    if let Fate::Retry(level) = failed.fate
        && may_retry
    {
        match retry(handle, group, (level, queues), failed) {
            Err(Error::TooLarge { .. }) => {}
            appended => return Ok((appended?, true)),
        }
    }
    Ok((bury(handle, group, failed)?, false))
}

impl Failed<'_> {
    /// How often the message was retried before.
    fn retries(&self) -> i32 {
        self.message.record().reconsume_times().max(0)
    }

    /// The given properties that the message does not have yet.
    fn without_own<'a>(&self, with: [(&'a str, &'a str); 2]) -> [Option<(&'a str, &'a str)>; 2] {
        let record = self.message.record();
        with.map(|it| Some(it).filter(|(name, _)| record.property(name).is_none()))
    }
}

/// Appends a message that is delivered to one of the retry topic's `queues` after the delay of a
/// level.
fn retry(
    handle: &Handle,
    group: &str,
    (level, queues): (Option<u8>, u32),
    failed: &Failed<'_>,
) -> Result<u64> {
    let engine = handle.writer()?;
    let (sent_to, id) = (failed.message.topic(), failed.message.id());
    let [topic_name, origin] =
        failed.without_own([(RETRY_TOPIC, &*sent_to), (ORIGIN_MESSAGE_ID, &*id)]);
    let topic = engine.meanings().retry_topic(group);
    let queue = (topic_of(engine, &topic, queues)?.next_queue() % queues).to_string();
    let delays = handle.options.delay_levels();
    let levels = delays.all_ms().len();
    let level = level_of(level, failed.retries(), levels);
    let delay = delays.of(level as usize).unwrap_or_default();
    let at = handle.clock.now_ms().saturating_add(delay).to_string();
    let level_text = level.to_string();
    let (when, to) = match engine.meanings().append_times {
        true => {
            let schedule = Handle::schedule_topic(engine, levels)?;
            ((DELAY, &*level_text), (schedule, level.saturating_sub(1)))
        }
        false => (
            (DELIVER_AT, &*at),
            (engine.topic_for_append(TIMER_TOPIC)?, 0),
        ),
    };
    let needed = [(REAL_TOPIC, &*topic), (REAL_QID, &*queue), when];
    let mut with: Vec<(&str, &str)> = topic_name.into_iter().chain(needed).collect();
    let needed = with.len();
    with.extend(origin);
    append(handle, failed, (&*to.0, to.1), (with, needed))
}

/// Appends a dead letter.
fn bury(handle: &Handle, group: &str, failed: &Failed<'_>) -> Result<u64> {
    let engine = handle.writer()?;
    let (sent_to, id) = (failed.message.topic(), failed.message.id());
    let origin = failed.without_own([(RETRY_TOPIC, &*sent_to), (ORIGIN_MESSAGE_ID, &*id)]);
    let mut with: Vec<(&str, &str)> = origin.into_iter().flatten().collect();
    let reason = match failed.fate {
        Fate::Dead(Some(reason)) => printable(reason),
        _ => String::new(),
    };
    if !reason.is_empty() {
        with.push((DEAD_REASON, &reason));
    }
    let topic = topic_of(engine, &engine.meanings().dead_topic(group), 1)?;
    append(handle, failed, (&*topic, 0), (with, 0))
}

/// Appends a copy with more properties, the most important first. Those after the first `needed`
/// are shortened and left out, from the last one on, if there is no room for them.
fn append<'a>(
    handle: &Handle,
    failed: &Failed<'_>,
    (topic, queue): (&Topic, u32),
    (mut with, needed): (Vec<(&'a str, &'a str)>, usize),
) -> Result<u64> {
    let engine = handle.writer()?;
    let attempts = i32::try_from(failed.attempts.max(1)).unwrap_or(i32::MAX);
    loop {
        let copied = Copied {
            topic: &topic.name,
            queue,
            without: &OF_ONE_COPY,
            with: &with,
            reconsume_times: failed.retries().saturating_add(attempts),
            clock_ms: handle.clock.now_ms(),
        };
        let mut batch = engine.form().batch();
        let pushed = batch.push_copy(&failed.message.record(), &copied);
        let appended = pushed.and_then(|()| {
            let batches = &mut [(topic, &mut batch)];
            engine.append(batches, Atomicity::Rows, Durability::Default)
        });
        match appended {
            Err(Error::TooLarge { size, limit, .. }) if with.len() > needed => {
                let excess = usize::try_from(size.saturating_sub(limit)).unwrap_or(usize::MAX);
                let last = with.pop().and_then(|it| shortened(it, excess));
                with.extend(last);
            }
            appended => return Ok(appended?.end),
        }
    }
}

/// A reason that is shorter by at least `excess` bytes; `None` if it is too short, or the property
/// is not a reason.
fn shortened<'a>((name, value): (&'a str, &'a str), excess: usize) -> Option<(&'a str, &'a str)> {
    let len = value.len().checked_sub(excess.max(1))?;
    let value = value.get(..value.floor_char_boundary(len))?;
    (name == DEAD_REASON && !value.is_empty()).then_some((name, value))
}

/// The delay level of a message that was retried `retries` times before, unless a level is given.
fn level_of(given: Option<u8>, retries: i32, levels: usize) -> u32 {
    match given {
        Some(level) => level.into(),
        None => FIRST_LEVEL
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
