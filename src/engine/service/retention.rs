//! The limits that the retention of every engine applies: age, bytes, and hours of the day.

use super::trusted_clock::Reading;
use crate::clock::Clock;
use crate::damage::{Damage, DamageKind};
use crate::error::Result;
use crate::options::Options;
use chrono::{Local, TimeZone, Timelike};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two steps.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The limits that the options set.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Minimum age of a message before it may be deleted, in ms.
    pub age_ms: Option<i64>,
    /// Maximum bytes.
    pub bytes: Option<u64>,
    /// Hours of the day in which files are deleted; any hour if empty.
    hours: Vec<u32>,
}

/// The current time, in ms.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// By the wall clock; used for hours of the day.
    pub wall_ms: i64,
    /// By the wall clock as far as it is trusted; used for ages.
    pub believed_ms: i64,
}

/// The moment of a step.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The wall clock, in ms.
    pub wall_ms: i64,
    /// The steady clock of the store, by which the wall clock is trusted or not.
    pub steady: Instant,
    /// When the step runs: steps are [`INTERVAL`] apart, however a test moves the clocks.
    pub at: Instant,
}

impl Now {
    /// This moment. `begin`: where the steady clock begins.
    pub fn of(clock: &dyn Clock, begin: Instant) -> Now {
        let steady_ms = clock.steady_ms().unsigned_abs();
        Now {
            wall_ms: clock.now_ms(),
            steady: begin + Duration::from_millis(steady_ms),
            at: Instant::now(),
        }
    }

    /// A moment for a caller that steps.
    #[cfg(test)]
    pub fn stepped(wall_ms: i64, at: Instant) -> Now {
        let steady = at;
        Now {
            wall_ms,
            steady,
            at,
        }
    }
}

impl Limits {
    /// The limits; `None` if the options ask for no deletion.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidOption`] for invalid hours.
    pub fn new(options: &Options) -> Result<Option<Limits>> {
        let hours = options.delete_hours()?;
        let age_ms = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Ok(options.retires().then(|| Limits {
            age_ms: options.retention.map(age_ms),
            bytes: options.retention_bytes,
            hours,
        }))
    }

    /// Whether files are deleted in this hour of the day.
    pub fn is_in_time(&self, wall_ms: i64) -> bool {
        let hour = || Local.timestamp_millis_opt(wall_ms).single();
        self.hours.is_empty() || hour().is_some_and(|time| self.hours.contains(&time.hour()))
    }
}

/// The report of a jump of the wall clock to `wall_ms`, if the reading has one. Its position is the
/// time that the clock jumped to.
pub fn jump(root: &Path, wall_ms: i64, reading: Reading) -> Option<Damage> {
    let by_ms = reading.jumped?;
    let hours = by_ms.unsigned_abs() / 3_600_000;
    let to = if by_ms > 0 { "forward" } else { "back" };
    Some(Damage {
        kind: DamageKind::Clock,
        path: root.to_path_buf(),
        position: wall_ms.unsigned_abs(),
        length: 0,
        reason: format!(
            "the clock jumped {to} by {hours} hours: retention by time uses the earlier clock for \
             one hour"
        ),
        lost: Vec::new(),
    })
}
