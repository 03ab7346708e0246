//! Rules for topics, keys, tags and properties.

use super::names::{self, NAME_END, VALUE_END};
use crate::error::{Error, Result};
use std::ops::RangeInclusive;

/// Maximum length of a topic in bytes.
pub const TOPIC_LEN_MAX: usize = 127;

/// Maximum length of a decompressed body. A larger one is treated as damage.
pub const BODY_LEN_MAX: usize = 128 << 20;

/// Prefix of the topics that the store uses itself. Users cannot send to them.
pub const OWN_TOPIC_PREFIX: &str = "rmq_sys_forebay_";

/// Allowed born times in ms: the years 1 to 9999, which readers can represent.
const BORN_TIMES: RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// Checks a born time.
#[inline]
pub fn check_born(timestamp: Option<i64>) -> Result<()> {
    match timestamp {
        Some(time) if !BORN_TIMES.contains(&time) => {
            let rule = "be in the years 1 to 9999, in ms since 1970";
            Err(Error::must("timestamp", time, rule))
        }
        _ => Ok(()),
    }
}

/// The error for a part that is longer than its limit.
pub fn too_large(what: &str, size: usize, limit: usize) -> Error {
    Error::TooLarge {
        what: what.to_owned(),
        size: size as u64,
        limit: limit as u64,
    }
}

/// Checks a key.
pub fn check_key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::option(
            "key",
            "empty",
            "a key must have at least one character",
        ));
    }
    if is_key(key) {
        return Ok(());
    }
    Err(Error::option(
        "key",
        format!("{key:?}"),
        "spaces and control characters are not allowed",
    ))
}

/// Whether a text can be a key.
#[inline]
pub fn is_key(key: &str) -> bool {
    // Almost every key is accepted by one pass over its bytes. The others are checked as text.
    let is_plain = |plain, byte| plain & (byte > b' ') & (byte < 0x7F);
    let plain = key.bytes().fold(!key.is_empty(), is_plain);
    let is_space = |c: char| c.is_whitespace() || c.is_control();
    plain || !(key.is_empty() || key.chars().any(is_space))
}

/// Checks a tag.
pub fn check_tags(tags: &str) -> Result<()> {
    let reason = if tags.is_empty() || tags.trim() != tags {
        "a tag must not be empty, or begin or end with a space"
    } else if tags.contains("||") || tags == "*" {
        "\"||\" and \"*\" are reserved for subscriptions"
    } else if tags.chars().any(char::is_control) {
        "control characters are not allowed"
    } else {
        return Ok(());
    };
    Err(Error::option("tags", format!("{tags:?}"), reason))
}

/// Checks a property of a user.
pub fn check_property(name: &str, value: &str) -> Result<()> {
    match flaw_of_property(name, value) {
        None => Ok(()),
        Some(reason) => Err(Error::option(
            &format!("property {name:?}"),
            format!("{value:?}"),
            reason,
        )),
    }
}

/// Why this cannot be a user's property; `None` if it can.
#[inline]
pub fn flaw_of_property(name: &str, value: &str) -> Option<&'static str> {
    let separator = |byte: u8| byte == NAME_END || byte == VALUE_END;
    if name.is_empty() {
        Some("a property must have a name")
    } else if names::is_reserved(name) {
        Some("the name is reserved")
    } else if value.is_empty() {
        Some("the format cannot store an empty value")
    } else if name.bytes().any(separator) || value.bytes().any(separator) {
        Some("the bytes 0x01 and 0x02 separate properties and are not allowed in one")
    } else {
        None
    }
}

/// Checks the name of a topic that users send to: 1 to 127 bytes of `[%|a-zA-Z0-9_-]`, and not one
/// that the store keeps for itself.
///
/// # Errors
///
/// [`Error::InvalidTopic`] with the violated rule.
pub fn check_topic(topic: &str) -> Result<()> {
    check_topic_name(topic)?;
    check_is_users(topic)
}

/// Checks that a topic is not one that the store keeps for itself.
///
/// # Errors
///
/// [`Error::InvalidTopic`].
pub fn check_is_users(topic: &str) -> Result<()> {
    match topic.starts_with(OWN_TOPIC_PREFIX) {
        true => Err(Error::InvalidTopic {
            topic: topic.to_owned(),
            reason: format!("names that begin with {OWN_TOPIC_PREFIX} are reserved for the store"),
        }),
        false => Ok(()),
    }
}

/// [`check_topic`] for a topic that may be the store's own.
///
/// # Errors
///
/// As [`check_topic`].
pub fn check_topic_name(topic: &str) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'%' | b'|' | b'_' | b'-');
    let reason = if topic.is_empty() {
        "a topic must have a name".to_owned()
    } else if topic.len() > TOPIC_LEN_MAX {
        format!("the name is {} bytes, limit {TOPIC_LEN_MAX}", topic.len())
    } else if !topic.bytes().all(allowed) {
        "only the characters a-z, A-Z, 0-9, _, -, % and | are allowed".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::InvalidTopic {
        topic: topic.to_owned(),
        reason,
    })
}
