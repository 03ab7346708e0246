//! The texts of errors: facts first, then what the caller can do.

use super::{Error, Reason};
use std::fmt;
use std::path::Path;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownTopic { topic } => write!(f, "no topic {topic:?} in the store"),
            Error::UnknownQueue {
                topic,
                queue,
                queues,
            } => {
                write!(
                    f,
                    "topic {topic:?} has no queue {queue}: it has {queues} queues, from 0"
                )
            }
            Error::InvalidTopic { topic, reason } => write!(f, "topic {topic:?}: {reason}"),
            Error::InvalidOption {
                name,
                value,
                reason,
            } => match reason {
                Reason::Must(_) => write!(f, "{name} {reason}, got {value}"),
                Reason::Is(_) => write!(f, "{name} is {value}: {reason}"),
            },
            Error::Gap { reason, .. } => write!(f, "renumber is False: {reason}"),
            Error::TooLarge { what, size, limit } => {
                write!(f, "{what} is {size} bytes, limit {limit}")
            }
            Error::OffsetOutOfRange {
                topic,
                queue,
                offset,
                min,
                max,
            } => {
                let has = match max.checked_sub(1).filter(|last| last >= min) {
                    Some(last) => format!("messages {min} to {last}"),
                    None => "no messages".to_owned(),
                };
                write!(
                    f,
                    "offset {offset} of topic {topic:?} queue {queue} is out of range: the queue \
                     has {has}, and {max} is its next offset"
                )
            }
            Error::Corrupt {
                path,
                position,
                reason,
            } => {
                write!(
                    f,
                    "corrupt bytes in {} at {position}: {reason}",
                    path.display()
                )
            }
            Error::Unsupported { what } => write!(f, "not supported: {what}"),
            Error::ReadableOnly { path, reason } => write!(
                f,
                "not supported: writing to {}: {reason}; read it with mode=\"r\"",
                path.display()
            ),
            Error::Full { path, needed, free } => write!(
                f,
                "no space for {needed} bytes at {}: {free} bytes are free; nothing was appended, \
                 retry when there is space",
                path.display()
            ),
            Error::Row { row, source } => write!(f, "row {row}: {source}"),
            handle => handle.fmt_of_handle(f),
        }
    }
}

/// Formats [`Error::Locked`].
fn fmt_locked(
    f: &mut fmt::Formatter<'_>,
    path: &Path,
    pid: Option<u32>,
    shareable: bool,
) -> fmt::Result {
    let path = path.display();
    let (by, wait) = match pid {
        Some(pid) => (format!("process {pid}"), "wait for that process"),
        None => (
            "another handle or process (pid unknown)".to_owned(),
            "wait for the other to close it",
        ),
    };
    write!(
        f,
        "{path} is being written by {by}: read it with mode=\"r\", "
    )?;
    match shareable {
        true => write!(
            f,
            "{wait} with lock_timeout, or open it with mode=\"share\" in every process that writes"
        ),
        false => write!(f, "or {wait} with lock_timeout"),
    }
}

impl Error {
    /// Formats errors of the store or handle as a whole.
    fn fmt_of_handle(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound { path } => {
                write!(
                    f,
                    "no store at {}: open it with mode \"a\" or \"x\" to create one",
                    path.display()
                )
            }
            Error::Exists { path } => {
                write!(
                    f,
                    "store {} exists already: open it with mode \"a\"",
                    path.display()
                )
            }
            Error::NotAStore { path, reason } => {
                write!(f, "{} is not a store: {reason}", path.display())
            }
            Error::Foreign { path } => write!(
                f,
                "{} was not created by forebay: read it with mode=\"r\", or write to it with \
                 adopt=True",
                path.display()
            ),
            Error::Locked {
                path,
                pid,
                shareable,
            } => fmt_locked(f, path, *pid, *shareable),
            Error::Closed { path: Some(path) } => {
                write!(f, "the store {} is closed: open it again", path.display())
            }
            Error::Closed { path: None } => write!(f, "the store is closed: open it again"),
            Error::ConsumerClosed => write!(f, "the consumer is closed"),
            Error::Failed { reason, appended } => write!(
                f,
                "writing to the store has failed: {reason}; {}reading still works, reopen the \
                 store to write",
                if *appended {
                    "the message is in the log, but may not be durable; "
                } else {
                    ""
                }
            ),
            Error::ReadOnly { what, remedy } => write!(f, "{what} is read-only: {remedy}"),
            Error::Forked => write!(
                f,
                "this handle was made before fork: make it again in the child process; a store \
                 that was opened with mode=\"share\", and its producers, work in both"
            ),
            Error::Busy { what, waited_ms } => what.fmt(f, *waited_ms),
            other => other.fmt_of_consumer(f),
        }
    }

    /// Formats errors of consumers.
    fn fmt_of_consumer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AlreadySettled {
                topic,
                queue,
                offset,
            } => write!(
                f,
                "message {offset} of topic {topic:?} queue {queue} is settled already"
            ),
            Error::OwnershipLost { topic, queue } => write!(
                f,
                "topic {topic:?} queue {queue}: this consumer does not hold the message or the \
                 queue: it timed out, was taken back or reset, or another consumer has it"
            ),
            Error::Replaced { topic, queue, name } => write!(
                f,
                "producer {name:?} no longer owns queue {queue} of topic {topic:?}: it was closed, \
                 or a newer producer has its name"
            ),
            Error::LogShrunk {
                topic,
                queue,
                offset,
                end,
            } => write!(
                f,
                "topic {topic:?} queue {queue} ends at {end}, before offset {offset} that the \
                 group has reached: the log was truncated or replaced; reset the group's offsets"
            ),
            ticket => ticket.fmt_of_ticket(f),
        }
    }

    /// Formats errors of messages that are not durable.
    fn fmt_of_ticket(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::FlushTimeout { timeout_ms } => write!(
                f,
                "not durable within {timeout_ms} ms: the message is in the log, do not send it \
                 again; call flush",
            ),
            Error::Lingers { timeout_ms } => write!(
                f,
                "not durable within {timeout_ms} ms: the message waits for others of its queue, \
                 do not send it again; wait longer, or call flush",
            ),
            Error::NotAppended { count, source } => {
                write!(
                    f,
                    "{count} messages of send_nowait were not appended: {source}"
                )
            }
            disk => disk.fmt_of_disk(f),
        }
    }

    /// Formats errors of the disk.
    fn fmt_of_disk(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                op,
                path,
                position,
                source,
            } => match position {
                Some(at) => write!(f, "cannot {op} byte {at} of {}: {source}", path.display()),
                None => write!(f, "cannot {op} {}: {source}", path.display()),
            },
            _ => Ok(()),
        }
    }
}
