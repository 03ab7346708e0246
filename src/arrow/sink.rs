//! Record batches of a Spark sink: each row becomes a message, of a topic that it may name.
//!
//! | column | types | |
//! |---|---|---|
//! | `value` | bytes | not null; may be empty |
//! | `key` | bytes | one key, as text |
//! | `topic` | bytes | where all rows go to one topic it is not looked at |
//! | `partition` | whole numbers | the queue; null: as if there were no such column |
//! | `headers` | list of structs of two, map | bytes to bytes; properties |
//! | `timestamp` | timestamp | when the message was made |
//! | `tags` | bytes | |
//!
//! *Bytes* as in [`super::import`]. These are the columns of Spark's Kafka sink and two more.

use super::import::{Properties, is_properties, known, queue, word};
use super::values::{Bytes, Integers, Times, is_bytes};
use crate::error::{Error, Result};
use crate::record::Draft;
use arrow_array::RecordBatch;
use arrow_schema::DataType;

/// The columns of one batch, ready to be read by rows.
pub struct SinkRows<'a> {
    value: Bytes<'a>,
    key: Option<Bytes<'a>>,
    topic: Option<Bytes<'a>>,
    partition: Option<Integers<'a>>,
    headers: Option<Properties<'a>>,
    timestamp: Option<Times<'a>>,
    tags: Option<Bytes<'a>>,
}

impl<'a> SinkRows<'a> {
    /// The columns of a batch.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a column that is unknown, missing, named twice or of a wrong
    /// type.
    pub fn new(batch: &'a RecordBatch) -> Result<SinkRows<'a>> {
        let schema = batch.schema_ref();
        for (place, field) in schema.fields().iter().enumerate() {
            let name = field.name();
            if schema.fields().iter().take(place).any(|f| f.name() == name) {
                return Err(wrong(name, "a batch has one column of a name"));
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
            value: value.ok_or_else(|| wrong("value", "it is needed"))?,
            key: column("key").and_then(Bytes::new),
            topic: column("topic").and_then(Bytes::new),
            partition: column("partition").and_then(Integers::new),
            headers: column("headers").and_then(Properties::new),
            timestamp: column("timestamp").and_then(Times::new),
            tags: column("tags").and_then(Bytes::new),
        })
    }

    /// The topic that a row names.
    #[inline]
    pub fn topic(&self, row: usize) -> Result<Option<&'a str>> {
        word("topic", self.topic.as_ref(), row)
    }

    /// The message of a row; `keys` and `headers` are empty and lend their room.
    #[inline]
    pub fn draft<'b>(
        &self,
        row: usize,
        keys: &'b mut Vec<&'a str>,
        headers: &'b mut Vec<(&'a str, &'a str)>,
    ) -> Result<Draft<'b>>
    where
        'a: 'b,
    {
        let Some(body) = known("value", self.value.get(row))? else {
            let reason = "a message has a value; it may be empty";
            return Err(Error::option("value", "null", reason));
        };
        keys.extend(word("key", self.key.as_ref(), row)?);
        if let Some(column) = &self.headers {
            column.read("headers", row, headers)?;
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
            body,
            keys,
            tags: word("tags", self.tags.as_ref(), row)?,
            properties: headers,
            queue,
            born_timestamp,
            ..Draft::default()
        })
    }
}

fn check(name: &str, data_type: &DataType) -> Result<()> {
    let (good, wanted) = match name {
        "value" | "key" | "topic" | "tags" => (is_bytes(data_type), "string or binary"),
        "partition" => (data_type.is_integer(), "a whole number"),
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
    let reason = format!("its type has to be {wanted}");
    let value = format!("of type {data_type}");
    Err(Error::option(&format!("column {name:?}"), value, reason))
}

fn wrong(name: &str, reason: &str) -> Error {
    Error::option("column", format!("{name:?}"), reason)
}
