//! What the same call means in different engines: names, times, keys and positions.

use crate::error::Result;
use crate::options::EngineKind;
use crate::record::id::position_of_id;
use crate::record::names::{DEAD_PREFIX, RETRY_PREFIX};
use crate::record::{check_topic, java_hash};

/// What names, times, keys and positions mean in an engine.
#[derive(Clone, Copy, Debug)]
pub struct Meanings {
    /// Which engine it is.
    pub kind: EngineKind,
    /// Whether each message has the time of its append, which never decreases in a queue.
    pub append_times: bool,
    /// Whether positions of the log mean the same when the store is opened again.
    pub lasting_positions: bool,
    /// Whether the store is a log directory of Kafka's: it has segments and transactions, and
    /// messages can have no body, any bytes as key, and headers.
    pub in_kafka_form: bool,
    pub(super) retry_prefix: &'static str,
    pub(super) dead_prefix: &'static str,
    pub(super) check_topic: fn(&str) -> Result<()>,
    pub(super) queue_of_key: fn(&[u8], u32) -> u32,
    pub(super) address_of: fn(&str) -> Result<Address<'_>>,
}

/// Where the message with an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// Its position in the log.
    Position(u64),
    /// Its topic, queue and offset.
    Offset(&'a str, u32, u64),
}

impl Meanings {
    /// The meanings of RocketMQ, for a store whose messages are in one log.
    pub const ROCKETMQ: Meanings = Meanings {
        kind: EngineKind::CommitLog,
        append_times: true,
        lasting_positions: true,
        in_kafka_form: false,
        retry_prefix: RETRY_PREFIX,
        dead_prefix: DEAD_PREFIX,
        check_topic,
        queue_of_key: |key, queues| {
            let hash = java_hash(key).cast_unsigned() & 0x7FFF_FFFF;
            hash % queues.max(1)
        },
        address_of: |id| position_of_id(id).map(Address::Position),
    };

    /// Checks the name of a topic that users send to.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidTopic`] with the violated rule.
    pub fn check_topic(&self, name: &str) -> Result<()> {
        (self.check_topic)(name)
    }

    /// The queue of a message with this key, among `queues`.
    pub fn queue_of_key(&self, key: &[u8], queues: u32) -> u32 {
        (self.queue_of_key)(key, queues)
    }

    /// The topic of a group's messages to be retried.
    pub fn retry_topic(&self, group: &str) -> String {
        format!("{}{group}", self.retry_prefix)
    }

    /// The topic of a group's dead letters.
    pub fn dead_topic(&self, group: &str) -> String {
        format!("{}{group}", self.dead_prefix)
    }

    /// Where the message with this id is.
    ///
    /// # Errors
    ///
    /// [`crate::Error::InvalidOption`] if the text is not a message id.
    pub fn address_of<'a>(&self, id: &'a str) -> Result<Address<'a>> {
        (self.address_of)(id)
    }
}
