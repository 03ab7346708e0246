//! Columns of text. What leaves is valid UTF-8: anything else becomes U+FFFD.

use super::schema::{Column, header_fields, headers_field, properties_field, property_fields};
use crate::record::layout::CRC_PROPERTY;
use crate::record::{Record, properties};
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, ListArray, MapArray, StringArray, StructArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Topics as numbers into the topics that the batch meets.
#[derive(Default)]
pub(super) struct TopicColumn {
    keys: Vec<i32>,
    names: Vec<String>,
    by_name: HashMap<String, i32, foldhash::fast::RandomState>,
    last: Vec<u8>,
    last_key: i32,
}

impl TopicColumn {
    pub(super) fn append<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) {
        for record in records {
            let topic = record.topic();
            if self.names.is_empty() || topic != self.last {
                self.last_key = self.key(&String::from_utf8_lossy(topic));
                self.last.clear();
                self.last.extend_from_slice(topic);
            }
            self.keys.push(self.last_key);
        }
    }

    fn key(&mut self, name: &str) -> i32 {
        if let Some(key) = self.by_name.get(name) {
            return *key;
        }
        let key = self.names.len() as i32;
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), key);
        key
    }

    pub(super) fn finish(self) -> Result<ArrayRef, ArrowError> {
        let names = Arc::new(StringArray::from(self.names));
        let keys = Int32Array::from(self.keys);
        Ok(Arc::new(DictionaryArray::try_new(keys, names)?))
    }
}

/// The columns that come from a record's properties: one walk fills those that are asked for.
pub(super) struct PropertyColumns {
    keys: Option<StringBuilder>,
    tags: Option<StringBuilder>,
    properties: Option<Properties>,
    headers: Option<Headers>,
}

/// What one record has for [`PropertyColumns`].
#[derive(Default)]
struct Found<'a> {
    keys: Option<&'a [u8]>,
    tags: Option<&'a [u8]>,
    own: Vec<(Cow<'a, str>, &'a [u8])>,
}

impl PropertyColumns {
    pub(super) fn new(columns: &[Column]) -> PropertyColumns {
        let asked = |column| columns.contains(&column);
        PropertyColumns {
            keys: asked(Column::Keys).then(StringBuilder::new),
            tags: asked(Column::Tags).then(StringBuilder::new),
            properties: asked(Column::Properties).then(Properties::default),
            headers: asked(Column::Headers).then(Headers::default),
        }
    }

    /// Whether none of these columns is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_none()
            && self.tags.is_none()
            && self.properties.is_none()
            && self.headers.is_none()
    }

    pub(super) fn append<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) {
        let with_own = self.properties.is_some() || self.headers.is_some();
        let mut found = Found::default();
        for record in records {
            found.read(record.raw_properties(), with_own);
            if let Some(keys) = &mut self.keys {
                keys.append_option(found.keys.map(String::from_utf8_lossy));
            }
            if let Some(tags) = &mut self.tags {
                tags.append_option(found.tags.map(String::from_utf8_lossy));
            }
            if let Some(headers) = &mut self.headers {
                headers.append(&found.own);
            }
            // Last, for it sorts what was found.
            if let Some(properties) = &mut self.properties {
                properties.append(&mut found.own);
            }
        }
    }

    /// The array of one of these columns, which is taken out.
    pub(super) fn finish(&mut self, column: Column) -> Result<ArrayRef, ArrowError> {
        let text = |builder: Option<StringBuilder>| -> ArrayRef {
            Arc::new(builder.unwrap_or_default().finish())
        };
        match column {
            Column::Keys => Ok(text(self.keys.take())),
            Column::Tags => Ok(text(self.tags.take())),
            Column::Headers => self.headers.take().unwrap_or_default().finish(),
            _ => self.properties.take().unwrap_or_default().finish(),
        }
    }
}

impl<'a> Found<'a> {
    fn read(&mut self, raw: &'a [u8], with_own: bool) {
        (self.keys, self.tags) = (None, None);
        self.own.clear();
        for (name, value) in properties::pairs(raw) {
            if name == properties::KEYS.as_bytes() {
                self.keys = Some(value);
            } else if name == properties::TAGS.as_bytes() {
                self.tags = Some(value);
            } else if with_own && name != CRC_PROPERTY.as_bytes() {
                let name = String::from_utf8_lossy(name);
                if !properties::is_reserved(&name) {
                    self.own.push((name, value));
                }
            }
        }
    }
}

/// Ends of lists: one number more than there are lists, the first is 0.
struct Ends(Vec<i32>);

impl Default for Ends {
    fn default() -> Ends {
        Ends(vec![0])
    }
}

impl Ends {
    fn push(&mut self, len: usize) {
        let last = self.0.last().copied().unwrap_or_default();
        self.0.push(last + len as i32);
    }

    fn finish(self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(ScalarBuffer::from(self.0))
    }
}

#[derive(Default)]
struct Properties {
    ends: Ends,
    names: StringBuilder,
    values: StringBuilder,
}

impl Properties {
    /// Adds the last of equal names, in the order of the names.
    fn append(&mut self, own: &mut [(Cow<'_, str>, &[u8])]) {
        own.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut len = 0;
        let mut rest = &*own;
        while let [(name, value), tail @ ..] = rest {
            let repeated = tail.first().is_some_and(|(next, _)| next == name);
            if !repeated {
                self.names.append_value(name);
                self.values.append_value(String::from_utf8_lossy(value));
                len += 1;
            }
            rest = tail;
        }
        self.ends.push(len);
    }

    fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.names.finish()),
            Arc::new(self.values.finish()),
        ];
        let entries = StructArray::try_new(property_fields(), columns, None)?;
        let ends = self.ends.finish();
        let map = MapArray::try_new(properties_field(), ends, entries, None, false)?;
        Ok(Arc::new(map))
    }
}

#[derive(Default)]
struct Headers {
    ends: Ends,
    names: StringBuilder,
    values: BinaryBuilder,
}

impl Headers {
    fn append(&mut self, own: &[(Cow<'_, str>, &[u8])]) {
        for (name, value) in own {
            self.names.append_value(name);
            self.values.append_value(value);
        }
        self.ends.push(own.len());
    }

    fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.names.finish()),
            Arc::new(self.values.finish()),
        ];
        let headers = StructArray::try_new(header_fields(), columns, None)?;
        debug_assert_eq!(headers.null_count(), 0);
        let ends = self.ends.finish();
        let list = ListArray::try_new(headers_field(), ends, Arc::new(headers), None)?;
        Ok(Arc::new(list))
    }
}
