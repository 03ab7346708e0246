//! The contents of a record in format 2, as they are written: key, value and headers.

use super::own;
use super::varint::{Short, Writer, is_short, short_size, signed, size};
use crate::record::common::Draft;

/// Bytes that the length of a record can take.
pub const LENGTH_MAX: usize = 5;
/// Bytes of key and value of a short record, at most: its length, with at most 10 bytes of numbers,
/// takes two bytes.
const SHORT_MAX: usize = 0x1FFF - 10;

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

    /// Whether a record without headers is short: each of its numbers takes at most two bytes.
    #[inline(always)]
    pub fn is_short(&self, (timestamp, delta): (i64, u32)) -> bool {
        self.header_count == 0
            && is_short(timestamp)
            && is_short(delta.into())
            && self.short_len() <= SHORT_MAX
    }

    /// [`Sizes::len_max`] of a record without headers.
    #[inline(always)]
    pub fn short_len_max(&self) -> usize {
        let empty = Sizes {
            parts_max: 2 * LENGTH_MAX,
            ..Sizes::default()
        };
        empty.len_max() + self.short_len()
    }

    /// Bytes of key and value.
    #[inline(always)]
    fn short_len(&self) -> usize {
        let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        len(self.key()) + len(self.value())
    }

    /// As [`Contents::write`], for a short record, to memory of [`Sizes::len_max`] bytes or more.
    /// Returns its length.
    #[inline(always)]
    pub fn write_short(&self, to: &mut [u8], (timestamp, delta): (i64, u32)) -> usize {
        let room = to.len();
        let (key, value) = (self.key(), self.value());
        let len_of = |part: Option<&[u8]>| part.map_or(-1, |bytes| signed(bytes.len()));
        let (key_len, value_len) = (len_of(key), len_of(value));
        // After the attributes, which are 0.
        let place = Short::of(0)
            .and(Short::of(timestamp))
            .and(Short::of(delta.into()));
        let lens = short_size(key_len) + short_size(value_len);
        // One byte is the number of headers.
        let len = place.size() + lens + self.short_len() + 1;
        let mut to = Writer::new(to);
        to.short(Short::of(signed(len)).and(place));
        match key {
            None => to.short(Short::of(key_len).and(Short::of(value_len))),
            Some(key) => {
                to.short(Short::of(key_len));
                to.put(key);
                to.short(Short::of(value_len));
            }
        }
        to.put(value.unwrap_or_default());
        to.short(Short::of(0));
        room - to.left()
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    /// Lengths at which the sizes of numbers change.
    const LENS: [usize; 8] = [0, 1, 63, 64, 4000, 4085, SHORT_MAX, SHORT_MAX + 1];
    const TIMES: [i64; 8] = [0, -1, 63, 64, -64, -65, 0x1FFF, -0x2000];

    #[test]
    fn short_records_are_written_like_others() {
        let bytes = vec![7; SHORT_MAX + 1];
        let lens = || LENS.into_iter().map(Some).chain([None]);
        let mut count = 0;
        for (key, value) in lens().flat_map(|key| lens().map(move |value| (key, value))) {
            let part = |len: Option<usize>| len.map(|len| bytes.get(..len).unwrap());
            let draft = Draft {
                key: part(key),
                body: part(value).unwrap_or_default(),
                is_null: value.is_none(),
                ..Draft::default()
            };
            let contents = Contents::plain(&draft).unwrap();
            let sizes = contents.sizes();
            assert_eq!(contents.short_len_max(), sizes.len_max());
            let fits = key.unwrap_or(0) + value.unwrap_or(0) <= SHORT_MAX;
            for place in TIMES
                .into_iter()
                .flat_map(|it| [(it, 0), (it, 64), (it, 0x1FFF)])
            {
                assert_eq!(contents.is_short(place), fits);
                if fits {
                    let mut expected = vec![0; sizes.total(place.0, place.1)];
                    contents.write(&mut expected, &sizes, place);
                    let mut written = vec![0xAA; sizes.len_max()];
                    let len = contents.write_short(&mut written, place);
                    assert_eq!(written.get(..len), Some(&*expected));
                    count += 1;
                }
            }
            assert!(!contents.is_short((0x2000, 0)) && !contents.is_short((0, 0x2000)));
        }
        assert!(count > 1000, "{count}");
    }
}
