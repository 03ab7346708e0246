//! Names with a special meaning: of properties, and of the topic of delayed messages.

/// Separates a name from its value.
pub const NAME_END: u8 = 0x01;
/// Ends a value.
pub const VALUE_END: u8 = 0x02;

/// Property that holds the keys, separated by one space.
pub const KEYS: &str = "KEYS";
/// Property that holds the tag.
pub const TAGS: &str = "TAGS";
/// Property that holds the producer's unique id. It is indexed like a key.
pub const UNIQ_KEY: &str = "UNIQ_KEY";
/// Property that holds the delay level.
pub const DELAY: &str = "DELAY";
/// Property that holds the topic that a delayed message is meant for.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Property that holds the queue that a delayed message is meant for.
pub const REAL_QID: &str = "REAL_QID";

/// Property of a retried message: the topic that it was sent to.
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
/// Property of a retried message: the id of the message that was sent.
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";

/// Property of a dead letter of a newer broker: the topic that the message was sent to.
pub const DEAD_ORIGIN_TOPIC: &str = "DLQ_ORIGIN_TOPIC";
/// Property of a dead letter of a newer broker: the id of the message that was sent.
pub const DEAD_ORIGIN_MESSAGE_ID: &str = "DLQ_ORIGIN_MESSAGE_ID";
/// Property of a dead letter: the reason for its rejection.
pub const DEAD_REASON: &str = "FOREBAY_REASON";

/// Prefix of the topic of a group's retried messages.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of the topic of a group's dead letters.
pub const DEAD_PREFIX: &str = "%DLQ%";

/// [`RETRY_PREFIX`] where topics have Kafka's names.
pub const KAFKA_RETRY_PREFIX: &str = "retry.";
/// [`DEAD_PREFIX`] where topics have Kafka's names.
pub const KAFKA_DEAD_PREFIX: &str = "dlq.";

/// Topic in which delayed messages wait, with one queue per level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Topic in whose queue 0 messages with a delivery time wait.
pub const TIMER_TOPIC: &str = "rmq_sys_forebay_delay";
/// Property of a message with a delivery time: that time, in ms since the epoch.
pub const DELIVER_AT: &str = "FOREBAY_DELIVER_AT";
/// Property of a copy of a message with a delivery time: the offset of the original in
/// [`TIMER_TOPIC`].
pub const TIMER_OFFSET: &str = "FOREBAY_DELAY_OFFSET";
/// Most bytes that [`TIMER_OFFSET`] takes in RocketMQ's form: with its separators, and the 20
/// digits of the longest offset.
pub const TIMER_OFFSET_LEN_MAX: usize = TIMER_OFFSET.len() + 2 + 20;

/// Property names that RocketMQ and Forebay reserve.
pub const RESERVED: &[&str] = &[
    "KEYS",
    "TAGS",
    "UNIQ_KEY",
    "WAIT",
    "DELAY",
    "REAL_TOPIC",
    "REAL_QID",
    "RETRY_TOPIC",
    "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES",
    "ORIGIN_MESSAGE_ID",
    DEAD_ORIGIN_TOPIC,
    DEAD_ORIGIN_MESSAGE_ID,
    "TRAN_MSG",
    "PGROUP",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "__transactionId__",
    "TRANSACTION_CHECK_TIMES",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "INNER_NUM",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DELAY_LEVEL",
    "POP_CK",
    "POP_CK_OFFSET",
    "1ST_POP_TIME",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
    "INSTANCE_ID",
    "MSG_TYPE",
    "TTL",
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    "CONSUME_START_TIME",
    "BUYER_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "EXTEND_UNIQ_INFO",
    "DUP_INFO",
    "__SHARDINGKEY",
    "__BORNHOST",
    "BORN_TIMESTAMP",
    "PROPERTY_FORWARD_QUEUE_ID",
    "REDIRECT",
    "TRACE_CONTEXT",
    "__CRC32#",
    DELIVER_AT,
    TIMER_OFFSET,
];

const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// Whether a property name is reserved: users may not set it.
pub fn is_reserved(name: &str) -> bool {
    // All reserved names begin with a capital letter, a digit or an underscore; most names of users
    // do not.
    let first = name.as_bytes().first();
    first.is_some_and(|byte| byte.is_ascii_uppercase() || matches!(byte, b'0'..=b'9' | b'_'))
        && (RESERVED.contains(&name) || name.starts_with(TRANSIENT_PREFIX))
}

/// Which properties a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyKind {
    /// Those that users set.
    User,
    /// Those under reserved names.
    System,
}
