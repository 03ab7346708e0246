//! Record batches of a Spark sink: each row becomes a message, and may name its topic.
//!
//! | column | types | |
//! |---|---|---|
//! | `value` | bytes | null: an empty body, marked as null |
//! | `key` | bytes | one key |
//! | `topic` | bytes | ignored if all rows go to one topic |
//! | `partition` | integers | the queue; null: as without the column |
//! | `headers` | list of structs with two fields, map | bytes to bytes or null; properties |
//! | `timestamp` | timestamp | when the message was made |
//! | `tags` | bytes | |
//!
//! *Bytes* are as in [`super::import`]. The columns are those of Spark's Kafka sink, plus `tags`.
//! Null values, and keys and headers that a property cannot hold, are [`coded`].

use super::import::is_properties;
use super::rows::{Properties, known, queue, word};
use super::values::{Bytes, Integers, Times, is_bytes};
use crate::error::{Error, Result};
use crate::record::Draft;
use crate::record::coded::{Coded, plain_header, plain_key};
use arrow_array::RecordBatch;
use arrow_schema::DataType;
use std::cell::OnceCell;

/// The columns of one batch, for reading by row.
pub struct SinkRows<'a> {
    value: Bytes<'a>,
    key: Option<Bytes<'a>>,
    topic: Option<Bytes<'a>>,
    partition: Option<Integers<'a>>,
    headers: Option<Properties<'a>>,
    timestamp: Option<Times<'a>>,
    tags: Option<Bytes<'a>>,
    /// The coded values of each row that was read.
    coded: Vec<OnceCell<Coded>>,
}

impl<'a> SinkRows<'a> {
    /// The columns of a batch.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a column that is unknown, missing, repeated or of a wrong type.
    pub fn new(batch: &'a RecordBatch) -> Result<SinkRows<'a>> {
        let schema = batch.schema_ref();
        for (place, field) in schema.fields().iter().enumerate() {
            let name = field.name();
            if schema.fields().iter().take(place).any(|f| f.name() == name) {
                return Err(wrong(name, "listed twice"));
            }
            check(name, field.data_type())?;
        }
        let column = |name: &str| {
            let (at, field) = schema.column_with_name(name)?;
            let array = batch.columns().get(at)?.as_ref();
            (*field.data_type() != DataType::Null).then_some(array)
        };
        let value = column("value").and_then(Bytes::new);
        Ok(SinkRows {
            value: value.ok_or_else(|| wrong("value", "this column is required"))?,
            key: column("key").and_then(Bytes::new),
            topic: column("topic").and_then(Bytes::new),
            partition: column("partition").and_then(Integers::new),
            headers: column("headers").and_then(Properties::new),
            timestamp: column("timestamp").and_then(Times::new),
            tags: column("tags").and_then(Bytes::new),
            coded: std::iter::repeat_with(OnceCell::new)
                .take(batch.num_rows())
                .collect(),
        })
    }

    /// The topic that a row names.
    #[inline]
    pub fn topic(&self, row: usize) -> Result<Option<&'a str>> {
        word("topic", self.topic.as_ref(), row)
    }

    /// The message of a row. `keys` and `headers` must be empty; the message borrows from them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a row that cannot be a message.
    #[inline]
    pub fn draft<'r, 'b>(
        &'r self,
        row: usize,
        keys: &'b mut Vec<&'r str>,
        headers: &'b mut Vec<(&'r str, &'r str)>,
    ) -> Result<Draft<'b>>
    where
        'r: 'b,
    {
        let value = known("value", self.value.get(row))?;
        let key = self.key.as_ref().map(|column| column.get(row));
        let key = known("key", key.unwrap_or(Ok(None)))?;
        let plain = key.and_then(plain_key);
        keys.extend(plain);
        let all_plain = self.plain_headers(row, headers)?;
        if value.is_none() || plain.is_some() != key.is_some() || !all_plain {
            let coded = self.code(row, key.filter(|_| plain.is_none()), value.is_none())?;
            keys.extend(Some(coded.key.as_str()).filter(|key| !key.is_empty()));
            let pairs = coded.properties.iter();
            headers.extend(pairs.map(|(name, value)| (name.as_str(), value.as_str())));
        }
        let queue = match &self.partition {
            Some(column) => queue("partition", column, row)?,
            None => None,
        };
        let born_timestamp = match &self.timestamp {
            Some(column) => known("timestamp", column.get(row))?,
            None => None,
        };
        Ok(Draft {
            body: value.unwrap_or_default(),
            keys,
            tags: word("tags", self.tags.as_ref(), row)?,
            properties: headers,
            queue,
            born_timestamp,
            ..Draft::default()
        })
    }

    /// Adds the headers of a row that properties can hold unchanged. Returns whether all can.
    #[inline]
    fn plain_headers<'r>(
        &'r self,
        row: usize,
        headers: &mut Vec<(&'r str, &'r str)>,
    ) -> Result<bool> {
        let mut all = true;
        if let Some(column) = &self.headers {
            for entry in column.entries("headers", row)? {
                let (name, value) = entry?;
                let plain = plain_header(name, value);
                all &= plain.is_some();
                headers.extend(plain);
            }
        }
        Ok(all)
    }

    /// The coded form of the values of a row that are not plain. `key`: the key, if it is not
    /// plain.
    #[cold]
    fn code(&self, row: usize, key: Option<&[u8]>, is_null: bool) -> Result<&Coded> {
        let mut made = Coded::new(key, is_null);
        if let Some(column) = &self.headers {
            for (number, entry) in column.entries("headers", row)?.enumerate() {
                let (name, value) = entry?;
                made.add_header(number, name, value);
            }
        }
        let broken = || wrong("value", "it has fewer rows than its batch");
        let cell = self.coded.get(row).ok_or_else(broken)?;
        Ok(cell.get_or_init(|| made))
    }
}

fn check(name: &str, data_type: &DataType) -> Result<()> {
    let (good, wanted) = match name {
        "value" | "key" | "topic" | "tags" => (is_bytes(data_type), "string or binary"),
        "partition" => (data_type.is_integer(), "an integer"),
        "headers" => (
            is_properties(data_type),
            "array<struct<key: string, value: binary>>",
        ),
        "timestamp" => (
            matches!(data_type, DataType::Timestamp(_, _)),
            "a timestamp",
        ),
        _ => {
            let reason = "unknown; the columns are value, key, topic, partition, headers, \
                          timestamp, tags";
            return Err(wrong(name, reason));
        }
    };
    if good || (*data_type == DataType::Null && name != "value") {
        return Ok(());
    }
    let reason = format!("expected {wanted}");
    let value = format!("of type {data_type}");
    Err(Error::option(&format!("column {name:?}"), value, reason))
}

fn wrong(name: &str, reason: &str) -> Error {
    Error::option("column", format!("{name:?}"), reason)
}
