//! What is measured while a store runs: puts, flushes, rates.
//!
//! A put takes 250 ns and reading the exact time 25, so most puts are not timed: one in 64 is,
//! chosen at random, and stands for all of them. What must not be missed is a put that stalls.
//! Those are all found, by a clock that costs a few nanoseconds and ticks every few milliseconds.

mod flushes;
mod histogram;
mod puts;
mod rates;

pub use flushes::{FlushMeter, Flushes};
pub use histogram::{Histogram, Latency};
pub use puts::{PutMeter, Puts, ROWS_A_SAMPLE};
pub use rates::{Looks, Rates};

pub use crate::warning::SlowPut;

use std::time::Duration;

/// A put, or a sync of the log, that takes longer is slow: it is told.
const SLOW: Duration = Duration::from_millis(500);

/// A duration in whole nanoseconds, 584 years at most.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
