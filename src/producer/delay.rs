//! When a message is delivered.

use crate::record::names;
use std::time::Duration;

/// When a message is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delay {
    /// At once.
    #[default]
    None,
    /// After RocketMQ's delay of this level, 1 to 18.
    Level(u8),
    /// At this time, in ms since the epoch, at most 366 days ahead; at once if it has passed.
    Until(i64),
    /// After this time, at most 366 days.
    For(Duration),
}

impl Delay {
    /// The delay of a level, where 0 means none.
    pub fn level(level: u8) -> Delay {
        match level {
            0 => Delay::None,
            level => Delay::Level(level),
        }
    }

    /// The topic that the message waits in.
    pub fn topic(self) -> Option<&'static str> {
        match self {
            Delay::None => None,
            Delay::Level(_) => Some(names::SCHEDULE_TOPIC),
            Delay::Until(_) | Delay::For(_) => Some(names::TIMER_TOPIC),
        }
    }
}
