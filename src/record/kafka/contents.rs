//! The contents of a record in format 2, as they are written: key, value and headers.

use super::own;
use super::varint::{Numbers, put, put_bytes, signed, size};
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

    /// The lengths of its parts.
    #[inline]
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        sizes.add(self.key());
        sizes.add(self.value());
        sizes.count = self.header_count();
        if sizes.count > 0 {
            for header in self.headers() {
                sizes.add_len(header.name_len());
                sizes.add(header.value);
            }
        }
        sizes
    }

    /// Writes the record, with its length.
    #[inline]
    pub fn write(&self, to: &mut Vec<u8>, sizes: &Sizes, (timestamp, delta): (i64, u32)) {
        let len = sizes.len(timestamp, delta);
        to.reserve(LENGTH_MAX + len);
        let mut head = Numbers::default();
        head.put(signed(len));
        head.put(0);
        head.put(timestamp);
        head.put(i64::from(delta));
        head.put(self.key().map_or(-1, |key| signed(key.len())));
        to.extend_from_slice(head.bytes());
        to.extend_from_slice(self.key().unwrap_or_default());
        put_bytes(to, self.value());
        put(to, signed(sizes.count));
        if sizes.count > 0 {
            for header in self.headers() {
                put(to, signed(header.name_len()));
                to.extend_from_slice(header.prefix.as_bytes());
                to.extend_from_slice(header.name.as_bytes());
                put_bytes(to, header.value);
            }
        }
    }
}

/// The lengths of the parts of a record: all that its place in a batch does not change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Bytes of key, value and headers, each with its length.
    parts: usize,
    /// The same, if each length took [`LENGTH_MAX`].
    parts_max: usize,
    /// Number of headers.
    count: usize,
}

impl Sizes {
    #[inline]
    fn add(&mut self, part: Option<&[u8]>) {
        match part {
            None => {
                self.parts += 1;
                self.parts_max += LENGTH_MAX;
            }
            Some(bytes) => self.add_len(bytes.len()),
        }
    }

    #[inline]
    fn add_len(&mut self, len: usize) {
        self.parts += size(signed(len)) + len;
        self.parts_max += LENGTH_MAX + len;
    }

    /// Bytes of the record after its length, at most.
    #[inline]
    pub fn len_max(&self) -> usize {
        // Attributes, time, offset, and the number of headers.
        1 + 10 + LENGTH_MAX + LENGTH_MAX + self.parts_max
    }

    /// Bytes of the record after its length.
    #[inline]
    pub fn len(&self, timestamp: i64, delta: u32) -> usize {
        let count = size(signed(self.count));
        1 + size(timestamp) + size(i64::from(delta)) + count + self.parts
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
