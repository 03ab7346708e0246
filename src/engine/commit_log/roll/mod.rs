//! Seals the current log file before it is full, on demand or by its age.
//!
//! Archives and retention take only whole files, never the current one. Without sealing, a quiet
//! store would keep its messages forever. A sealed file ends with a BLANK like a full one, only a
//! longer one.

use crate::engine::commit_log::log::walker::{Step, Walker};
use crate::engine::commit_log::parts::Parts;
use crate::error::Result;
use crate::options::Options;
use crate::sync::Mutex;
use std::sync::atomic::Ordering;

/// When the current file is sealed by its age.
#[derive(Debug, Default)]
pub struct Rolling {
    after_ms: Mutex<Option<i64>>,
    first: Mutex<Option<First>>,
}

/// The first record of a log file.
#[derive(Clone, Copy, Debug)]
struct First {
    /// Start of the file.
    start: u64,
    stored_ms: i64,
    /// When it was first seen, by the steady clock.
    seen_ms: i64,
}

impl Rolling {
    /// The rules from the options.
    pub fn new(options: &Options) -> Rolling {
        let rolling = Rolling::default();
        rolling.change(options);
        rolling
    }

    /// Applies these options from the next step on.
    pub fn change(&self, options: &Options) {
        let after = options.roll_after;
        let after_ms = after.map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
        *self.after_ms.lock() = after_ms;
    }

    /// Seals the current file if its first record is old enough. If that fails because there is no
    /// room for another file, the next step tries again.
    pub fn step(&self, parts: &Parts, clock_ms: i64) {
        if let Some(start) = self.due(parts, clock_ms) {
            let _ = seal(parts, Some(start));
        }
    }

    /// The start of the current file, if its first record is old enough. `None` also if the file
    /// cannot be read.
    pub fn due(&self, parts: &Parts, clock_ms: i64) -> Option<u64> {
        let after_ms = (*self.after_ms.lock())?;
        let first = self.first(parts).ok()??;
        // The steady clock counts if the wall clock was set back meanwhile.
        let seen = parts.clock.steady_ms().saturating_sub(first.seen_ms);
        let age = clock_ms.saturating_sub(first.stored_ms).max(seen);
        (age >= after_ms).then_some(first.start)
    }

    /// The first record of the current file.
    fn first(&self, parts: &Parts) -> Result<Option<First>> {
        let log = &parts.log;
        let end = log.join()?;
        let start = log.files.start_of(end);
        let mut known = self.first.lock();
        if known.is_some_and(|first| first.start == start) {
            return Ok(*known);
        }
        *known = None;
        let stored_at = |stored_ms| First {
            start,
            stored_ms,
            seen_ms: parts.clock.steady_ms(),
        };
        let mut walker = Walker::new(log, start.max(log.min_position()), end);
        if let Step::Record(at, layout) = walker.step()?
            && let Some(record) = walker.record(at, layout)
        {
            *known = Some(stored_at(record.store_timestamp()));
        } else if start < end {
            // The first record is damaged: the file counts as old as the newest message.
            return Ok(Some(stored_at(log.stored_ms.load(Ordering::Acquire))));
        }
        Ok(*known)
    }
}

/// Seals the current file and makes it durable. Does nothing if it is empty, or if `start` is given
/// and the file begins elsewhere. Returns where the next file begins.
///
/// # Errors
///
/// Those of an append: nothing was sealed. Those of a flush: the file is sealed but not durable.
pub fn seal(parts: &Parts, start: Option<u64>) -> Result<Option<u64>> {
    let Some(end) = parts.seal(start)? else {
        return Ok(None);
    };
    parts.announce(end);
    parts.flush_to(end)?;
    // Archives and retention take only what is dispatched.
    parts.dispatch_to(end);
    Ok(Some(end))
}
