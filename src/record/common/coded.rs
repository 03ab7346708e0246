//! Codes values that Kafka keeps but properties cannot hold: null values, and keys and headers that
//! are not text. They are stored in ordinary properties whose names begin with [`PREFIX`].
//!
//! | property | value | meaning |
//! |---|---|---|
//! | `FOREBAY_KEY` | `base64` | the key is what `KEYS` holds in base64 |
//! | | `empty` | the key is empty; there are no `KEYS` |
//! | `FOREBAY_VALUE` | `null` | the value is null; the body is empty |
//! | `FOREBAY_HEADER_<n>` | `<name>:<value>` | header `n` of the message, from 0 |
//!
//! Name and value of a header are in base64; a null value is `-`. Base64 is that of RFC 4648,
//! section 4, with padding. A message whose key, value and headers are text has none of these
//! properties.

use super::check::{flaw_of_property, is_key};
use super::names::DEAD_REASON;
use std::borrow::Cow;
use std::fmt::Write;

/// Beginning of the names.
pub const PREFIX: &str = "FOREBAY_";
/// Property that describes the key.
pub const KEY: &str = "FOREBAY_KEY";
/// The key is the base64 text in `KEYS`.
pub const KEY_BASE64: &str = "base64";
/// The key is empty.
pub const KEY_EMPTY: &str = "empty";
/// Property that describes the value.
pub const VALUE: &str = "FOREBAY_VALUE";
/// The value is null.
pub const VALUE_NULL: &str = "null";

/// Prefix of the properties for headers; the number of the header follows.
const HEADER: &str = "FOREBAY_HEADER_";
/// A header whose value is null.
const HEADER_NULL: &str = "-";
/// Separates name and value of a header.
const HEADER_SEPARATOR: char = ':';

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A header: its name, and its value or null.
pub type Header<'a> = (Cow<'a, str>, Option<Cow<'a, [u8]>>);

/// Text that stands for values that are not text.
#[derive(Debug, Default)]
pub struct Coded {
    /// The key; empty if there is none.
    pub key: String,
    /// The properties that say how to read it, null values and headers.
    pub properties: Vec<(String, String)>,
}

impl Coded {
    /// For a message with this key, unless it is [plain](plain_key), and this value.
    pub fn new(key: Option<&[u8]>, is_null: bool) -> Coded {
        let mut made = Coded::default();
        let mut tell = |name: &str, value: &str| {
            made.properties.push((name.to_owned(), value.to_owned()));
        };
        match key {
            Some([]) => tell(KEY, KEY_EMPTY),
            Some(_) => tell(KEY, KEY_BASE64),
            None => {}
        }
        if is_null {
            tell(VALUE, VALUE_NULL);
        }
        made.key = key.map(base64).unwrap_or_default();
        made
    }

    /// Adds header `number` of the message, counted from 0, unless it is [plain](plain_header).
    pub fn add_header(&mut self, number: usize, name: &[u8], value: Option<&[u8]>) {
        if plain_header(name, value).is_none() {
            self.properties.push(header(number, name, value));
        }
    }
}

/// The key, if the index can hold it unchanged.
#[inline]
pub fn plain_key(key: &[u8]) -> Option<&str> {
    str::from_utf8(key).ok().filter(|text| is_key(text))
}

/// The header, if a property can hold it unchanged.
#[inline]
pub fn plain_header<'a>(name: &'a [u8], value: Option<&'a [u8]>) -> Option<(&'a str, &'a str)> {
    let (name, value) = (str::from_utf8(name).ok()?, str::from_utf8(value?).ok()?);
    // Dead letters of both engines have their reason under one name, by which readers look for it.
    let may_code = name.starts_with(PREFIX) && name != DEAD_REASON;
    let is_plain = flaw_of_property(name, value).is_none() && !may_code;
    is_plain.then_some((name, value))
}

/// Encodes bytes in base64.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    put_base64(bytes, &mut text);
    text
}

fn put_base64(bytes: &[u8], text: &mut String) {
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let number = (bits >> (18 - 6 * digit)) as usize & 63;
            let known = ALPHABET.get(number).copied().unwrap_or_default();
            text.push(if digit <= group.len() {
                char::from(known)
            } else {
                '='
            });
        }
    }
}

/// Decodes base64; `None` if the text is invalid.
pub fn of_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (groups, []) = text.as_chunks::<4>() else {
        return None;
    };
    for (index, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|it| **it == b'=').count();
        if padding > 2 || (padding > 0 && index + 1 < groups.len()) {
            return None;
        }
        let mut bits = 0;
        for digit in group.iter().take(4 - padding) {
            bits = bits << 6 | u32::from(digit_of(*digit)?);
        }
        bits <<= 6 * padding;
        let [_, decoded @ ..] = bits.to_be_bytes();
        bytes.extend(decoded.iter().take(3 - padding));
    }
    Some(bytes)
}

fn digit_of(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// The property for a header: its name and value.
pub fn header(number: usize, name: &[u8], value: Option<&[u8]>) -> (String, String) {
    let mut text = base64(name);
    text.push(HEADER_SEPARATOR);
    match value {
        Some(value) => put_base64(value, &mut text),
        None => text.push_str(HEADER_NULL),
    }
    let mut property = HEADER.to_owned();
    // Writing to text does not fail.
    let _ = write!(property, "{number}");
    (property, text)
}

/// The number of the header that a property codes, and the header; `None` if it codes none.
fn of_header<'a>(property: &str, text: &[u8]) -> Option<(usize, Header<'a>)> {
    let number = property.strip_prefix(HEADER)?.parse().ok()?;
    let mut parts = text.split(|byte| *byte == HEADER_SEPARATOR as u8);
    let (name, value) = (parts.next()?, parts.next()?);
    let name = String::from_utf8_lossy(&of_base64(name)?).into_owned();
    let value = match value == HEADER_NULL.as_bytes() {
        true => None,
        false => Some(Cow::Owned(of_base64(value)?)),
    };
    parts
        .next()
        .is_none()
        .then_some((number, (name.into(), value)))
}

/// The headers that these properties code, in their original order.
pub fn headers<'a>(properties: &'a [(Cow<'a, str>, Option<&'a [u8]>)]) -> Vec<Header<'a>> {
    let (mut found, mut coded) = (Vec::with_capacity(properties.len()), Vec::new());
    for (name, value) in properties {
        let value = value.unwrap_or_default();
        let known = match name.strip_prefix(PREFIX) {
            None => None,
            Some("KEY") if is_form_of_key(value) => continue,
            Some("VALUE") if value == VALUE_NULL.as_bytes() => continue,
            Some(_) => of_header(name, value),
        };
        match known {
            Some(header) => coded.push(header),
            None => found.push((Cow::Borrowed(&**name), Some(Cow::Borrowed(value)))),
        }
    }
    coded.sort_by_key(|(number, _)| *number);
    for (number, header) in coded {
        found.insert(number.min(found.len()), header);
    }
    found
}

fn is_form_of_key(form: &[u8]) -> bool {
    form == KEY_BASE64.as_bytes() || form == KEY_EMPTY.as_bytes()
}

/// The key of a record, from its first stored key and the value of [`KEY`].
pub fn key<'a>(stored: Option<&'a [u8]>, form: Option<&[u8]>) -> Option<Cow<'a, [u8]>> {
    match (stored, form) {
        (Some(stored), Some(form)) if form == KEY_BASE64.as_bytes() => {
            Some(of_base64(stored).map_or(Cow::Borrowed(stored), Cow::Owned))
        }
        (None, Some(form)) if form == KEY_EMPTY.as_bytes() => Some(Cow::Borrowed(&[])),
        (stored, _) => stored.map(Cow::Borrowed),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let known = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (len, text) in known.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..len]), text);
        }
        assert_eq!(base64(&[0xFB, 0xFF]), "+/8=");
        for wrong in [
            "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Z=g=", "Zm9-", "Zm 9", "Zm9v=",
        ] {
            assert_eq!(of_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(crate::seeds::proptest_config())]

        #[test]
        fn bytes_survive_base64(bytes: Vec<u8>) {
            prop_assert_eq!(of_base64(base64(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn any_text_is_base64_or_is_not(text: Vec<u8>) {
            let _ = of_base64(&text);
            let _ = of_header("FOREBAY_HEADER_0", &text);
        }
    }

    #[test]
    fn a_dead_letter_has_its_reason_in_the_clear() {
        let plain = |name: &'static str, value| plain_header(name.as_bytes(), Some(value));
        let reason = ("FOREBAY_REASON", "no such order");
        assert_eq!(plain(reason.0, b"no such order"), Some(reason));
        assert_eq!(plain(reason.0, b""), None);
        for name in [KEY, VALUE, "FOREBAY_HEADER_0", "FOREBAY_TAGS"] {
            assert_eq!(plain(name, b"no such order"), None, "{name}");
        }
        let stored = [(Cow::Borrowed(reason.0), Some(reason.1.as_bytes()))];
        let found = headers(&stored);
        assert_eq!(&*found[0].0, reason.0);
        assert_eq!(found[0].1.as_deref(), Some(reason.1.as_bytes()));
    }

    #[test]
    fn headers_keep_their_places_and_what_is_none_of_ours_stays() {
        let (first, second) = (header(0, b"", None), header(2, b"KEYS", Some(&[0xFF])));
        let owned: Vec<(String, String)> = vec![
            ("plain".into(), "1".into()),
            ("FOREBAY_KEY".into(), "base64".into()),
            ("FOREBAY_VALUE".into(), "null".into()),
            ("FOREBAY_VALUE".into(), "other".into()),
            second,
            first,
            ("FOREBAY_HEADER_x".into(), ":".into()),
            (
                "FOREBAY_HEADER_18446744073709551615".into(),
                "YQ==:Yg==".into(),
            ),
        ];
        let stored: Vec<(Cow<'_, str>, Option<&[u8]>)> = owned
            .iter()
            .map(|(name, value)| (Cow::Borrowed(name.as_str()), Some(value.as_bytes())))
            .collect();
        let found = headers(&stored);
        let found: Vec<(&str, Option<&[u8]>)> = found
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
            .collect();
        assert_eq!(
            found,
            [
                ("", None),
                ("plain", Some(&b"1"[..])),
                ("KEYS", Some(&[0xFF])),
                ("FOREBAY_VALUE", Some(b"other")),
                ("FOREBAY_HEADER_x", Some(b":")),
                ("a", Some(b"b")),
            ]
        );
    }
}
