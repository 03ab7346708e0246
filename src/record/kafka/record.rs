//! One record in memory: [in its batch](InBatch), or [`Apart`] from it.

use super::apart::Apart;
use super::entry::Headers;
use super::in_batch::InBatch;
use super::own;
use crate::record::common::{Flaw, Known, Labels};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The places of the parts of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Of a record apart from its batch, relative to its first byte.
    Apart(Apart),
    /// Of a record in its batch.
    InBatch(InBatch),
}

impl Layout {
    /// Bytes of the record, apart from its batch.
    #[inline]
    pub fn total_len(&self) -> u32 {
        match self {
            Layout::Apart(layout) => layout.total_len,
            Layout::InBatch(layout) => layout.total_len,
        }
    }

    /// Where it ends.
    #[inline]
    pub fn end(&self) -> u32 {
        match self {
            Layout::Apart(layout) => layout.total_len,
            Layout::InBatch(layout) => layout.end,
        }
    }

    /// First byte of the value.
    #[inline]
    pub fn value_at(&self) -> u32 {
        match self {
            Layout::Apart(layout) => layout.total_len - layout.value_len,
            Layout::InBatch(layout) => layout.value_at,
        }
    }

    /// Bytes of the value.
    #[inline]
    pub fn value_len(&self) -> u32 {
        match self {
            Layout::Apart(layout) => layout.value_len,
            Layout::InBatch(layout) => layout.value_len,
        }
    }

    /// Bytes of key and headers, at most.
    #[inline]
    pub fn labels_len(&self) -> u32 {
        match self {
            Layout::Apart(layout) => layout.key_len + layout.headers_len,
            Layout::InBatch(layout) => layout.own_len() - layout.value_len,
        }
    }
}

/// One record, read by field.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Record<'a> {
    /// The record whose layout in `bytes` is known.
    ///
    /// # Errors
    ///
    /// [`Flaw::Length`] if there are fewer bytes.
    #[inline]
    pub fn with_layout(bytes: &'a [u8], layout: Layout) -> Result<Record<'a>, Flaw> {
        match bytes.get(..layout.end() as usize) {
            Some(bytes) => Ok(Record { bytes, layout }),
            None => Err(Flaw::Length(i64::from(layout.end()))),
        }
    }

    /// The places of its parts.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All its bytes, apart from its batch.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self.layout {
            Layout::Apart(_) => Cow::Borrowed(self.bytes),
            Layout::InBatch(layout) => Cow::Owned(layout.apart(self.bytes)),
        }
    }

    #[inline]
    fn part(&self, at: usize, len: u32) -> &'a [u8] {
        self.bytes.get(at..at + len as usize).unwrap_or_default()
    }

    /// The topic.
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        match self.layout {
            Layout::Apart(layout) => layout.topic(self.bytes),
            Layout::InBatch(layout) => layout.topic(self.bytes),
        }
    }

    /// The partition.
    #[inline]
    pub fn queue_id(&self) -> i32 {
        let queue = match self.layout {
            Layout::Apart(layout) => layout.queue(self.bytes),
            Layout::InBatch(layout) => layout.queue(self.bytes),
        };
        queue.cast_signed()
    }

    /// Offset in the partition.
    #[inline]
    pub fn queue_offset(&self) -> i64 {
        let offset = match self.layout {
            Layout::Apart(layout) => layout.offset(self.bytes),
            Layout::InBatch(layout) => layout.offset(self.bytes),
        };
        offset.cast_signed()
    }

    /// The byte of the segment file at which the batch begins.
    #[inline]
    pub fn position(&self) -> i64 {
        let position = match self.layout {
            Layout::Apart(layout) => layout.position(self.bytes),
            Layout::InBatch(layout) => layout.position(self.bytes),
        };
        position.cast_signed()
    }

    /// When it was made, or appended, in ms.
    #[inline]
    pub fn timestamp(&self) -> i64 {
        match self.layout {
            Layout::Apart(layout) => layout.timestamp(self.bytes),
            Layout::InBatch(layout) => layout.timestamp(self.bytes),
        }
    }

    /// Whether [`Record::timestamp`] is the time of the append.
    #[inline]
    pub fn has_append_time(&self) -> bool {
        match self.layout {
            Layout::Apart(layout) => layout.has_append_time(),
            Layout::InBatch(layout) => layout.has_append_time(self.bytes),
        }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        match self.layout {
            Layout::Apart(layout) => layout.key(self.bytes),
            Layout::InBatch(layout) => layout.key(self.bytes),
        }
    }

    /// Whether the value is null.
    #[inline]
    pub fn is_null(&self) -> bool {
        match self.layout {
            Layout::Apart(layout) => layout.is_null(),
            Layout::InBatch(layout) => layout.is_null(self.bytes),
        }
    }

    /// The value; empty if it is null.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.part(self.layout.value_at() as usize, self.layout.value_len())
    }

    /// The headers as stored.
    #[inline]
    pub fn raw_headers(&self) -> Headers<'a> {
        match self.layout {
            Layout::Apart(layout) => layout.headers(self.bytes),
            Layout::InBatch(layout) => layout.headers(self.bytes),
        }
    }

    /// Names and values of the headers, in order, without Forebay's [own].
    pub fn headers(&self) -> impl Iterator<Item = (Cow<'a, str>, Option<&'a [u8]>)> + use<'a> {
        let headers = self.raw_headers().iter();
        let own = headers.filter(|(name, _)| !own::is_own(name));
        own.map(|(name, value)| (String::from_utf8_lossy(name), value))
    }

    /// The value of a property, which a header of this name or one of Forebay's [own] holds; of
    /// several, the last one.
    pub fn property(&self, name: &str) -> Option<&'a [u8]> {
        let prefix = own::prefix_of(name);
        let headers = self.raw_headers().iter();
        let named = headers
            .filter(|(found, _)| found.strip_prefix(prefix.as_bytes()) == Some(name.as_bytes()));
        named.last().and_then(|(_, value)| value)
    }

    /// Properties with reserved names.
    pub fn system_properties(&self) -> BTreeMap<String, String> {
        let headers = self.raw_headers().iter();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let system = headers.filter_map(|(name, value)| {
            Some((own::system_property(name)?.to_owned(), text(value?)))
        });
        system.collect()
    }

    /// How often the message was delivered before.
    pub fn reconsume_times(&self) -> i32 {
        let times = self.label(own::RECONSUME_TIMES);
        let times = times.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        times.unwrap_or_default()
    }

    /// Headers that have a value, as text; of equal names the last.
    pub fn properties(&self) -> BTreeMap<String, String> {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = self.headers();
        let valued = headers.filter_map(|(name, value)| Some((name.into_owned(), text(value?))));
        valued.collect()
    }

    /// The keys after the first, separated by one space.
    #[inline]
    pub fn further_keys(&self) -> Option<&'a [u8]> {
        self.label(own::KEYS)
    }

    /// The tag.
    #[inline]
    pub fn tags(&self) -> Option<&'a [u8]> {
        self.label(own::TAGS)
    }

    #[inline]
    fn label(&self, name: &str) -> Option<&'a [u8]> {
        match self.raw_headers().count {
            0 => None,
            _ => self.property(name),
        }
    }

    /// The keys and the tag, by which the record is found.
    #[inline]
    pub fn known(&self) -> Known<'a> {
        Known {
            unique_key: self.key(),
            keys: self.further_keys(),
            tags: self.tags(),
            ..Known::default()
        }
    }

    /// Reads the key and, with `with_own`, the headers.
    #[inline]
    pub fn read_labels(&self, labels: &mut Labels<'a>, with_own: bool) {
        labels.clear();
        labels.keys = self.key();
        if self.raw_headers().count > 0 {
            labels.further_keys = self.further_keys();
            labels.tags = self.tags();
        }
        labels.is_literal = true;
        if with_own {
            labels.own.extend(self.headers());
        }
    }
}
