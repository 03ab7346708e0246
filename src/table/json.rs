//! JSON as RocketMQ writes it: the names of an object may be numbers without quotes, which JSON
//! parsers refuse. Both forms are read; Forebay writes strict JSON.

use super::Reason;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum number of values in a text that is held as a tree, which takes about a hundred bytes for
/// each.
pub const VALUES_MAX: usize = 4 << 20;

/// The value of a text; `None` if it is not JSON in either form, or has more than [`VALUES_MAX`]
/// values.
pub fn parse(text: &[u8]) -> Option<Value> {
    (values(text) <= VALUES_MAX).then_some(())?;
    read(text).ok()
}

/// The members of the object in a text, each as a tree.
pub fn object(text: &[u8]) -> Result<Map<String, Value>, Reason> {
    check_values(text)?;
    read(text).map_err(Reason::unreadable)
}

/// Checks that a text has at most [`VALUES_MAX`] values.
pub fn check_values(text: &[u8]) -> Result<(), Reason> {
    match values(text) <= VALUES_MAX {
        true => Ok(()),
        false => Err(Reason::TooMuch(format!("more than {VALUES_MAX} values"))),
    }
}

/// Whether a text is JSON in either form.
pub fn is_json(text: &[u8]) -> bool {
    read::<IgnoredAny>(text).is_ok()
}

/// The value of a text in either form.
///
/// # Errors
///
/// Those of the parser for the stricter form with quotes.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(text).or_else(|_| serde_json::from_slice(&with_quotes(text)))
}

/// The text of a value, indented with tabs as RocketMQ does.
pub fn pretty(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    let tabs = PrettyFormatter::with_indent(b"\t");
    value.serialize(&mut Serializer::with_formatter(&mut text, tabs))?;
    Ok(text)
}

/// An upper bound of the number of values in a text: each but the first follows one of four signs.
fn values(text: &[u8]) -> usize {
    let signs = text.iter().filter(|byte| b",:[{".contains(byte));
    signs.count() + 1
}

/// The members of the object in a text, each as its text; of equal names the last. `what` names the
/// members in the error for more than `MAX` of them.
pub fn members<const MAX: usize>(text: &[u8], what: &str) -> Result<RawMembers, Reason> {
    let found = read::<Members<MAX>>(text).map_err(Reason::unreadable)?;
    match found.more {
        true => Err(Reason::TooMuch(format!("more than {MAX} {what}"))),
        false => Ok(found.map),
    }
}

/// Members of an object by name, each as its text.
pub type RawMembers = BTreeMap<String, Box<RawValue>>;

/// The members of an object. If there are more than `MAX`, only some are kept.
#[derive(Debug, Default)]
struct Members<const MAX: usize> {
    map: RawMembers,
    /// Whether there are more than `MAX`.
    more: bool,
}

impl<'de, const MAX: usize> Deserialize<'de> for Members<MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MembersVisitor::<MAX>)
    }
}

struct MembersVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for MembersVisitor<MAX> {
    type Value = Members<MAX>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Members<MAX>, A::Error> {
        let mut found = Members::default();
        while found.map.len() <= MAX
            && let Some((name, text)) = object.next_entry()?
        {
            found.map.insert(name, text);
        }
        found.more = found.map.len() > MAX;
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// A value as its text.
pub fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    match to_raw_value(value) {
        Ok(text) => text,
        Err(_) => unreachable!("numbers, texts and maps with texts for names have a text"),
    }
}

/// The text with quotes around every key that is a number: a number that a colon follows.
fn with_quotes(text: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(text.len() + text.len() / 4);
    let mut rest = text;
    while let Some(byte) = rest.first() {
        let len = match byte {
            b'"' => string_len(rest),
            b'0'..=b'9' | b'-' => {
                let digits = rest.iter().skip(1).take_while(|b| b.is_ascii_digit());
                1 + digits.count()
            }
            _ => 1,
        };
        let (token, after) = rest.split_at(len);
        let is_number = byte.is_ascii_digit() || *byte == b'-';
        if is_number && after.trim_ascii_start().first() == Some(&b':') {
            quoted.push(b'"');
            quoted.extend(token);
            quoted.push(b'"');
        } else {
            quoted.extend(token);
        }
        rest = after;
    }
    quoted
}

/// Length in bytes of the string at the start of the text, including its quotes.
fn string_len(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_numbers_are_read_with_and_without_quotes() {
        let text = br#"{"a 1:\"2:":{0:5,-1 : 7,"2":-1},"list":[1,2.5e3],"n":12}"#;
        let value = parse(text).unwrap();
        let queues = &value["a 1:\"2:"];
        assert_eq!((&queues["0"], &queues["-1"]), (&5.into(), &7.into()));
        assert_eq!(queues["2"], -1);
        assert_eq!(value["list"][1], 2500.0);
        assert_eq!(value["n"], 12);
    }

    #[test]
    fn of_an_object_with_too_many_members_few_are_kept() {
        let read = |text: &str| serde_json::from_str::<Members<2>>(text).ok();
        let found = read(r#"{"b":[[1], {}] ,"a":"x","b": 7}"#).unwrap();
        assert!(!found.more && found.map.len() == 2);
        assert_eq!((found.map["a"].get(), found.map["b"].get()), ("\"x\"", "7"));
        let found = read(r#"{"a":1,"b":2,"c":3,"d":[4],"e":{"f":5}}"#).unwrap();
        assert!(found.more && found.map.len() == 3);
        assert!(read(r#"{"a":1,"b":2,"c":3,"d"}"#).is_none());
        assert!(read("[1,2]").is_none() && read("").is_none());
        let refused = members::<2>(br#"{"a":1,"b":2,"c":3}"#, "members").unwrap_err();
        assert_eq!(refused, Reason::TooMuch("more than 2 members".to_owned()));
    }

    #[test]
    fn a_text_of_too_many_values_is_no_tree() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(parse(list(1000).as_bytes()).is_some());
        let long = list(VALUES_MAX + 1);
        assert!(parse(long.as_bytes()).is_none() && is_json(long.as_bytes()));
    }

    #[test]
    fn no_text_makes_the_quoting_fail() {
        for text in ["", "\"", "\"\\", "{0", "-", "{\"a\\\":1:2", "1:1:1"] {
            let quoted = with_quotes(text.as_bytes());
            assert!(quoted.len() >= text.len(), "{text}");
        }
    }

    #[test]
    fn names_that_are_bare_numbers_are_json_here() {
        for text in [
            r#"{"offsetTable":{"orders@billing":{0:17,1:3}}}"#,
            "{\"offsetTable\":{\n\t1: 5,\n\t18 :6}}",
            r#"{"a": ["}{\"", 1, {2:"3,4:"}]}"#,
            "{}",
        ] {
            assert!(parse(text.as_bytes()).is_some(), "{text}");
        }
        for text in [
            "",
            "{",
            r#"{"a":{0:17,1:3}"#,
            "{0 17}",
            "\0\0\0",
            r#"{"a:1}"#,
        ] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
