//! Options of a consumer.

use super::order::Order;
use super::start::Start;
use crate::engine::Filter;
use crate::error::{Error, Result};
use std::time::Duration;

/// The shortest session time-out: long enough for several signs of life.
const SESSION_MIN: Duration = Duration::from_secs(1);

/// The shortest visibility timeout: deadlines are in milliseconds.
const VISIBILITY_MIN: Duration = Duration::from_millis(1);

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Where a group begins in a topic that it has not consumed yet.
    pub start: Start,
    /// What is guaranteed about the order of messages in a queue.
    pub order: Order,
    /// Which messages are delivered. Others count as settled.
    pub filter: Filter,
    /// How long a message may stay unsettled before it is delivered again.
    pub visibility_timeout: Duration,
    /// Maximum number of offsets delivered past the smallest one that is not settled.
    pub max_unsettled: u64,
    /// With [`Order::Queue`]: number of attempts before a message becomes a dead letter.
    pub retry_in_place: u32,
    /// In a shared store: how long the process of the consumer may show no sign of life before its
    /// queues go to other processes. The queues of a dead process go to others at once.
    pub session_timeout: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            start: Start::default(),
            order: Order::None,
            filter: Filter::default(),
            visibility_timeout: Duration::from_mins(15),
            max_unsettled: 2_000,
            retry_in_place: 16,
            session_timeout: Duration::from_secs(10),
        }
    }
}

impl ConsumerOptions {
    /// Checks that the values are allowed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`].
    pub(super) fn check(&self) -> Result<()> {
        if self.max_unsettled == 0 {
            return Err(Error::must("max_unsettled", 0, "be at least 1"));
        }
        if self.session_timeout < SESSION_MIN {
            let given = self.session_timeout.as_secs_f64();
            return Err(Error::must(
                "session_timeout",
                given,
                "be at least 1 second",
            ));
        }
        if self.visibility_timeout < VISIBILITY_MIN {
            let given = self.visibility_timeout.as_secs_f64();
            let rule = "be at least 1 millisecond";
            return Err(Error::must("visibility_timeout", given, rule));
        }
        Ok(())
    }
}
