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
mod writer_stats;

pub use flushes::{FlushMeter, Flushes};
pub use gets::{GetMeter, Gets};
pub use histogram::{Histogram, Latency, Summary};
pub use puts::{PutMeter, Puts, ROWS_A_SAMPLE};
pub use rates::{RateSampler, Rates};
pub use writer_stats::WriterStats;

pub use crate::warning::SlowPut;

use crate::clock::Clock;
use crate::warning::Warnings;
use std::sync::Arc;
use std::time::Duration;

/// A put or a sync of the log that takes longer than this adds a warning.
const SLOW: Duration = Duration::from_millis(500);

/// Measurements above an engine, which may publish them for other processes.
#[derive(Debug)]
pub struct Meters {
    /// How long puts take.
    pub puts: PutMeter,
    /// Messages that were read and delivered.
    pub gets: GetMeter,
    /// Messages and bytes a second.
    pub rates: RateSampler,
}

impl Meters {
    /// The meters of a store that opens at this moment; see [`PutMeter::new`].
    pub fn new(warnings: &Arc<Warnings>, clock: Arc<dyn Clock>) -> Meters {
        Meters {
            puts: PutMeter::new(warnings, clock),
            gets: GetMeter::default(),
            rates: RateSampler::default(),
        }
    }
}

/// A duration in whole nanoseconds, at most 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
