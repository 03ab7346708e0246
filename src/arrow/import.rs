//! Imports record batches: each row becomes a message of one topic.
//!
//! | column | types | |
//! |---|---|---|
//! | `body` or `value` | bytes | may be empty; null only in a partition log, with a key |
//! | `key` | bytes, list of bytes | one key, or a list of them |
//! | `keys` | bytes, list of bytes | as stored: keys separated by one space; or a list of them |
//! | `tags` | bytes | |
//! | `properties` | map, list of structs with two fields | bytes to bytes |
//! | `headers` | map, list of structs with two fields | bytes to bytes or null; partition logs |
//! | `queue` | integers | null: as without the column |
//! | `timestamp` | timestamp with time zone, int64 (ms) | when the message was made |
//!
//! *Bytes* are any binary or utf8 type (also large, view and dictionary), or fixed-size binary.
//! Columns that become text must be UTF-8; in a partition log, the first key need not. Every column
//! except the body may have nulls, or be of type null.

use super::ffi::guarded;
use super::rows::{Columns, KeyForm, Parts, Plan};
use super::values::is_bytes;
use crate::engine::{Appended, Atomicity, Durability};
use crate::error::{Error, Result};
use crate::producer::{BatchSender, Producer};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, Schema};
use std::collections::BTreeMap;
use std::ops::Range;

/// Rows between two calls of `go_on`.
const ROWS_BETWEEN_CALLS: usize = 1024;

/// Result of [`send_arrow`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of messages.
    pub count: u64,
    /// Their offsets by queue, in order. A queue has more than one range only if another sender
    /// came between two chunks.
    pub ranges: BTreeMap<u32, Vec<Range<u64>>>,
    /// Store time of the last chunk, in ms.
    pub store_timestamp: i64,
    /// Position after the last byte appended.
    pub end: u64,
    /// Whether all of them are already durable.
    pub durable: bool,
}

/// Sends every row of `reader`. Chunks, queues and atomicity are as in [`Producer::send_batch`] for
/// a single batch, however the reader divides the rows. `go_on` is called now and then; once it
/// returns false, the current chunk is not appended, and the result covers those before it.
///
/// # Errors
///
/// [`Error::InvalidOption`] for a column that is unknown, missing or of a wrong type, before
/// anything is sent. [`Error::Row`] for a refused row, counted over all batches. The error of the
/// reader's producer.
pub fn send_arrow(
    producer: &Producer,
    mut reader: impl RecordBatchReader,
    atomicity: Atomicity,
    durability: Durability,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Imported> {
    let plan = Plan::new(&reader.schema())?;
    let mut imported = Imported {
        durable: true,
        ..Imported::default()
    };
    let mut sender = producer.batch_sender(atomicity, durability)?;
    while let Some(batch) = guarded(|| reader.next().transpose())? {
        if !plan.send(&batch, &mut sender, &mut imported, go_on)? {
            return Ok(imported);
        }
    }
    imported.add(sender.finish()?);
    Ok(imported)
}

impl Imported {
    fn add(&mut self, part: Option<Appended>) {
        let Some(part) = part else { return };
        self.count += part.rows.len() as u64;
        self.store_timestamp = part.store_timestamp;
        self.end = part.end;
        self.durable &= part.durable;
        let mut rows = part.rows.iter().peekable();
        while let Some(first) = rows.next() {
            let mut range = first.offset..first.offset + 1;
            // Consecutive rows of one queue are common: they cost one comparison per row.
            while let Some(row) =
                rows.next_if(|row| row.queue == first.queue && row.offset == range.end)
            {
                range.end = row.offset + 1;
            }
            let ranges = self.ranges.entry(first.queue).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
    }
}

const BYTES: &str = "binary or utf8 (large, view, fixed-size and dictionary forms too)";

impl Plan {
    fn new(schema: &Schema) -> Result<Plan> {
        let mut body = None;
        let mut plan = Plan {
            body: 0,
            keys: None,
            tags: None,
            properties: None,
            headers: None,
            queue: None,
            timestamp: None,
        };
        for (index, field) in schema.fields().iter().enumerate() {
            let (name, data_type) = (field.name().as_str(), field.data_type());
            check_type(name, data_type)?;
            // A column of type null has no values.
            let some = (*data_type != DataType::Null).then_some(index);
            let taken = match name {
                "body" | "value" => body.replace(index).is_some(),
                "key" => put(&mut plan.keys, some.map(|index| (index, KeyForm::One))),
                "keys" => put(&mut plan.keys, some.map(|index| (index, KeyForm::Stored))),
                "tags" => put(&mut plan.tags, some),
                "properties" => put(&mut plan.properties, some),
                "headers" => put(&mut plan.headers, some),
                "queue" => put(&mut plan.queue, some),
                _ => put(&mut plan.timestamp, some),
            };
            if taken {
                let reason = "a batch can have only one column with this meaning";
                return Err(Error::option("columns", format!("{name:?}"), reason));
            }
        }
        let names = || {
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            format!("{names:?}")
        };
        let reason = "a column \"body\" (or \"value\") is needed";
        plan.body = body.ok_or_else(|| Error::option("columns", names(), reason))?;
        Ok(plan)
    }

    /// Sends the rows of a batch; `go_on` is called now and then. Returns whether to go on.
    fn send(
        &self,
        batch: &RecordBatch,
        sender: &mut BatchSender<'_>,
        imported: &mut Imported,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let columns = Columns::new(self, batch).ok_or_else(|| {
            let reason = "the columns do not match the schema";
            Error::option("data", "a record batch", reason)
        })?;
        let mut parts = Parts::default();
        for row in 0..batch.num_rows() {
            if row % ROWS_BETWEEN_CALLS == 0 && !go_on() {
                return Ok(false);
            }
            parts.clear();
            match columns.draft(row, &mut parts) {
                Ok(draft) => imported.add(sender.push(&draft)?),
                Err(error) => return Err(sender.refuse(error)),
            }
        }
        Ok(true)
    }
}

/// Sets a place. Returns whether it was set before.
fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let taken = place.is_some() && value.is_some();
    *place = value.or(place.take());
    taken
}

fn check_type(name: &str, data_type: &DataType) -> Result<()> {
    let (good, wanted) = match name {
        "body" | "value" => (is_bytes(data_type), BYTES.to_owned()),
        "tags" => (is_bytes(data_type), BYTES.to_owned()),
        "key" | "keys" => {
            let element = match data_type {
                DataType::List(field) | DataType::LargeList(field) => field.data_type(),
                other => other,
            };
            (is_bytes(element), format!("{BYTES}, or a list of these"))
        }
        "properties" => (is_properties(data_type), "map<utf8, utf8>".to_owned()),
        "headers" => {
            let wanted = "list<struct<key: utf8, value: binary>>";
            (is_properties(data_type), wanted.to_owned())
        }
        "queue" => (data_type.is_integer(), "an integer".to_owned()),
        "timestamp" => {
            if matches!(data_type, DataType::Timestamp(_, None)) {
                let reason = "it has no time zone; attach one, for \
                              example pyarrow.compute.assume_timezone(column, \"UTC\") or \
                              polars column.dt.replace_time_zone(\"UTC\"), or give int64 \
                              milliseconds since the epoch";
                return Err(Error::option(
                    "column \"timestamp\"",
                    format!("of type {data_type}"),
                    reason,
                ));
            }
            let good = matches!(data_type, DataType::Timestamp(_, _) | DataType::Int64);
            (
                good,
                "timestamp with a zone, or int64 milliseconds".to_owned(),
            )
        }
        _ => {
            let reason = "unknown; the columns are body or value, key or keys, tags, properties, \
                          headers, queue, timestamp";
            return Err(Error::option("column", format!("{name:?}"), reason));
        }
    };
    let no_values = *data_type == DataType::Null && !matches!(name, "body" | "value");
    if good || no_values {
        return Ok(());
    }
    let reason = format!("expected {wanted}");
    let value = format!("of type {data_type}");
    Err(Error::option(&format!("column {name:?}"), value, reason))
}

pub(super) fn is_properties(data_type: &DataType) -> bool {
    let (DataType::Map(entry, _) | DataType::List(entry) | DataType::LargeList(entry)) = data_type
    else {
        return false;
    };
    let DataType::Struct(fields) = entry.data_type() else {
        return false;
    };
    fields.len() == 2 && fields.iter().all(|field| is_bytes(field.data_type()))
}
