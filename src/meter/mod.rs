//! Measurements of a running store: puts, gets, flushes, rates.
//!
//! A put takes 250 ns and reading the exact time 25, so most puts are not timed: one in 64 is,
//! chosen at random, and counts 64 times. A put that stalls must not be missed, so each put is also
//! checked by a clock that costs a few nanoseconds and ticks every few milliseconds.

mod flushes;
mod gets;
mod histogram;
mod puts;
mod rates;

pub use flushes::{FlushMeter, Flushes};
pub use gets::{GetMeter, Gets};
pub use histogram::{Histogram, Latency};
pub use puts::{PutMeter, Puts, ROWS_A_SAMPLE};
pub use rates::{RateSampler, Rates};

pub use crate::warning::SlowPut;

use std::time::Duration;

/// A put or a sync of the log that takes longer than this adds a warning.
const SLOW: Duration = Duration::from_millis(500);

/// A duration in whole nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
