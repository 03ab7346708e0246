//! The contents of a record in format 2, as they are written: key, value and headers.

use super::own;
use super::varint::{put, put_bytes, signed, size};
use crate::record::common::Draft;

/// Bytes that the length of a record can take.
pub const LENGTH_MAX: usize = 5;

/// One header. Its name has two parts.
#[derive(Clone, Copy)]
struct HeaderParts<'a> {
    prefix: &'static str,
    name: &'a str,
    value: Option<&'a [u8]>,
}

impl<'a> HeaderParts<'a> {
    fn of_user(name: &'a str, value: Option<&'a [u8]>) -> HeaderParts<'a> {
        HeaderParts {
            prefix: "",
            name,
            value,
        }
    }

    fn of_system(name: &'a str, value: &'a str) -> HeaderParts<'a> {
        HeaderParts {
            prefix: own::prefix_of(name),
            name,
            value: Some(value.as_bytes()),
        }
    }

    fn name_len(&self) -> usize {
        self.prefix.len() + self.name.len()
    }
}

/// The contents of one record.
pub struct Contents<'a> {
    /// The message.
    pub draft: &'a Draft<'a>,
    /// Its keys after the first one.
    pub further: Option<&'a str>,
    /// How often it was tried.
    pub times: Option<&'a str>,
}

impl<'a> Contents<'a> {
    #[inline]
    fn key(&self) -> Option<&'a [u8]> {
        self.draft.first_key()
    }

    #[inline]
    fn value(&self) -> Option<&'a [u8]> {
        (!self.draft.is_null).then_some(self.draft.body)
    }

    fn headers(&self) -> impl Iterator<Item = HeaderParts<'a>> + use<'a> {
        let draft = self.draft;
        let text =
            |(name, value): (&'a str, &'a str)| HeaderParts::of_user(name, Some(value.as_bytes()));
        let bytes = |(name, value): (&'a str, Option<&'a [u8]>)| HeaderParts::of_user(name, value);
        let own = draft.properties.iter().copied().map(text);
        let own = own.chain(draft.headers.iter().copied().map(bytes));
        let system = draft.system_properties.iter().copied();
        let labels = [
            (own::TAGS, draft.tags),
            (own::KEYS, self.further),
            (own::RECONSUME_TIMES, self.times),
        ];
        let labels = labels
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        own.chain(
            system
                .chain(labels)
                .map(|(name, value)| HeaderParts::of_system(name, value)),
        )
    }

    fn header_count(&self) -> usize {
        let draft = self.draft;
        draft.properties.len()
            + draft.headers.len()
            + draft.system_properties.len()
            + usize::from(draft.tags.is_some())
            + usize::from(self.further.is_some())
            + usize::from(self.times.is_some())
    }

    /// Bytes of the record after its length, at most.
    pub fn len_max(&self) -> usize {
        let part = |part: Option<&[u8]>| LENGTH_MAX + part.map_or(0, <[u8]>::len);
        let header = |it: HeaderParts<'_>| LENGTH_MAX + it.name_len() + part(it.value);
        let headers = match self.header_count() {
            0 => 0,
            _ => self.headers().map(header).sum(),
        };
        // Attributes, time, offset, and the number of headers.
        1 + 10 + LENGTH_MAX + part(self.key()) + part(self.value()) + LENGTH_MAX + headers
    }

    /// Writes the record, with its length.
    pub fn write(&self, to: &mut Vec<u8>, timestamp: i64, delta: u32) {
        let len = self.len(timestamp, delta);
        put(to, signed(len));
        to.push(0);
        put(to, timestamp);
        put(to, i64::from(delta));
        put_bytes(to, self.key());
        put_bytes(to, self.value());
        put(to, signed(self.header_count()));
        for header in self.headers() {
            put(to, signed(header.name_len()));
            to.extend_from_slice(header.prefix.as_bytes());
            to.extend_from_slice(header.name.as_bytes());
            put_bytes(to, header.value);
        }
    }

    /// Bytes of the record after its length.
    pub fn len(&self, timestamp: i64, delta: u32) -> usize {
        let part = |part: Option<&[u8]>| match part {
            None => 1,
            Some(bytes) => size(signed(bytes.len())) + bytes.len(),
        };
        let header =
            |it: HeaderParts<'_>| size(signed(it.name_len())) + it.name_len() + part(it.value);
        let count = self.header_count();
        let headers = match count {
            0 => 0,
            _ => self.headers().map(header).sum(),
        };
        let numbers = size(timestamp) + size(i64::from(delta)) + size(signed(count));
        1 + numbers + part(self.key()) + part(self.value()) + headers
    }
}

/// The keys after the first one, as one text.
pub fn further_keys(draft: &Draft<'_>) -> Option<String> {
    match draft.further_keys() {
        [] => None,
        further => Some(further.join(" ")),
    }
}

/// How often the message was tried, as a text; `None` if never.
pub fn times_text(draft: &Draft<'_>) -> Option<String> {
    (draft.reconsume_times > 0).then(|| draft.reconsume_times.to_string())
}
