//! Columns of text. They are always valid UTF-8: anything else becomes U+FFFD.

use super::offsets::offset;
use super::schema::{
    Column, Dialect, header_fields, headers_field, properties_field, property_fields,
};
use crate::record::{Labels, Row, coded};
use arrow_array::builder::{BinaryBuilder, NullBufferBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, ListArray, MapArray, StringArray, StructArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Topics as indices into the topics found in the batch.
#[derive(Default)]
pub(super) struct TopicColumn {
    keys: Vec<i32>,
    names: Vec<String>,
    by_name: HashMap<String, i32, foldhash::fast::RandomState>,
    last: Vec<u8>,
    last_key: i32,
}

impl TopicColumn {
    pub(super) fn append<'a>(&mut self, records: impl Iterator<Item = Row<'a>>) {
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
        let key = offset(self.names.len());
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

/// Topics as plain text.
#[derive(Default)]
pub(super) struct TopicTexts {
    texts: StringBuilder,
    last: Vec<u8>,
    last_text: String,
}

impl TopicTexts {
    pub(super) fn append<'a>(&mut self, records: impl Iterator<Item = Row<'a>>) {
        for record in records {
            let topic = record.topic();
            if topic != self.last {
                self.last_text = String::from_utf8_lossy(topic).into_owned();
                self.last.clear();
                self.last.extend_from_slice(topic);
            }
            self.texts.append_value(&self.last_text);
        }
    }

    pub(super) fn finish(mut self) -> ArrayRef {
        Arc::new(self.texts.finish())
    }
}

/// The columns that come from a record's properties. One walk fills the requested ones.
pub(super) struct PropertyColumns {
    key: Option<BinaryBuilder>,
    keys: Option<StringBuilder>,
    tags: Option<StringBuilder>,
    properties: Option<Properties>,
    headers: Option<Headers>,
}

impl PropertyColumns {
    pub(super) fn new(columns: &[Column], dialect: Dialect) -> PropertyColumns {
        let asked = |column| columns.contains(&column);
        PropertyColumns {
            key: asked(Column::Key).then(BinaryBuilder::new),
            keys: asked(Column::Keys).then(StringBuilder::new),
            tags: asked(Column::Tags).then(StringBuilder::new),
            properties: asked(Column::Properties).then(Properties::default),
            headers: asked(Column::Headers).then(|| Headers::new(dialect)),
        }
    }

    /// Whether none of these columns is requested.
    pub(super) fn is_empty(&self) -> bool {
        self.key.is_none()
            && self.keys.is_none()
            && self.tags.is_none()
            && self.properties.is_none()
            && self.headers.is_none()
    }

    pub(super) fn append<'a>(&mut self, records: impl Iterator<Item = Row<'a>>) {
        let with_own = self.properties.is_some() || self.headers.is_some();
        let mut found = Labels::default();
        for record in records {
            record.read_labels(&mut found, with_own);
            if let Some(key) = &mut self.key {
                key.append_option(found.key());
            }
            if let Some(keys) = &mut self.keys {
                keys.append_option(found.all_keys());
            }
            if let Some(tags) = &mut self.tags {
                tags.append_option(found.tags.map(String::from_utf8_lossy));
            }
            if let Some(headers) = &mut self.headers {
                headers.append(&found);
            }
            // Done last because it sorts the found properties.
            if let Some(properties) = &mut self.properties {
                properties.append(&mut found.own);
            }
        }
    }

    /// Takes out the array of one of these columns.
    pub(super) fn finish(&mut self, column: Column) -> Result<ArrayRef, ArrowError> {
        let text = |builder: Option<StringBuilder>| -> ArrayRef {
            Arc::new(builder.unwrap_or_default().finish())
        };
        match column {
            Column::Key => Ok(Arc::new(self.key.take().unwrap_or_default().finish())),
            Column::Keys => Ok(text(self.keys.take())),
            Column::Tags => Ok(text(self.tags.take())),
            Column::Headers => self.headers.take().unwrap_or_default().finish(),
            _ => self.properties.take().unwrap_or_default().finish(),
        }
    }
}

/// Ends of lists. The first number is 0, then there is one per list.
struct Ends(Vec<i32>);

impl Default for Ends {
    fn default() -> Ends {
        Ends(vec![0])
    }
}

impl Ends {
    fn push(&mut self, len: usize) {
        let last = self.0.last().copied().unwrap_or_default();
        self.0.push(last + offset(len));
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
    /// Adds the properties that have a value, sorted by name; of equal names the last.
    fn append(&mut self, own: &mut Vec<(Cow<'_, str>, Option<&[u8]>)>) {
        own.retain(|(_, value)| value.is_some());
        own.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut len = 0;
        let mut rest = own.as_slice();
        while let [(name, value), tail @ ..] = rest {
            let repeated = tail.first().is_some_and(|(next, _)| next == name);
            if !repeated {
                self.names.append_value(name);
                self.values
                    .append_value(String::from_utf8_lossy(value.unwrap_or_default()));
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
    /// If set, an empty list of headers becomes null.
    nulls: Option<NullBufferBuilder>,
}

impl Headers {
    fn new(dialect: Dialect) -> Headers {
        Headers {
            nulls: (dialect == Dialect::Spark).then(|| NullBufferBuilder::new(0)),
            ..Headers::default()
        }
    }

    fn append(&mut self, labels: &Labels<'_>) {
        let own = &labels.own;
        let mut len = own.len();
        // Forebay's own dialect shows headers as stored.
        let may_be_coded = self.nulls.is_some() && !labels.is_literal;
        if may_be_coded && own.iter().any(|(name, _)| name.starts_with(coded::PREFIX)) {
            let headers = coded::headers(own);
            len = headers.len();
            for (name, value) in headers {
                self.names.append_value(name);
                self.values.append_option(value);
            }
        } else {
            for (name, value) in own {
                self.names.append_value(name);
                self.values.append_option(*value);
            }
        }
        self.ends.push(len);
        if let Some(nulls) = &mut self.nulls {
            nulls.append(len > 0);
        }
    }

    fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.names.finish()),
            Arc::new(self.values.finish()),
        ];
        let headers = StructArray::try_new(header_fields(), columns, None)?;
        debug_assert_eq!(headers.null_count(), 0);
        let ends = self.ends.finish();
        let nulls = self.nulls.and_then(|mut nulls| nulls.finish());
        let list = ListArray::try_new(headers_field(), ends, Arc::new(headers), nulls)?;
        Ok(Arc::new(list))
    }
}
