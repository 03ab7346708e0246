//! The contents of a record in format 2, as they are written: key, value and headers.

use super::own;
use super::varint::{Writer, signed, size};
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
    draft: &'a Draft<'a>,
    /// Its keys after the first one.
    further: Option<&'a str>,
    /// How often it was tried.
    times: Option<&'a str>,
    header_count: usize,
}

impl<'a> Contents<'a> {
    /// The contents of the record of a message. `further`: its keys after the first one. `times`:
    /// how often it was tried.
    pub fn new(
        draft: &'a Draft<'a>,
        further: Option<&'a str>,
        times: Option<&'a str>,
    ) -> Contents<'a> {
        let labels = [draft.tags, further, times];
        Contents {
            draft,
            further,
            times,
            header_count: draft.properties.len()
                + draft.headers.len()
                + draft.system_properties.len()
                + labels.iter().flatten().count(),
        }
    }

    /// [`Contents::new`] of a message without headers, if its record needs none.
    #[inline]
    pub fn plain(draft: &'a Draft<'a>) -> Option<Contents<'a>> {
        let lists = draft.properties.len() | draft.headers.len() | draft.system_properties.len();
        let is_plain = lists | draft.further_keys().len() == 0
            && draft.tags.is_none()
            && draft.reconsume_times <= 0;
        is_plain.then_some(Contents {
            draft,
            further: None,
            times: None,
            header_count: 0,
        })
    }

    /// The message.
    #[inline]
    pub fn draft(&self) -> &'a Draft<'a> {
        self.draft
    }

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

    /// The lengths of its parts.
    #[inline(always)]
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        sizes.add(self.key());
        sizes.add(self.value());
        sizes.count = self.header_count;
        if sizes.count > 0 {
            for header in self.headers() {
                sizes.add_len(header.name_len());
                sizes.add(header.value);
            }
        }
        sizes
    }

    /// Writes the record, of [`Sizes::total`] bytes with its length.
    #[inline(always)]
    pub fn write(&self, to: &mut [u8], sizes: &Sizes, (timestamp, delta): (i64, u32)) {
        let mut to = Writer::new(to);
        to.number(signed(sizes.len(timestamp, delta)));
        to.number(0);
        to.number(timestamp);
        to.number(i64::from(delta));
        to.nullable(self.key());
        to.nullable(self.value());
        to.number(signed(sizes.count));
        if sizes.count > 0 {
            for header in self.headers() {
                to.number(signed(header.name_len()));
                to.put(header.prefix.as_bytes());
                to.put(header.name.as_bytes());
                to.nullable(header.value);
            }
        }
        debug_assert!(to.is_full(), "a record is as long as its sizes say");
    }
}

/// The lengths of those parts of a record that do not depend on its place in a batch.
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
    #[inline(always)]
    fn add(&mut self, part: Option<&[u8]>) {
        match part {
            None => {
                self.parts += 1;
                self.parts_max += LENGTH_MAX;
            }
            Some(bytes) => self.add_len(bytes.len()),
        }
    }

    #[inline(always)]
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

    /// Bytes of the record with its length.
    #[inline]
    pub fn total(&self, timestamp: i64, delta: u32) -> usize {
        let len = self.len(timestamp, delta);
        size(signed(len)) + len
    }
}

/// The keys after the first one, as one text.
#[inline]
pub fn further_keys(draft: &Draft<'_>) -> Option<String> {
    match draft.further_keys() {
        [] => None,
        further => Some(further.join(" ")),
    }
}

/// How often the message was tried, as a text; `None` if never.
#[inline]
pub fn times_text(draft: &Draft<'_>) -> Option<String> {
    (draft.reconsume_times > 0).then(|| draft.reconsume_times.to_string())
}
