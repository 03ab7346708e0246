//! The time by which messages grow old: the wall clock, unless it jumps.
//!
//! A wall clock that is set forward makes every message look old, and what retention takes away for
//! that is gone for good. So the wall clock is compared with the steady one from step to step, and,
//! when a store was opened, with the times that the store knows. One that is more than an hour off
//! is believed after an hour; until then time goes on from where it was believed to be:
//!
//! ```text
//!   wall clock   -----+    +----------------------
//!                     +----+ jump                       forward or back
//!   believed     ----------------------+----------
//!                          |  one hour |                by the steady clock
//! ```
//!
//! The wall clock is read where it is lower: nothing goes early by it.

use std::time::{Duration, Instant};

/// By how much the wall clock may be off, and how long it is not believed where it is.
const HOUR: Duration = Duration::from_secs(3600);
/// [`HOUR`], in ms.
const HOUR_MS: i64 = 3_600_000;

/// What is believed of the time.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// A time that was believed, in ms, and when that was.
    believed: Option<(i64, Instant)>,
    /// How far the wall clock is off, in ms, and since when.
    off: Option<(i64, Instant)>,
}

/// What a look at the wall clock tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The time to go by, in ms since the epoch.
    pub(super) time_ms: i64,
    /// By how many ms the wall clock has jumped since the last look, where it has.
    pub(super) jumped: Option<i64>,
}

impl Clock {
    /// The time that is believed where the wall clock says `wall_ms`.
    ///
    /// `known` gives the times in ms at which the store was opened or written; it is asked once, at
    /// the first call.
    pub(super) fn look(
        &mut self,
        wall_ms: i64,
        now: Instant,
        known: impl FnOnce() -> Vec<i64>,
    ) -> Look {
        let first = self.believed.is_none();
        let (time, at) = *self
            .believed
            .get_or_insert_with(|| (start(wall_ms, known()), now));
        let passed = now.saturating_duration_since(at).as_millis();
        let expected = time.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        let off = wall_ms.saturating_sub(expected);
        let mut look = Look {
            time_ms: wall_ms.min(expected),
            jumped: None,
        };
        if is_jump(off) {
            let same = |known: &(i64, Instant)| !is_jump(off.saturating_sub(known.0));
            let since = match self.off.filter(same) {
                Some((_, since)) => since,
                None => {
                    // A store that was closed for long and a clock that was set look the same.
                    look.jumped = (!first).then_some(off);
                    now
                }
            };
            self.off = Some((off, since));
            if now.saturating_duration_since(since) < HOUR {
                return look;
            }
        }
        self.believed = Some((wall_ms, now));
        self.off = None;
        look.time_ms = wall_ms;
        look
    }
}

fn is_jump(off_ms: i64) -> bool {
    off_ms.unsigned_abs() > HOUR_MS.unsigned_abs()
}

/// The time that is believed when a store was opened: the wall clock's, unless there is a gap of
/// more than an hour in the times that the store knows, and all that comes after the gap lies
/// within the last hour. Then it is the time before the gap. So a clock that was set is not
/// believed either where the store was opened and written by it before.
fn start(wall_ms: i64, mut known: Vec<i64>) -> i64 {
    // What lies ahead of the wall clock was told by one that was wrong, or this one is behind.
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
            // A store that is new, and one that was opened a moment ago.
            (NOW, vec![], NOW),
            (NOW, vec![NOW - 2, NOW - minute, NOW - 50 * minute], NOW),
            // One that was opened every half hour, and was closed a long time before that.
            (NOW, vec![NOW - 30 * minute, NOW - 61 * minute, 5], NOW),
            // One that was closed for long, or the clock was set.
            (far, vec![NOW, NOW - DAY], NOW),
            // That was opened and written by such a clock, and is opened again.
            (far + 9, vec![far + 8, far, NOW - DAY, NOW], NOW),
            // Such a clock was put right.
            (NOW + 9, vec![far + 8, far, NOW], NOW + 9),
            (5, vec![NOW], 5),
        ] {
            assert_eq!(start(wall, known.clone()), believed, "{wall} {known:?}");
        }
    }

    #[test]
    fn a_jump_is_told_once_and_believed_after_an_hour() {
        for jump in [400 * DAY, -400 * DAY] {
            let (mut clock, begin) = (Clock::default(), Instant::now());
            let mut look = |wall: i64, minutes: u64| {
                let now = begin + Duration::from_secs(60 * minutes);
                clock.look(wall + minutes.cast_signed() * 60_000, now, Vec::new)
            };
            assert_eq!(look(NOW, 0).jumped, None);
            assert_eq!(look(NOW + HOUR_MS, 1).time_ms, NOW + HOUR_MS + 60_000);
            let (true_time, wall) = (NOW + HOUR_MS, NOW + HOUR_MS + jump);
            for minutes in 2..62 {
                let found = look(wall, minutes);
                let time = true_time.min(wall) + minutes.cast_signed() * 60_000;
                assert_eq!(found.time_ms, time, "{jump}: {minutes}");
                assert_eq!(found.jumped.is_some(), minutes == 2);
            }
            assert_eq!(look(wall, 62).time_ms, wall + 62 * 60_000);
            assert_eq!(look(wall, 63).jumped, None);
        }
    }

    #[test]
    fn a_clock_that_is_put_right_is_believed_at_once_and_each_jump_has_its_hour() {
        let (mut clock, begin) = (Clock::default(), Instant::now());
        let mut look = |wall: i64, minutes: u64| {
            let now = begin + Duration::from_secs(60 * minutes);
            clock.look(wall, now, Vec::new)
        };
        look(NOW, 0);
        assert_eq!(look(NOW + DAY, 0).jumped, Some(DAY));
        assert_eq!(
            look(NOW + 1, 0),
            Look {
                time_ms: NOW + 1,
                jumped: None
            }
        );
        assert_eq!(look(NOW + DAY, 1).jumped, Some(DAY - 60_001));
        assert!(look(NOW + 3 * DAY, 50).jumped.is_some());
        assert_eq!(look(NOW + 3 * DAY, 109).time_ms, NOW + 1 + 109 * 60_000);
        assert_eq!(look(NOW + 3 * DAY, 110).time_ms, NOW + 3 * DAY);
    }
}
