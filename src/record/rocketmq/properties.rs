//! Properties of a record: `name 0x01 value 0x02`, repeated.
//!
//! Parsing follows RocketMQ: the bytes are split at 0x02, and each piece at its first 0x01. A piece
//! without 0x01, or with an empty name or value, is dropped. Of equal names the last one counts.
//! The last 0x02 may be missing; Forebay always writes it.

pub use crate::record::common::names::{KEYS, NAME_END, SCHEDULE_TOPIC, TAGS, VALUE_END};
pub use crate::record::common::{Known, java_hash};

use crate::record::common::Copied;
use crate::record::common::hash::java_hash_from;

/// Name of the whole-record checksum among the properties.
pub const CRC_PROPERTY: &str = "__CRC32#";
/// Bytes of the whole-record checksum at the end of a record: name, 0x01, ten digits, 0x02.
pub const CRC_LEN: usize = 20;
/// Beginning of the property with the keys.
pub(super) const KEYS_BEGIN: &[u8; 5] = b"KEYS\x01";

/// The valid pairs in stored order.
pub fn pairs(raw: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    raw.split(|byte| *byte == VALUE_END).filter_map(|piece| {
        let at = piece.iter().position(|byte| *byte == NAME_END)?;
        let (name, value) = piece.split_at_checked(at)?;
        let (_, value) = value.split_first()?;
        (!name.is_empty() && !value.is_empty()).then_some((name, value))
    })
}

/// The properties for a copy of a record with the properties `raw`, encoded, without a checksum.
pub fn copied(raw: &[u8], to: &Copied<'_>) -> Vec<u8> {
    let mut copy = Vec::with_capacity(raw.len() + 128);
    let is_kept = |name: &[u8]| {
        let mut left = to.without.iter().chain(&[CRC_PROPERTY]);
        !left.any(|without| without.as_bytes() == name)
    };
    let kept = pairs(raw).filter(|(name, _)| is_kept(name));
    let added = to
        .with
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    for (name, value) in kept.chain(added) {
        copy.extend_from_slice(name);
        copy.push(NAME_END);
        copy.extend_from_slice(value);
        copy.push(VALUE_END);
    }
    copy
}

/// The value of `name`; of several, the last one.
///
/// Reads the bytes once.
#[inline]
pub fn find<'a>(raw: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pairs(raw)
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value)
        .last()
}

impl<'a> Known<'a> {
    /// Finds them in stored properties.
    #[inline]
    pub fn read(raw: &'a [u8]) -> Known<'a> {
        let mut known = Known::default();
        // The checksum, if there is one, is the last property, and not one of these.
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
}

/// The index's hash for a key of a topic: that of `topic#key`, never negative.
#[inline]
pub fn index_hash(topic: &[u8], key: &[u8]) -> u32 {
    TopicHash::new(topic).of(key)
}

/// [`index_hash`] for the keys of one topic. The topic's part of the hash is computed once.
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

/// The tag code of a queue entry: the signed hash of the tag, 0 without a tag.
#[inline]
pub fn tags_code(tags: Option<&[u8]>) -> i64 {
    tags.map_or(0, |tags| i64::from(java_hash(tags)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_format_specification() {
        assert_eq!(tags_code(Some(b"tagA")), 0x0036_33e7);
        assert_eq!(index_hash(b"T", b"k1"), 0x0026_bfb5);
        assert_eq!(index_hash(b"T", b"bk0"), 0x04b1_1c58);
        assert_eq!(index_hash(b"SCHEDULE_TOPIC_XXXX", b"kd"), 0x75bb_f7e4);
        // Characters outside the basic plane count as two units, as in Java.
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
