//! A histogram of durations: each power of two of nanoseconds is divided into four equal buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per power of two, as a power of two.
const PART_BITS: u32 = 2;
const PARTS: u64 = 1 << PART_BITS;
/// Number of buckets. The last one also counts durations above 2^40 ns (18 minutes).
const BUCKETS: usize = (41 - PART_BITS as usize) << PART_BITS;

/// Counts of durations. Any number of threads may add to it.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// A snapshot of a histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub total: Duration,
    /// The longest duration.
    pub max: Duration,
    /// Buckets that are not empty, in order: the exclusive upper bound of each, and its count.
    pub buckets: Vec<(Duration, u64)>,
}

/// The part of a [`Latency`] that other processes get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub total: Duration,
    /// Half of the durations are at most this long; see [`Latency::quantile`].
    pub p50: Duration,
    /// 99% of them are.
    pub p99: Duration,
    /// 99.9% of them are.
    pub p999: Duration,
    /// The longest duration.
    pub max: Duration,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Adds a duration `count` times.
    pub fn add(&self, duration: Duration, count: u64) {
        let ns = nanos(duration);
        if let Some(bucket) = self.buckets.get(bucket_of(ns)) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.sum_ns
            .fetch_add(ns.saturating_mul(count), Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// The contents so far. Each bucket is exact, but a concurrent addition may be in its bucket
    /// and not yet in the sum.
    pub fn read(&self) -> Latency {
        let counts = self.buckets.iter().map(|it| it.load(Ordering::Relaxed));
        let buckets: Vec<_> = counts
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (Duration::from_nanos(end_of(bucket)), count))
            .collect();
        Latency {
            count: buckets.iter().map(|(_, count)| count).sum(),
            total: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)),
            max: Duration::from_nanos(self.max_ns.load(Ordering::Relaxed)),
            buckets,
        }
    }
}

impl Latency {
    /// The histogram without its buckets.
    pub fn summary(&self) -> Summary {
        Summary {
            count: self.count,
            total: self.total,
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max,
        }
    }

    /// The quantile `share` (0 to 1) of the durations: the upper bound of its bucket, so up to a
    /// quarter too long, and never above [`Latency::max`]. Zero if the histogram is empty.
    pub fn quantile(&self, share: f64) -> Duration {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a share of the count is at most the count"
        )]
        let wanted = (share.clamp(0.0, 1.0) * self.count as f64).ceil() as u64;
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(self.max, |(end, _)| *end).min(self.max)
    }
}

/// Whole nanoseconds, at most 2^40 (18 minutes).
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(1 << 40, |ns| ns.min(1 << 40))
}

/// The bucket of a duration. The first `PARTS` buckets hold one value each.
fn bucket_of(ns: u64) -> usize {
    let power = ns.checked_ilog2().unwrap_or(0).saturating_sub(PART_BITS);
    let bucket = (u64::from(power) << PART_BITS) + (ns >> power);
    crate::num::index(bucket).min(BUCKETS - 1)
}

/// The shortest duration above a bucket.
fn end_of(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    match (next >> PART_BITS).checked_sub(1) {
        None => next,
        Some(power) => (PARTS + (next & (PARTS - 1))) << power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_within_the_bounds_of_its_bucket() {
        let around = (2..40).flat_map(|power| {
            let middle = 1_u64 << power;
            [middle - 1, middle, middle + 1, middle + middle / 3]
        });
        for ns in (0..100).chain(around) {
            let bucket = bucket_of(ns);
            assert!(ns < end_of(bucket), "{ns} in {bucket}");
            if let Some(before) = bucket.checked_sub(1) {
                assert!(end_of(before) <= ns, "{ns} in {bucket}");
            }
        }
        let too_long = Duration::from_secs(1 << 40);
        assert_eq!(bucket_of(nanos(too_long)), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_long() {
        let histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.add(Duration::from_micros(micros), 1);
        }
        let found = histogram.read();
        assert_eq!(found.count, 1000);
        assert_eq!(found.max, Duration::from_millis(1));
        assert_eq!(found.total, Duration::from_micros(500_500));
        for (share, micros) in [(0.5, 500), (0.99, 990), (0.999, 999)] {
            let exact = Duration::from_micros(micros);
            let found = found.quantile(share);
            assert!(found >= exact && found <= exact * 5 / 4, "{found:?}");
        }
        assert_eq!(found.quantile(1.0), found.max);
    }

    #[test]
    fn an_empty_histogram_has_quantiles_of_zero() {
        assert_eq!(Histogram::default().read().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn a_duration_may_be_added_many_times() {
        let histogram = Histogram::default();
        histogram.add(Duration::from_nanos(100), 64);
        histogram.add(Duration::from_millis(10), 1);
        let found = histogram.read();
        assert_eq!(found.count, 65);
        assert!(found.quantile(0.98) < Duration::from_nanos(130));
        assert_eq!(found.quantile(0.999), Duration::from_millis(10));
    }
}
