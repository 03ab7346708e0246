//! Forebay's own headers: they hold what RocketMQ's records state and Kafka's have no field for.
//!
//! | header | value |
//! |---|---|
//! | `FOREBAY_TAGS` | the tag |
//! | `FOREBAY_KEYS` | the keys after the first, separated by one space |
//! | `FOREBAY_RECONSUME_TIMES` | how often the message was delivered before, as a decimal number |
//! | `FOREBAY_` and the name of a system property | its value |
//!
//! They are not shown among the headers of a message, and a sender cannot set them. All values are
//! text. A system property whose name begins with `FOREBAY_` keeps it.

use crate::record::common::names;

/// Header that holds the tag.
pub const TAGS: &str = "FOREBAY_TAGS";
/// Header that holds the keys after the first, separated by one space.
pub const KEYS: &str = "FOREBAY_KEYS";
/// Header that tells how often the message was delivered before.
pub const RECONSUME_TIMES: &str = "FOREBAY_RECONSUME_TIMES";

/// Beginning of all their names.
const PREFIX: &str = "FOREBAY_";
/// System properties that get the prefix.
const PREFIXED: &[&str] = &[
    names::DELAY,
    names::REAL_TOPIC,
    names::REAL_QID,
    names::RETRY_TOPIC,
    names::ORIGIN_MESSAGE_ID,
    names::DEAD_ORIGIN_TOPIC,
    names::DEAD_ORIGIN_MESSAGE_ID,
];
/// System properties that have it already.
const UNCHANGED: &[&str] = &[names::DELIVER_AT, names::TIMER_OFFSET];

/// What precedes the name of a property in the name of its header.
pub fn prefix_of(property: &str) -> &'static str {
    match PREFIXED.contains(&property) {
        true => PREFIX,
        false => "",
    }
}

/// Whether there is a header for a system property.
pub fn has_header_for(property: &str) -> bool {
    PREFIXED.contains(&property) || UNCHANGED.contains(&property)
}

/// The system property that a header holds.
pub fn system_property(header: &[u8]) -> Option<&'static str> {
    let rest = header.strip_prefix(PREFIX.as_bytes())?;
    let is = |name: &&&str, bytes: &[u8]| name.as_bytes() == bytes;
    let found = PREFIXED.iter().find(|name| is(name, rest));
    found
        .or_else(|| UNCHANGED.iter().find(|name| is(name, header)))
        .copied()
}

/// Whether the name of a header is one of Forebay's own.
#[inline]
pub fn is_own(header: &[u8]) -> bool {
    header.starts_with(PREFIX.as_bytes())
        && ([TAGS, KEYS, RECONSUME_TIMES]
            .iter()
            .any(|name| name.as_bytes() == header)
            || system_property(header).is_some())
}
