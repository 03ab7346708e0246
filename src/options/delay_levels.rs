//! Delay levels: how long a message of each level waits, in RocketMQ's notation.

use std::fmt;
use std::sync::Arc;

/// A store has at most this many levels.
pub const LEVELS_MAX: usize = 255;
/// A message waits at most this long: 366 days.
pub const DELAY_MAX_MS: i64 = 366 * 24 * 3_600_000;

/// RocketMQ's delay of each level in ms, beginning with level 1.
pub const DELAY_LEVELS_MS: [i64; 18] = [
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000,
    480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
];

/// Units of time with their ms, the longest first.
const UNITS: [(char, i64); 4] = [
    ('d', 86_400_000),
    ('h', 3_600_000),
    ('m', 60_000),
    ('s', 1_000),
];

/// The delays of all levels, beginning with level 1. The default is RocketMQ's.
#[derive(Clone, Debug, Default)]
pub struct DelayLevels(Option<Arc<[i64]>>);

impl DelayLevels {
    /// Parses RocketMQ's `messageDelayLevel`, such as `1s 5s 10s 30s 1m 2h`; `None` if it is
    /// malformed, or has no level, too many, or one that is too long.
    pub fn parse(text: &str) -> Option<DelayLevels> {
        let delays: Option<Arc<[i64]>> = text.split_whitespace().map(parse_delay).collect();
        let delays = delays.filter(|delays| (1..=LEVELS_MAX).contains(&delays.len()))?;
        Some(DelayLevels(Some(delays)))
    }

    /// The delay of each level in ms.
    pub fn all_ms(&self) -> &[i64] {
        self.0.as_deref().unwrap_or(&DELAY_LEVELS_MS)
    }

    /// The delay of a level in ms. As in RocketMQ, a level above the last one counts as the last.
    pub fn of(&self, level: usize) -> Option<i64> {
        let all = self.all_ms();
        all.get(level.min(all.len()).checked_sub(1)?).copied()
    }
}

fn parse_delay(text: &str) -> Option<i64> {
    let unit = text.chars().next_back()?;
    let (_, unit_ms) = UNITS.iter().find(|(letter, _)| *letter == unit)?;
    let digits = text.get(..text.len() - unit.len_utf8())?;
    let count: i64 = digits.parse().ok().filter(|count| *count > 0)?;
    let delay = count.checked_mul(*unit_ms)?;
    (delay <= DELAY_MAX_MS && digits.starts_with(|it: char| it.is_ascii_digit())).then_some(delay)
}

impl PartialEq for DelayLevels {
    fn eq(&self, other: &DelayLevels) -> bool {
        self.all_ms() == other.all_ms()
    }
}

impl Eq for DelayLevels {}

impl fmt::Display for DelayLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, delay) in self.all_ms().iter().enumerate() {
            let whole = |(_, ms): &&(char, i64)| delay % ms == 0;
            let (letter, ms) = UNITS.iter().find(whole).unwrap_or(&('s', 1_000));
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{}{letter}", delay / ms)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_rocketmq_unless_others_are_given() {
        let standard = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
        assert_eq!(DelayLevels::parse(standard), Some(DelayLevels::default()));
        assert_eq!(DelayLevels::default().to_string(), standard);
        let own = DelayLevels::parse(" 90s\t2m 1d ").unwrap();
        assert_eq!(own.all_ms(), [90_000, 120_000, 86_400_000]);
        assert_eq!(own.to_string(), "90s 2m 1d");
        assert_eq!(DelayLevels::parse(&own.to_string()).unwrap(), own);
        let delays = [0, 1, 3, 4].map(|level| own.of(level));
        let last = Some(86_400_000);
        assert_eq!(delays, [None, Some(90_000), last, last]);
    }

    #[test]
    fn texts_that_are_no_levels_are_refused() {
        let (many, most) = ("1s ".repeat(LEVELS_MAX + 1), "1s ".repeat(LEVELS_MAX));
        for text in [
            "",
            " ",
            "1",
            "s",
            "1w",
            "0s",
            "-1s",
            "+1s",
            "1.5s",
            "1s,5s",
            "1\u{b5}",
            "367d",
            "99999999999999999999s",
            "9223372036854775807d",
            &many,
        ] {
            assert_eq!(DelayLevels::parse(text), None, "{text}");
        }
        assert!(DelayLevels::parse(&most).is_some() && DelayLevels::parse("366d").is_some());
    }
}
