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
    /// Start of a log file and the store time of its first record in ms.
    first: Mutex<Option<(u64, i64)>>,
}

impl Rolling {
    /// The rules from the options.
    pub fn new(options: &Options) -> Rolling {
        let rolling = Rolling::default();
        rolling.change(options);
        rolling
    }

    /// Goes by these options from the next step on.
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

    /// The start of the current file, if its first record is old enough. None if that cannot be
    /// read.
    pub fn due(&self, parts: &Parts, clock_ms: i64) -> Option<u64> {
        let after_ms = (*self.after_ms.lock())?;
        let (start, first_ms) = self.first(parts).ok()??;
        (clock_ms.saturating_sub(first_ms) >= after_ms).then_some(start)
    }

    /// The start of the current file, and the store time of its first record.
    fn first(&self, parts: &Parts) -> Result<Option<(u64, i64)>> {
        let log = &parts.log;
        let end = log.join()?;
        let start = log.files.start_of(end);
        let mut known = self.first.lock();
        if known.is_some_and(|(of, _)| of == start) {
            return Ok(*known);
        }
        *known = None;
        let mut walker = Walker::new(log, start.max(log.min_position()), end);
        if let Step::Record(at, layout) = walker.step()?
            && let Some(record) = walker.record(at, layout)
        {
            *known = Some((start, record.store_timestamp()));
        } else if start < end {
            // The first record is damaged: the file counts as old as the newest message.
            let stored_ms = log.stored_ms.load(Ordering::Acquire);
            return Ok(Some((start, stored_ms)));
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
