//! What the same words mean in different engines.

use crate::record::names::{DEAD_PREFIX, KAFKA_DEAD_PREFIX, KAFKA_RETRY_PREFIX, RETRY_PREFIX};

/// What differs between engines for those that use them.
#[derive(Clone, Copy, Debug)]
pub struct Meanings {
    retry_prefix: &'static str,
    dead_prefix: &'static str,
    /// Whether each message has the time of its append, which never decreases in a queue.
    pub append_times: bool,
    /// Whether positions of the log mean the same when the store is opened again.
    pub lasting_positions: bool,
    /// Whether the store is a log directory of Kafka's: it has segments and transactions, and
    /// messages can have no body, any bytes as key, and headers.
    pub in_kafka_form: bool,
}

impl Meanings {
    /// Those of a store whose messages are in one log.
    pub const ONE_LOG: Meanings = Meanings {
        retry_prefix: RETRY_PREFIX,
        dead_prefix: DEAD_PREFIX,
        append_times: true,
        lasting_positions: true,
        in_kafka_form: false,
    };

    /// Those of a store with a log for each queue: times are those of the senders, and positions
    /// count the bytes that all queues have.
    pub const LOG_PER_QUEUE: Meanings = Meanings {
        retry_prefix: KAFKA_RETRY_PREFIX,
        dead_prefix: KAFKA_DEAD_PREFIX,
        append_times: false,
        lasting_positions: false,
        in_kafka_form: true,
    };

    /// The topic of a group's messages to be retried.
    pub fn retry_topic(&self, group: &str) -> String {
        format!("{}{group}", self.retry_prefix)
    }

    /// The topic of a group's dead letters.
    pub fn dead_topic(&self, group: &str) -> String {
        format!("{}{group}", self.dead_prefix)
    }
}
