//! Warnings of a store, logged through Python's `logging`.
//!
//! The core collects the warnings. The next call that returns from the core logs them, attached to
//! the interpreter and without holding a lock. No thread of the core ever calls Python.

use crate::{Damage, Warning};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How many lost messages a warning lists; the others are only counted.
const NAMED_MAX: usize = 3;

/// Logs the warnings that were not logged yet.
#[inline]
pub(super) fn warnings(py: Python<'_>, store: &crate::Store) {
    if store.has_warnings() {
        log_all(py, store);
    }
}

#[cold]
fn log_all(py: Python<'_>, store: &crate::Store) {
    for warning in store.take_warnings() {
        if let Err(error) = log(py, store, &warning) {
            // The call has already taken effect, so an error of the logger must not make it fail.
            error.write_unraisable(py, None);
        }
    }
}

fn log_damage(py: Python<'_>, damage: &Damage) -> PyResult<()> {
    let text = "damage in %s at %d, %d bytes: %s%s";
    let file = damage.path.display().to_string();
    let (position, length) = (damage.position, damage.length);
    warn(
        py,
        (text, file, position, length, &*damage.reason, lost(damage)),
    )
}

fn log(py: Python<'_>, store: &crate::Store, warning: &Warning) -> PyResult<()> {
    let path = store.path().display().to_string();
    match warning {
        Warning::Damage(damage) => log_damage(py, damage),
        Warning::SlowPut(put) => {
            let text = "slow put: %d message(s), %d bytes, to topic %s took %.3f s";
            let took = put.took.as_secs_f64();
            warn(py, (text, put.messages, put.bytes, &*put.topic, took))
        }
        Warning::SlowFlush { bytes, took } => {
            let text = "slow flush: %d bytes of the log of %s took %.3f s";
            warn(py, (text, bytes, path, took.as_secs_f64()))
        }
        Warning::Undelivered { position, reason } => {
            let text = "the delayed message at position %d of %s is not delivered and stays where \
                        it is: %s";
            warn(py, (text, position, path, &**reason))
        }
        Warning::Retired {
            topic,
            queue,
            messages,
        } => {
            let text = "retention removed %d messages of topic %s queue %d before they were \
                        delivered";
            warn(py, (text, messages, &**topic, queue))
        }
        Warning::NoQueue {
            group,
            topics,
            consumers,
            queues,
        } => {
            let text = "a consumer of group %s has no queue and gets no messages: the group has \
                        %d consumers for %d queue(s) of %s; give the topics more queues with \
                        create_topic(name, queues=...), or open fewer consumers";
            warn(py, (text, &**group, consumers, queues, topics.join(", ")))
        }
        Warning::Delayed { reason } => {
            let text = "cannot deliver delayed messages or store the progress of groups of %s: %s; \
                        trying again";
            warn(py, (text, path, &**reason))
        }
        Warning::Unlocked { path, reason } => {
            let text = "lock_memory: cannot lock %s in memory: %s; files stay unlocked until \
                        you raise the limit (ulimit -l)";
            warn(py, (text, path.display().to_string(), &**reason))
        }
        Warning::NotKept { path, reason } => {
            let text = "cannot save the options in %s: %s; a later writer that does not pass \
                        them will use other values";
            warn(py, (text, path.display().to_string(), &**reason))
        }
        Warning::NotCompacted { reason } => {
            let text = "a queue of %s is not compacted until the store is opened again: %s";
            warn(py, (text, path, &**reason))
        }
        Warning::More(count) => {
            let text = "%d more warnings of the store %s were not logged; see its attribute \
                        damage and its stats()";
            warn(py, (text, count, path))
        }
    }
}

/// Lists the messages lost to damage, as the end of a sentence.
fn lost(damage: &Damage) -> String {
    if damage.lost.is_empty() {
        return String::new();
    }
    let mut named: Vec<String> = damage
        .lost
        .iter()
        .take(NAMED_MAX)
        .map(|(topic, queue, offset)| format!("offset {offset} of {topic}-{queue}"))
        .collect();
    if damage.lost.len() > NAMED_MAX {
        named.push(format!("{} more", damage.lost.len() - NAMED_MAX));
    }
    format!("; lost: {}", named.join(", "))
}

fn warn<'py>(py: Python<'py>, facts: impl PyCallArgs<'py>) -> PyResult<()> {
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("forebay",))?;
    logger.call_method("warning", facts, None::<&Bound<'_, PyDict>>)?;
    Ok(())
}
