//! Reads keys, tag and properties of a record.

use super::layout::{CRC_LEN, CRC_PROPERTY, Record};
use super::properties::{self, KEYS, TAGS};
use crate::record::common::names::{NAME_END, VALUE_END, is_reserved};
use crate::record::common::{Known, Labels, PropertyKind, coded};
use std::borrow::Cow;
use std::collections::BTreeMap;

impl<'a> Record<'a> {
    /// The properties by which the record is found, in one walk.
    #[inline]
    pub fn known(&self) -> Known<'a> {
        Known::read(self.raw_properties())
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Cow<'a, str>> {
        let keys = properties::find(self.raw_properties(), KEYS.as_bytes());
        let parts = keys.unwrap_or_default().split(|byte| *byte == b' ');
        parts
            .filter(|key| !key.is_empty())
            .map(String::from_utf8_lossy)
            .collect()
    }

    /// The tag.
    pub fn tags(&self) -> Option<Cow<'a, str>> {
        let tags = properties::find(self.raw_properties(), TAGS.as_bytes());
        tags.map(String::from_utf8_lossy)
    }

    /// The user's properties in stored order; the values as bytes.
    pub fn headers(&self) -> impl Iterator<Item = (Cow<'a, str>, &'a [u8])> + use<'a> {
        let named = properties::pairs(self.raw_properties());
        let named = named.map(|(name, value)| (String::from_utf8_lossy(name), value));
        named.filter(|(name, _)| !is_reserved(name))
    }

    /// The user's properties, or the system's, which have reserved names. Without keys, tags and
    /// checksum.
    pub fn properties(&self, which: PropertyKind) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for (name, value) in properties::pairs(self.raw_properties()) {
            let name = String::from_utf8_lossy(name);
            let system = is_reserved(&name);
            if system == (which == PropertyKind::System)
                && !matches!(&*name, KEYS | TAGS | CRC_PROPERTY)
            {
                let value = String::from_utf8_lossy(value).into_owned();
                found.insert(name.into_owned(), value);
            }
        }
        found
    }

    /// Reads keys, tag and, with `with_own`, the user's properties.
    pub fn read_labels(&self, labels: &mut Labels<'a>, with_own: bool) {
        labels.clear();
        for (name, value) in properties::pairs(without_checksum(self.raw_properties())) {
            if name == KEYS.as_bytes() {
                labels.keys = Some(value);
            } else if name == TAGS.as_bytes() {
                labels.tags = Some(value);
            } else if name != CRC_PROPERTY.as_bytes() {
                if name == coded::KEY.as_bytes() {
                    labels.form = Some(value);
                }
                if !with_own {
                    continue;
                }
                let name = String::from_utf8_lossy(name);
                if !is_reserved(&name) {
                    labels.own.push((name, Some(value)));
                }
            }
        }
    }

    /// Whether the value is null. Reads the properties only if the body is empty.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.stored_body().is_empty()
            && properties::find(self.raw_properties(), coded::VALUE.as_bytes())
                == Some(coded::VALUE_NULL.as_bytes())
    }
}

/// The properties without the whole-record checksum at their end, which need not be searched.
#[inline]
fn without_checksum(raw: &[u8]) -> &[u8] {
    match raw.split_last_chunk::<CRC_LEN>() {
        Some((rest, tail))
            if tail.starts_with(CRC_PROPERTY.as_bytes())
                && tail.get(CRC_PROPERTY.len()) == Some(&NAME_END)
                && tail.last() == Some(&VALUE_END)
                && rest.last().is_none_or(|byte| *byte == VALUE_END) =>
        {
            rest
        }
        _ => raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_checksum_that_ends_the_properties_and_stands_alone_is_cut() {
        let cut =
            |raw: &[u8]| String::from_utf8(without_checksum(raw).to_vec()).unwrap_or_default();
        assert_eq!(cut(b"__CRC32#\x010123456789\x02"), "");
        assert_eq!(cut(b"a\x01b\x02__CRC32#\x010123456789\x02"), "a\x01b\x02");
        let glued = "a\x01b__CRC32#\x010123456789\x02";
        assert_eq!(cut(glued.as_bytes()), glued);
        let inside = "__CRC32#\x010123456789\x02a\x01b\x02";
        assert_eq!(cut(inside.as_bytes()), inside);
        assert_eq!(cut(b"\x02"), "\x02");
    }
}
