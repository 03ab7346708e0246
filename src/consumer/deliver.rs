//! Delivery of a message that has waited: it is appended to the topic that it is meant for.

use crate::engine::{Atomicity, Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::options::Flush;
use crate::record::names::{DELAY, REAL_QID, REAL_TOPIC, SCHEDULE_TOPIC, TIMER_OFFSET};
use crate::record::{Copied, Message, Row};
use crate::warning::Warning;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Properties that are dropped if a delivered message is too large with them.
const NOT_NEEDED: &[&str] = &[DELAY, REAL_TOPIC, REAL_QID, TIMER_OFFSET];

/// Deliveries of one step. When dropped, starts a flush if readers see only what is durable.
pub(super) struct Delivered<'a> {
    handle: &'a Handle,
    end: Option<u64>,
}

impl Delivered<'_> {
    /// No deliveries yet, to the store of `handle`.
    pub(super) fn to(handle: &Handle) -> Delivered<'_> {
        Delivered { handle, end: None }
    }

    /// Adds the delivery whose record ends at `end`.
    pub(super) fn add(&mut self, end: Option<u64>) {
        self.end = end.or(self.end);
    }
}

impl Drop for Delivered<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end
            && self.handle.options.flush() == Flush::Sync
        {
            // This thread does not wait for the flush.
            drop(self.handle.engine.enlist(end));
        }
    }
}

/// The outcome of the delivery of a message that was due.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was appended; the end of its record.
    Delivered(u64),
    /// Its topic cannot be written until somebody removes the reason. It must not stop the
    /// messages after it.
    Refused(String),
    /// It can never be delivered, and stays where it is.
    Impossible(String),
}

/// Appends a message to the topic and queue that it is meant for.
///
/// # Errors
///
/// Errors that other messages would cause too, and temporary ones, such as a full disk. A later
/// call then delivers the message.
pub(super) fn deliver(
    handle: &Handle,
    message: &Message,
    without: &[&str],
    with: &[(&str, &str)],
) -> Result<Outcome> {
    let record = message.record();
    let Some((name, queue)) = named(&record) else {
        let reason = "it names no topic and queue".to_owned();
        return Ok(Outcome::Impossible(reason));
    };
    match deliver_to(handle, &record, (name, queue), (without, with)) {
        Err(error) if is_own(&error, &handle.path, name) => Ok(match is_of_files(&error) {
            true => Outcome::Refused(error.to_string()),
            false => Outcome::Impossible(error.to_string()),
        }),
        delivered => delivered.map(Outcome::Delivered),
    }
}

/// As [`deliver`], for a message of a level. Returns the end of its record, or warns. An append to
/// a commit log, which alone has levels, writes no file of a topic: where one is refused, another
/// attempt would be too.
///
/// # Errors
///
/// As [`deliver`].
pub(super) fn deliver_or_warn(handle: &Handle, message: &Message) -> Result<Option<u64>> {
    match deliver(handle, message, &[], &[])? {
        Outcome::Delivered(end) => Ok(Some(end)),
        Outcome::Refused(reason) | Outcome::Impossible(reason) => {
            warn(handle, message, reason);
            Ok(None)
        }
    }
}

/// Warns of a message that is not delivered.
pub(super) fn warn(handle: &Handle, message: &Message, reason: String) {
    handle.warnings().add(Warning::Undelivered {
        position: message.record().position().cast_unsigned(),
        reason,
    });
}

fn deliver_to(
    handle: &Handle,
    record: &Row<'_>,
    (name, queue): (&str, u32),
    (without, with): (&[&str], &[(&str, &str)]),
) -> Result<u64> {
    let topic = topic_named(&*handle.engine, name)?;
    let to = (&*topic, queue % topic.write_queues().max(1));
    match append(handle, record, to, (without, with)) {
        // It was sent by a version, or with options, that left less room for properties. Without
        // `TIMER_OFFSET` a process that dies now may deliver it again.
        Err(Error::TooLarge { .. }) => append(handle, record, to, (NOT_NEEDED, &[])),
        appended => appended,
    }
}

/// Whether an error of a delivery to the topic `name` of the store at `root` concerns this message
/// or this topic alone, and is not temporary.
fn is_own(error: &Error, root: &Path, name: &str) -> bool {
    match error {
        Error::InvalidTopic { .. }
        | Error::InvalidOption { .. }
        | Error::TooLarge { .. }
        | Error::UnknownTopic { .. }
        | Error::UnknownQueue { .. }
        | Error::Unsupported { .. } => true,
        Error::Row { source, .. } => is_own(source, root, name),
        Error::Corrupt { path, .. } => is_of_topic(path, root, name),
        Error::Io { path, source, .. } => {
            let is_of_store = error.is_fault()
                || error.is_of_sync()
                || source.kind() == ErrorKind::ReadOnlyFilesystem;
            // A lack of space, descriptors or memory is temporary.
            error.ends_writing() && !is_of_store && is_of_topic(path, root, name)
        }
        _ => false,
    }
}

/// Whether an error concerns files, which somebody may repair.
fn is_of_files(error: &Error) -> bool {
    match error {
        Error::Row { source, .. } => is_of_files(source),
        other => matches!(other, Error::Corrupt { .. } | Error::Io { .. }),
    }
}

/// Whether a file or directory of the store at `root` belongs to the topic `name` alone: a
/// directory of a partition is named after topic and number, one of a ConsumeQueue after the topic.
fn is_of_topic(path: &Path, root: &Path, name: &str) -> bool {
    let Ok(inside) = path.strip_prefix(root) else {
        return false;
    };
    inside.iter().filter_map(OsStr::to_str).any(|part| {
        let rest = part.strip_prefix(name);
        rest.is_some_and(|rest| match rest.strip_prefix('-') {
            Some(number) => number.parse::<u32>().is_ok(),
            None => rest.is_empty(),
        })
    })
}

/// Appends a copy without some properties and with others; returns its end.
fn append(
    handle: &Handle,
    record: &Row<'_>,
    (topic, queue): (&Topic, u32),
    (without, with): (&[&str], &[(&str, &str)]),
) -> Result<u64> {
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
    Ok(appended.end)
}

/// The topic that a delayed message is meant for, which is created if it does not exist.
fn topic_named(engine: &dyn Engine, name: &str) -> Result<Arc<Topic>> {
    if name == SCHEDULE_TOPIC {
        return Err(Error::InvalidTopic {
            topic: name.to_owned(),
            reason: "a message that is delayed to the schedule would come back for ever".to_owned(),
        });
    }
    engine.meanings().check_topic(name)?;
    match engine.topics().get(name) {
        Some(topic) => Ok(topic),
        None => engine.topic_for_append(name),
    }
}

/// The topic and the number of the queue that a delayed message names.
fn named<'a>(record: &'a Row<'_>) -> Option<(&'a str, u32)> {
    let text = |name: &str| str::from_utf8(record.property(name)?).ok();
    Some((text(REAL_TOPIC)?, text(REAL_QID)?.parse().ok()?))
}

#[cfg(test)]
mod test {
    use super::{is_of_files, is_own};
    use crate::error::{Awaited, Error, Op};
    use std::io;
    use std::path::Path;

    fn of_system(path: &str, number: i32) -> Error {
        Error::io(Op::Create, path, io::Error::from_raw_os_error(number))
    }

    /// A message that cannot be delivered must not stop those after it; one that can be delivered
    /// later must not be lost.
    #[test]
    fn a_message_is_set_aside_for_errors_of_its_own_and_tried_again_after_others() {
        let repairable = [
            of_system("/orders/store/orders-3", libc::EACCES),
            of_system("/orders/store/orders-3/0.log", libc::EISDIR),
            of_system("/orders/store/consumequeue/orders/3", libc::EIO),
            Error::corrupt("/orders/store/orders-0/partition.metadata", 0, "no id"),
            of_system("/orders/store/orders-3", libc::EACCES).in_row(0),
        ];
        let own = [
            Error::must("body", "None", "have a key"),
            Error::InvalidTopic {
                topic: "orders".into(),
                reason: "too long".into(),
            },
            Error::Unsupported {
                what: "more partitions".into(),
            },
            Error::must("body", "None", "have a key").in_row(0),
        ];
        let others = [
            Error::Forked,
            Error::closed(Path::new("/orders/store")),
            Error::Failed {
                reason: "EIO".into(),
                appended: false,
            },
            Error::Busy {
                what: Awaited::Groups,
                waited_ms: 1,
            },
            Error::Full {
                path: "/orders/store/orders-3".into(),
                needed: 1,
                free: 0,
            },
            of_system("/orders/store/orders-3", libc::EMFILE),
            of_system("/orders/store/orders-3", libc::ENOSPC),
            of_system("/orders/store/orders-3", libc::EROFS),
            of_system("/orders/store/orders-3-1", libc::EACCES),
            of_system("/orders/store/orders2-3", libc::EACCES),
            of_system("/orders/store/config/topics.json", libc::EACCES),
            of_system("/orders", libc::EACCES),
            Error::io(
                Op::Sync,
                "/orders/store/orders-3",
                io::Error::from_raw_os_error(libc::EIO),
            ),
            Error::corrupt("/orders/store/config/topics.json", 0, "no object"),
        ];
        let is_own = |error: &Error| is_own(error, Path::new("/orders/store"), "orders");
        assert!(repairable.iter().all(|it| is_own(it) && is_of_files(it)));
        assert!(own.iter().all(|it| is_own(it) && !is_of_files(it)));
        for error in &others {
            assert!(!is_own(error), "{error}");
        }
    }
}
