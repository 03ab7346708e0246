//! Properties of a record: `name 0x01 value 0x02`, over and over.
//!
//! Reading follows RocketMQ: pieces are split at 0x02, each at its first 0x01; a piece without a
//! 0x01, with an empty name or an empty value is dropped, the last of several equal names wins, and
//! the last 0x02 may be missing. Writing always ends with 0x02.

/// Name of the whole-record checksum among the properties.
pub const CRC_PROPERTY: &str = "__CRC32#";
/// Bytes of the whole-record checksum at the end of a record: name, 0x01, ten digits, 0x02.
pub const CRC_LEN: usize = 20;
/// How the property of the keys begins.
pub(super) const KEYS_BEGIN: &[u8; 5] = b"KEYS\x01";
/// Between a name and its value.
pub const NAME_END: u8 = 0x01;
/// Behind a value.
pub const VALUE_END: u8 = 0x02;

/// Property that holds the keys, separated by one space.
pub const KEYS: &str = "KEYS";
/// Property that holds the tag.
pub const TAGS: &str = "TAGS";
/// Property that holds the producer's unique id; it is indexed like a key.
pub const UNIQ_KEY: &str = "UNIQ_KEY";
/// Property that holds the delay level.
pub const DELAY: &str = "DELAY";
/// Property that holds the topic that a delayed message is meant for.
pub const REAL_TOPIC: &str = "REAL_TOPIC";
/// Property that holds the queue that a delayed message is meant for.
pub const REAL_QID: &str = "REAL_QID";

/// Topic that delayed messages wait in, one queue a level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Names that RocketMQ and Forebay keep for themselves (formats, reserved property names).
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
    "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID",
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
];

const TRANSIENT_PREFIX: &str = "__RMQ.TRANSIENT.";

/// Whether a name is kept for the system: users may not set it.
pub fn is_reserved(name: &str) -> bool {
    // All reserved names begin with a capital letter, a digit or an underscore; most users' do not.
    let first = name.as_bytes().first();
    first.is_some_and(|byte| byte.is_ascii_uppercase() || matches!(byte, b'0'..=b'9' | b'_'))
        && (RESERVED.contains(&name) || name.starts_with(TRANSIENT_PREFIX))
}

/// Goes over the pairs as stored, in order, without those that do not count.
pub fn pairs(raw: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    raw.split(|byte| *byte == VALUE_END).filter_map(|piece| {
        let at = piece.iter().position(|byte| *byte == NAME_END)?;
        let (name, value) = piece.split_at_checked(at)?;
        let (_, value) = value.split_first()?;
        (!name.is_empty() && !value.is_empty()).then_some((name, value))
    })
}

/// The value of `name`: the last one where there are several.
///
/// Walks the bytes once, by the separators alone.
#[inline]
pub fn find<'a>(raw: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pairs(raw)
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value)
        .last()
}

/// The values that dispatch and filters need, found in one walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// `KEYS`
    pub keys: Option<&'a [u8]>,
    /// `TAGS`
    pub tags: Option<&'a [u8]>,
    /// `UNIQ_KEY`
    pub unique_key: Option<&'a [u8]>,
    /// `DELAY`
    pub delay: Option<&'a [u8]>,
}

impl<'a> Known<'a> {
    /// Reads them from properties as stored.
    #[inline]
    pub fn read(raw: &'a [u8]) -> Known<'a> {
        let mut known = Known::default();
        // The checksum, where there is one, is the last property and none of these.
        let raw = match raw.split_last_chunk::<CRC_LEN>() {
            Some((rest, last)) if last.starts_with(CRC_PROPERTY.as_bytes()) => rest,
            _ => raw,
        };
        for (name, value) in pairs(raw) {
            match name {
                b"KEYS" => known.keys = Some(value),
                b"TAGS" => known.tags = Some(value),
                b"UNIQ_KEY" => known.unique_key = Some(value),
                b"DELAY" => known.delay = Some(value),
                _ => {}
            }
        }
        known
    }

    /// The keys that the index holds: the unique one, then each part of `KEYS`.
    pub fn index_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let keys = self.keys.unwrap_or_default().split(|byte| *byte == b' ');
        self.unique_key
            .into_iter()
            .chain(keys.filter(|key| !key.is_empty()))
    }
}

/// Java's `String.hashCode` of text given as UTF-8: over its UTF-16 units.
#[inline]
pub fn java_hash(text: &[u8]) -> i32 {
    java_hash_from(0, text)
}

/// [`java_hash`] going on from the hash of what stands before.
#[inline]
pub fn java_hash_from(hash: i32, text: &[u8]) -> i32 {
    if text.is_ascii() {
        return text
            .iter()
            .fold(hash, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(*b)));
    }
    let text = String::from_utf8_lossy(text);
    text.encode_utf16().fold(hash, |h, unit| {
        h.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// Hash that the index uses for a key of a topic: of `topic#key`, never negative.
#[inline]
pub fn index_hash(topic: &[u8], key: &[u8]) -> u32 {
    TopicHash::new(topic).of(key)
}

/// [`index_hash`] for keys of one topic, whose share of the hash is computed once.
#[derive(Clone, Copy, Debug)]
pub struct TopicHash(i32);

impl TopicHash {
    /// For keys of `topic`.
    pub fn new(topic: &[u8]) -> TopicHash {
        TopicHash(java_hash_from(java_hash(topic), b"#"))
    }

    /// Hash of a key.
    #[inline]
    pub fn of(self, key: &[u8]) -> u32 {
        java_hash_from(self.0, key)
            .checked_abs()
            .unwrap_or(0)
            .cast_unsigned()
    }
}

/// The tag code of a queue entry: the tag's hash with its sign, 0 without a tag.
#[inline]
pub fn tags_code(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_hash(tags)))
}

/// Delay of each level in ms, from level 1 on.
pub const DELAY_LEVELS_MS: [i64; 18] = [
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000,
    480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_format_specification() {
        assert_eq!(tags_code(Some(b"tagA")), 0x0036_33e7);
        assert_eq!(index_hash(b"T", b"k1"), 0x0026_bfb5);
        assert_eq!(index_hash(b"T", b"bk0"), 0x04b1_1c58);
        assert_eq!(index_hash(b"SCHEDULE_TOPIC_XXXX", b"kd"), 0x75bb_f7e4);
        // Characters outside the first plane count as two units, as in Java.
        assert_eq!(java_hash("\u{1F600}".as_bytes()), 31 * 0xD83D + 0xDE00);
    }

    #[test]
    fn pieces_without_name_or_value_do_not_count_and_the_last_name_wins() {
        let raw = b"a\x011\x02\x01x\x02b\x01\x02noend\x02a\x012\x01z";
        let found: Vec<_> = pairs(raw).collect();
        assert_eq!(found, [(&b"a"[..], &b"1"[..]), (b"a", b"2\x01z")]);
        assert_eq!(find(raw, b"a"), Some(&b"2\x01z"[..]));
        assert_eq!(find(raw, b"b"), None);
    }
}
