//! The core's errors as Python exceptions: a class, a message, and the details as attributes.

use super::once;
use crate::Error;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use std::path::Path;

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        Python::attach(|py| exception(py, &error))
    }
}

/// The exception for `error`, chained to its cause if it has one.
pub(super) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
}

/// The error for an invalid argument, for checks that only the binding can make; as
/// [`Error::option`]. If the allowed values can be named, use [`must`].
pub(super) fn invalid(name: &str, value: impl std::fmt::Display, reason: &str) -> PyErr {
    Error::option(name, value, reason).into()
}

/// The error for an argument that breaks a rule; as [`Error::must`].
pub(super) fn must(name: &str, value: impl std::fmt::Display, rule: &str) -> PyErr {
    Error::must(name, value, rule).into()
}

/// Adds the row of the batch to an error: to its message, and as its attribute `row`.
pub(super) fn in_row(py: Python<'_>, error: PyErr, row: usize) -> PyErr {
    let told = error
        .get_type(py)
        .call1((format!("row {row}: {}", error.value(py)),));
    match told {
        Ok(told) => {
            let named = PyErr::from_value(told);
            let _ = named.value(py).setattr("row", row);
            named.set_cause(py, Some(error));
            named
        }
        // The class has another constructor: keep the error as it is.
        Err(_) => error,
    }
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    let mut inner = error;
    loop {
        match inner {
            Error::Row { row, source } => {
                facts.set_item("row", *row)?;
                inner = source;
            }
            Error::NotAppended { source, .. } => inner = source,
            _ => break,
        }
    }
    let class = once::error_class(py, facts_of(inner, &facts)?)?;
    let made = class.call((error.to_string(),), Some(&facts))?;
    let exception = PyErr::from_value(made);
    if let Error::Io {
        source,
        path,
        position,
        ..
    } = inner
    {
        let number = errno(source, *position);
        let cause = PyOSError::new_err((number, source.to_string(), text(path)));
        exception.set_cause(py, Some(cause));
    }
    Ok(exception)
}

/// The errno of an error. A failed access to a mapped file has none, and is reported as EIO.
fn errno(source: &std::io::Error, position: Option<u64>) -> Option<i32> {
    source.raw_os_error().or(position.map(|_| libc::EIO))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Puts the details of an error into `facts`, and returns the name of its class.
fn facts_of(error: &Error, facts: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    let py = facts.py();
    match error {
        Error::NotFound { path } => put(facts, [("path", text(path))], "StoreNotFoundError"),
        Error::Exists { path } => put(facts, [("path", text(path))], "StoreExistsError"),
        Error::NotAStore { path, reason } => {
            let found = [("path", text(path)), ("reason", reason.clone())];
            put(facts, found, "NotAStoreError")
        }
        Error::Foreign { path } => put(facts, [("path", text(path))], "ForeignStoreError"),
        Error::Locked { path, pid, .. } => {
            facts.set_item("pid", *pid)?;
            put(facts, [("path", text(path))], "StoreLockedError")
        }
        Error::Closed { path } => {
            facts.set_item("path", path.as_deref().map(text))?;
            Ok("StoreClosedError")
        }
        Error::ConsumerClosed => {
            facts.set_item("path", facts.py().None())?;
            Ok("StoreClosedError")
        }
        Error::Failed { reason, appended } => {
            facts.set_item("appended", *appended)?;
            put(facts, [("reason", reason)], "StoreFailedError")
        }
        Error::ReadOnly { .. } => Ok("ReadOnlyError"),
        Error::Forked => Ok("ForkedError"),
        Error::UnknownTopic { topic } => put(facts, [("topic", topic)], "UnknownTopicError"),
        Error::UnknownQueue {
            topic,
            queue,
            queues,
        } => {
            facts.update(
                &[("queue", queue), ("queues", queues)]
                    .into_py_dict(py)?
                    .into_mapping(),
            )?;
            put(facts, [("topic", topic)], "UnknownTopicError")
        }
        Error::InvalidTopic { topic, reason } => put(
            facts,
            [("topic", topic), ("reason", reason)],
            "InvalidTopicError",
        ),
        Error::InvalidOption {
            name,
            value,
            reason,
        } => {
            let reason = &reason.to_string();
            let found = [("name", name), ("value", value), ("reason", reason)];
            put(facts, found, "InvalidOptionError")
        }
        Error::TooLarge { what, size, limit } => {
            facts.set_item("what", what)?;
            put(
                facts,
                [("size", size), ("limit", limit)],
                "MessageTooLargeError",
            )
        }
        _ => facts_of_the_machine(error, facts),
    }
}

fn facts_of_the_machine(error: &Error, facts: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    match error {
        Error::OffsetOutOfRange {
            topic,
            queue,
            offset,
            min,
            max,
        } => {
            facts.set_item("topic", topic)?;
            facts.set_item("queue", *queue)?;
            facts.set_item("offset", *offset)?;
            put(
                facts,
                [("min_offset", min), ("max_offset", max)],
                "OffsetOutOfRangeError",
            )
        }
        Error::Corrupt {
            path,
            position,
            reason,
        } => {
            facts.set_item("position", *position)?;
            put(
                facts,
                [("path", &text(path)), ("reason", reason)],
                "CorruptError",
            )
        }
        Error::Unsupported { .. } => Ok("UnsupportedError"),
        Error::ReadableOnly { path, reason } => put(
            facts,
            [("path", &text(path)), ("reason", reason)],
            "UnsupportedError",
        ),
        Error::Full { path, needed, free } => {
            facts.set_item("path", text(path))?;
            put(facts, [("needed", needed), ("free", free)], "DiskFullError")
        }
        Error::Busy { waited_ms, .. } => put(facts, [("waited_ms", waited_ms)], "BusyError"),
        Error::FlushTimeout { timeout_ms } | Error::Lingers { timeout_ms } => {
            put(facts, [("timeout_ms", timeout_ms)], "FlushTimeoutError")
        }
        Error::Io {
            path,
            position,
            source,
            ..
        } => {
            facts.set_item("path", text(path))?;
            facts.set_item("position", *position)?;
            facts.set_item("errno", errno(source, *position))?;
            match source.kind() {
                std::io::ErrorKind::PermissionDenied => Ok("DiskPermissionError"),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    put(facts, [("needed", 0), ("free", 0)], "DiskFullError")
                }
                _ => Ok("DiskError"),
            }
        }
        _ => facts_of_a_queue(error, facts),
    }
}

fn facts_of_a_queue(error: &Error, facts: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    match error {
        Error::Gap {
            topic,
            queue,
            offset,
            reason,
        } => {
            facts.set_item("topic", topic)?;
            facts.set_item("queue", *queue)?;
            facts.set_item("offset", *offset)?;
            let given = [
                ("name", "renumber"),
                ("value", "False"),
                ("reason", reason.as_str()),
            ];
            put(facts, given, "InvalidOptionError")
        }
        Error::AlreadySettled {
            topic,
            queue,
            offset,
        } => {
            facts.set_item("queue", *queue)?;
            facts.set_item("offset", *offset)?;
            put(facts, [("topic", topic)], "AlreadySettledError")
        }
        Error::OwnershipLost { topic, queue } | Error::Replaced { topic, queue, .. } => {
            facts.set_item("queue", *queue)?;
            put(facts, [("topic", topic)], "OwnershipLostError")
        }
        Error::LogShrunk {
            topic,
            queue,
            offset,
            end,
        } => {
            facts.set_item("topic", topic)?;
            facts.set_item("queue", *queue)?;
            put(
                facts,
                [("position", offset), ("end", end)],
                "LogShrunkError",
            )
        }
        other => Err(PyRuntimeError::new_err(other.to_string())),
    }
}

fn put<'py, T, const N: usize>(
    facts: &Bound<'py, PyDict>,
    found: [(&str, T); N],
    class: &'static str,
) -> PyResult<&'static str>
where
    T: IntoPyObject<'py>,
{
    for (name, value) in found {
        facts.set_item(name, value)?;
    }
    Ok(class)
}
