//! How long puts take: encoding and appending, without the wait for the disk.

use super::{Histogram, Latency, SLOW, nanos};
use crate::clock::Clock;
use crate::num::low_u32;
use crate::warning::{SlowPut, Warning, Warnings};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One put of this many is timed; a power of two.
const PUTS_A_SAMPLE: u32 = 64;
/// One row of this many in a batch has its encoding timed.
pub const ROWS_A_SAMPLE: usize = 256;
/// How many puts at the start of a store are all timed, so that a short run also has statistics.
const ALL_TIMED: u32 = 1024;
/// A put has stalled if the coarse clock advances by this many ms meanwhile.
const STALL_MS: i64 = 2;
/// If the wall clock deviates from the steady clock by more than this, it was set.
const CLOCK_SET_MS: i64 = 10;

/// Measures puts.
///
/// Each put is either timed exactly or only checked by the coarse clock. A put that stalled counts
/// once, whether timed or not. Every other timed put also counts for the untimed ones. So nothing
/// is counted twice, and rare long puts are exact.
#[derive(Debug)]
pub struct PutMeter {
    /// Padded, so that nothing else shares its cache lines.
    begin: CachePadded<Begin>,
    latency: Histogram,
    encode_ns: AtomicU64,
    append_ns: AtomicU64,
    slow: AtomicU64,
    warnings: Arc<Warnings>,
    opened: Instant,
    /// The wall clock when the meter was created, in ms; adjusted when that clock is set.
    opened_ms: AtomicI64,
}

/// Fields that every put reads and that are rarely written.
#[derive(Debug)]
struct Begin {
    /// How many of the next puts are all timed.
    all_timed: AtomicU32,
    clock: Arc<dyn Clock>,
}

/// The measurements of a [`PutMeter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Puts {
    /// How long puts took, without waiting for the disk. The count is an estimate above 1,024 puts;
    /// `max` is the longest put, exact to a few milliseconds.
    pub latency: Latency,
    /// Puts that took longer than 500 ms; exact.
    pub slow: u64,
    /// Time spent encoding, over all threads; an estimate.
    pub encoding: Duration,
    /// Time spent waiting for the append lock and appending; an estimate.
    pub appending: Duration,
}

/// A put in progress.
#[derive(Debug)]
pub struct Put {
    clock_ms: i64,
    timed: Option<Timed>,
}

#[derive(Debug)]
struct Timed {
    began: Instant,
    encoded: Instant,
    /// How many puts this one counts for.
    weight: u64,
}

impl Put {
    /// When it began by the wall clock, in ms since the epoch.
    #[inline]
    pub fn clock_ms(&self) -> i64 {
        self.clock_ms
    }

    /// Marks the message as encoded; the append follows.
    #[inline]
    pub fn encoded(&mut self) {
        if let Some(timed) = &mut self.timed {
            timed.encoded = Instant::now();
        }
    }
}

/// Whether a put that began at this nanosecond of its second is timed: one in [`PUTS_A_SAMPLE`],
/// independent of the sender's rhythm and of the resolution of the clock.
#[inline]
fn is_sample(nanos: u32) -> bool {
    const SPREAD: u32 = 0x9E37_79B1;
    nanos.wrapping_mul(SPREAD) < u32::MAX / PUTS_A_SAMPLE
}

/// Reads the steady clock and the wall clock (ms) at one moment. Reads them again if the thread was
/// interrupted in between, since that would look as if the wall clock had been set.
fn clocks(clock: &dyn Clock) -> (Instant, i64) {
    loop {
        let (now, wall_ms) = (Instant::now(), clock.now_ms());
        if now.elapsed() < Duration::from_millis(1) {
            return (now, wall_ms);
        }
    }
}

impl PutMeter {
    /// A meter for a store that opens at this moment. Slow puts are added to `warnings`; `clock`
    /// gives the wall-clock times.
    pub fn new(warnings: &Arc<Warnings>, clock: Arc<dyn Clock>) -> PutMeter {
        let (opened, opened_ms) = clocks(&*clock);
        let begin = Begin {
            all_timed: AtomicU32::new(ALL_TIMED),
            clock,
        };
        PutMeter {
            begin: CachePadded::new(begin),
            latency: Histogram::default(),
            encode_ns: AtomicU64::new(0),
            append_ns: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            warnings: Arc::clone(warnings),
            opened,
            opened_ms: AtomicI64::new(opened_ms),
        }
    }

    /// Begins the put of one message. This is the only read of the wall clock for a message.
    #[inline]
    pub fn begin(&self) -> Put {
        self.begin_at(self.begin.clock.now_ns())
    }

    /// [`PutMeter::begin`] at `now_ns` after the epoch.
    #[inline]
    fn begin_at(&self, now_ns: u64) -> Put {
        let all_timed = self.begin.all_timed.load(Ordering::Relaxed) > 0;
        let timed = all_timed || is_sample(low_u32(now_ns % 1_000_000_000));
        Put {
            clock_ms: (now_ns / 1_000_000).cast_signed(),
            timed: if timed { Some(self.timed()) } else { None },
        }
    }

    #[cold]
    fn timed(&self) -> Timed {
        let less = |left: u32| left.checked_sub(1);
        let order = Ordering::Relaxed;
        let early = self
            .begin
            .all_timed
            .fetch_update(order, order, less)
            .is_ok();
        let began = Instant::now();
        Timed {
            began,
            encoded: began,
            weight: if early { 1 } else { u64::from(PUTS_A_SAMPLE) },
        }
    }

    /// Ends a put of one message of `bytes`, `waited` of which was spent waiting for the disk.
    /// Returns the exact time if it was read.
    #[inline]
    pub fn end(&self, put: &Put, topic: &str, bytes: usize, waited: Duration) -> Option<Instant> {
        let took_ms = self.begin.clock.coarse_ms() - put.clock_ms;
        self.end_after(took_ms, put, topic, bytes, waited)
    }

    /// [`PutMeter::end`] of a put that took `took_ms` by the coarse clock.
    #[inline]
    fn end_after(
        &self,
        took_ms: i64,
        put: &Put,
        topic: &str,
        bytes: usize,
        waited: Duration,
    ) -> Option<Instant> {
        if took_ms < STALL_MS && put.timed.is_none() {
            return None;
        }
        Some(self.record(put, topic, bytes, waited, took_ms))
    }

    #[cold]
    fn record(
        &self,
        put: &Put,
        topic: &str,
        bytes: usize,
        waited: Duration,
        took_ms: i64,
    ) -> Instant {
        let (now, wall_ms) = clocks(&*self.begin.clock);
        let waited_ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        let stalled = took_ms.saturating_sub(waited_ms) >= STALL_MS;
        // The elapsed wall-clock time counts only if the clock was not set meanwhile.
        let stalled = stalled && self.clock_is_steady(now, wall_ms);
        let (took, weight, encoding) = match &put.timed {
            Some(timed) => {
                let took = now.saturating_duration_since(timed.began);
                let weight = if stalled { 1 } else { timed.weight };
                let encoding = timed.encoded.saturating_duration_since(timed.began);
                (took, weight, encoding)
            }
            None if stalled => {
                let took_ms = u64::try_from(took_ms).unwrap_or_default();
                (Duration::from_millis(took_ms), 1, Duration::ZERO)
            }
            None => return now,
        };
        let took = took.saturating_sub(waited);
        let encode_ns = nanos(encoding).saturating_mul(weight);
        let append_ns = nanos(took.saturating_sub(encoding)).saturating_mul(weight);
        self.encode_ns.fetch_add(encode_ns, Ordering::Relaxed);
        self.append_ns.fetch_add(append_ns, Ordering::Relaxed);
        self.took(took, weight, topic, 1, bytes);
        now
    }

    /// Counts a batch or a chunk of one. Its append is timed exactly.
    pub fn batch(&self, took: Duration, topic: &str, messages: usize, bytes: usize) {
        self.append_ns.fetch_add(nanos(took), Ordering::Relaxed);
        self.took(took, 1, topic, messages, bytes);
    }

    /// Counts the encoding of one timed row of a batch; see [`ROWS_A_SAMPLE`].
    pub fn encoded_row(&self, took: Duration) {
        let took = nanos(took).saturating_mul(ROWS_A_SAMPLE as u64);
        self.encode_ns.fetch_add(took, Ordering::Relaxed);
    }

    fn took(&self, took: Duration, weight: u64, topic: &str, messages: usize, bytes: usize) {
        self.latency.add(took, weight);
        if took > SLOW {
            self.slow.fetch_add(1, Ordering::Relaxed);
            self.warnings.add(Warning::SlowPut(SlowPut {
                topic: topic.into(),
                messages,
                bytes,
                took,
            }));
        }
    }

    /// Whether the wall clock has advanced like the steady clock since the last call.
    fn clock_is_steady(&self, now: Instant, wall_ms: i64) -> bool {
        let steady = now.saturating_duration_since(self.opened).as_millis();
        let steady_ms = i64::try_from(steady).unwrap_or(i64::MAX);
        let opened_ms = wall_ms - steady_ms;
        let before = self.opened_ms.load(Ordering::Relaxed);
        let steady = (opened_ms - before).abs() <= CLOCK_SET_MS;
        if !steady {
            self.opened_ms.store(opened_ms, Ordering::Relaxed);
        }
        steady
    }

    /// The measurements so far.
    pub fn read(&self) -> Puts {
        let time = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        Puts {
            latency: self.latency.read(),
            slow: self.slow.load(Ordering::Relaxed),
            encoding: time(&self.encode_ns),
            appending: time(&self.append_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::RealClock;

    const NO_WAIT: Duration = Duration::ZERO;

    fn meter() -> PutMeter {
        PutMeter::new(&Arc::default(), Arc::new(RealClock))
    }

    /// Ends an untimed put, `took_ms` after it began.
    fn end_untimed(meter: &PutMeter, took_ms: i64, waited: Duration) -> Option<Instant> {
        let put = Put {
            clock_ms: 0,
            timed: None,
        };
        meter.end_after(took_ms, &put, "orders", 123, waited)
    }

    /// Begins a put at each tick of a clock with this resolution, in ns. The puts take no time by
    /// the coarse clock. Returns how many were timed.
    fn put_at_ticks(meter: &PutMeter, grain: u64) -> u64 {
        let put = |tick: u64| {
            let mut put = meter.begin_at(tick * grain);
            put.encoded();
            meter.end_after(0, &put, "t", 100, NO_WAIT).is_some()
        };
        (0..TICKS).map(put).filter(|timed| *timed).count() as u64
    }

    const TICKS: u64 = 64_000;

    #[test]
    fn the_first_puts_are_all_timed_and_count_once() {
        let meter = meter();
        for _ in 0..ALL_TIMED {
            // A put at this nanosecond is not sampled.
            let put = meter.begin_at(1);
            assert!(meter.end_after(0, &put, "t", 100, NO_WAIT).is_some());
        }
        assert_eq!(meter.read().latency.count, u64::from(ALL_TIMED));
        let put = meter.begin_at(1);
        assert!(meter.end_after(0, &put, "t", 100, NO_WAIT).is_none());
        assert_eq!(meter.read().latency.count, u64::from(ALL_TIMED));
    }

    /// Sampling depends only on the nanosecond, so the numbers are exact.
    #[test]
    fn one_put_in_sixty_four_is_timed_at_any_clock_resolution() {
        let grains = [
            (1, 1000),
            (3, 1001),
            (16, 997),
            (100, 1002),
            (1000, 1000),
            (15_625, 999),
        ];
        for (grain, expected) in grains {
            let meter = meter();
            meter.begin.all_timed.store(0, Ordering::Relaxed);
            let timed = put_at_ticks(&meter, grain);
            assert_eq!(timed, expected, "grain {grain}");
            let each = u64::from(PUTS_A_SAMPLE);
            assert_eq!(meter.read().latency.count, timed * each, "grain {grain}");
        }
    }

    #[test]
    fn a_stall_of_an_untimed_put_is_found() {
        let meter = meter();
        assert!(end_untimed(&meter, STALL_MS - 1, NO_WAIT).is_none());
        end_untimed(&meter, 40, NO_WAIT).unwrap();
        let found = meter.read();
        assert_eq!(found.latency.count, 1);
        assert_eq!(found.latency.max, Duration::from_millis(40));
        assert_eq!(found.slow, 0);
        assert!(!meter.warnings.any());
    }

    #[test]
    fn a_put_longer_than_half_a_second_warns_once() {
        let meter = meter();
        end_untimed(&meter, 700, NO_WAIT).unwrap();
        assert_eq!(meter.read().slow, 1);
        let found = meter.warnings.take();
        let [Warning::SlowPut(put)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((&*put.topic, put.bytes), ("orders", 123));
        assert_eq!(put.took, Duration::from_millis(700));
        assert!(!meter.warnings.any() && meter.warnings.take().is_empty());
        assert_eq!(meter.read().slow, 1);
    }

    #[test]
    fn the_wait_for_the_disk_is_not_part_of_a_put() {
        let meter = meter();
        end_untimed(&meter, 700, Duration::from_millis(699));
        let found = meter.read();
        assert_eq!((found.slow, found.latency.count), (0, 0));
    }

    /// Setting the clock forward by a minute during a put once made the put look a minute long.
    #[test]
    fn setting_the_clock_makes_no_slow_put() {
        let meter = meter();
        let set_by_ms = 60_000;
        meter.opened_ms.fetch_sub(set_by_ms, Ordering::Relaxed);
        end_untimed(&meter, set_by_ms, NO_WAIT);
        assert_eq!(meter.read().latency.count, 0);
        end_untimed(&meter, 700, NO_WAIT);
        assert_eq!(meter.read().slow, 1);
    }
}
