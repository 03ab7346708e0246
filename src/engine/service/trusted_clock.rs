//! The clock for the age of messages: the wall clock, unless it jumps.
//!
//! A wall clock that is set forward makes every message look old, and retention would delete
//! messages that cannot be recovered. So the wall clock is compared with the steady clock from step
//! to step, and, after a store was opened, with the times stored in it. If it is more than an hour
//! off, it is trusted only after an hour; until then time continues from the last trusted time:
//!
//! ```text
//!   wall clock   -----+    +----------------------
//!                     +----+ jump                       forward or back
//!   trusted      ----------------------+----------
//!                          |  one hour |                by the steady clock
//! ```
//!
//! If the wall clock shows an earlier time, that is used, so nothing is deleted too early.

use std::time::{Duration, Instant};

/// How far the wall clock may be off, and how long it is distrusted if it is more.
const HOUR: Duration = Duration::from_secs(3600);
/// [`HOUR`], in ms.
const HOUR_MS: i64 = 3_600_000;

/// The trusted time.
#[derive(Debug, Default)]
pub struct TrustedClock {
    /// The last trusted time in ms, and when that was.
    believed: Option<(i64, Instant)>,
    /// How far the wall clock is off in ms, and since when.
    off: Option<(i64, Instant)>,
}

/// The result of reading the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The time to use, in ms since the epoch.
    pub time_ms: i64,
    /// By how many ms the wall clock has jumped since the last reading, if it has.
    pub jumped: Option<i64>,
}

impl TrustedClock {
    /// The trusted time when the wall clock shows `wall_ms`.
    ///
    /// `known` returns the times in ms at which the store was opened or written. It is called once,
    /// by the first call.
    pub fn read(
        &mut self,
        wall_ms: i64,
        now: Instant,
        known: impl FnOnce() -> Vec<i64>,
    ) -> Reading {
        let first = self.believed.is_none();
        let (time, at) = *self
            .believed
            .get_or_insert_with(|| (start(wall_ms, known()), now));
        let passed = now.saturating_duration_since(at).as_millis();
        let expected = time.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        let off = wall_ms.saturating_sub(expected);
        let mut reading = Reading {
            time_ms: wall_ms.min(expected),
            jumped: None,
        };
        if is_jump(off) {
            let same = |known: &(i64, Instant)| !is_jump(off.saturating_sub(known.0));
            let since = match self.off.filter(same) {
                Some((_, since)) => since,
                None => {
                    // A store that was closed for long cannot be told apart from a clock that was
                    // set.
                    reading.jumped = (!first).then_some(off);
                    now
                }
            };
            self.off = Some((off, since));
            if now.saturating_duration_since(since) < HOUR {
                return reading;
            }
        }
        self.believed = Some((wall_ms, now));
        self.off = None;
        reading.time_ms = wall_ms;
        reading
    }
}

fn is_jump(off_ms: i64) -> bool {
    off_ms.unsigned_abs() > HOUR_MS.unsigned_abs()
}

/// The trusted time after opening: the wall clock, unless there is a gap of more than an hour
/// between the times known to the store, and all times after the gap are within the last hour. Then
/// it is the time before the gap. So a wrong clock is not trusted even if the store was already
/// opened and written with it.
fn start(wall_ms: i64, mut known: Vec<i64>) -> i64 {
    // A time after the wall clock came from a wrong clock, or the wall clock is behind.
    known.retain(|time| (1..=wall_ms).contains(time));
    known.sort_unstable();
    let mut after = wall_ms;
    for time in known.into_iter().rev() {
        if is_jump(after - time) {
            return match is_jump(wall_ms - after) {
                true => wall_ms,
                false => time,
            };
        }
        after = time;
    }
    wall_ms
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    const DAY: i64 = 24 * HOUR_MS;
    const NOW: i64 = 20_000 * DAY;

    #[test]
    fn a_clock_that_was_set_while_the_store_was_closed_is_not_believed() {
        let minute = HOUR_MS / 60;
        let far = NOW + 400 * DAY;
        for (wall, known, believed) in [
            // A new store, and one that was opened a moment ago.
            (NOW, vec![], NOW),
            (NOW, vec![NOW - 2, NOW - minute, NOW - 50 * minute], NOW),
            // A store that was opened every half hour, after being closed for a long time.
            (NOW, vec![NOW - 30 * minute, NOW - 61 * minute, 5], NOW),
            // The store was closed for long, or the clock was set.
            (far, vec![NOW, NOW - DAY], NOW),
            // The store was opened and written with such a clock, and is opened again.
            (far + 9, vec![far + 8, far, NOW - DAY, NOW], NOW),
            // Such a clock was corrected.
            (NOW + 9, vec![far + 8, far, NOW], NOW + 9),
            (5, vec![NOW], 5),
        ] {
            assert_eq!(start(wall, known.clone()), believed, "{wall} {known:?}");
        }
    }

    #[test]
    fn a_jump_is_told_once_and_believed_after_an_hour() {
        for jump in [400 * DAY, -400 * DAY] {
            let (mut clock, begin) = (TrustedClock::default(), Instant::now());
            let mut reading = |wall: i64, minutes: u64| {
                let now = begin + Duration::from_secs(60 * minutes);
                clock.read(wall + minutes.cast_signed() * 60_000, now, Vec::new)
            };
            assert_eq!(reading(NOW, 0).jumped, None);
            assert_eq!(reading(NOW + HOUR_MS, 1).time_ms, NOW + HOUR_MS + 60_000);
            let (true_time, wall) = (NOW + HOUR_MS, NOW + HOUR_MS + jump);
            for minutes in 2..62 {
                let found = reading(wall, minutes);
                let time = true_time.min(wall) + minutes.cast_signed() * 60_000;
                assert_eq!(found.time_ms, time, "{jump}: {minutes}");
                assert_eq!(found.jumped.is_some(), minutes == 2);
            }
            assert_eq!(reading(wall, 62).time_ms, wall + 62 * 60_000);
            assert_eq!(reading(wall, 63).jumped, None);
        }
    }

    #[test]
    fn a_clock_that_is_put_right_is_believed_at_once_and_each_jump_has_its_hour() {
        let (mut clock, begin) = (TrustedClock::default(), Instant::now());
        let mut reading = |wall: i64, minutes: u64| {
            let now = begin + Duration::from_secs(60 * minutes);
            clock.read(wall, now, Vec::new)
        };
        reading(NOW, 0);
        assert_eq!(reading(NOW + DAY, 0).jumped, Some(DAY));
        assert_eq!(
            reading(NOW + 1, 0),
            Reading {
                time_ms: NOW + 1,
                jumped: None
            }
        );
        assert_eq!(reading(NOW + DAY, 1).jumped, Some(DAY - 60_001));
        assert!(reading(NOW + 3 * DAY, 50).jumped.is_some());
        assert_eq!(reading(NOW + 3 * DAY, 109).time_ms, NOW + 1 + 109 * 60_000);
        assert_eq!(reading(NOW + 3 * DAY, 110).time_ms, NOW + 3 * DAY);
    }
}
