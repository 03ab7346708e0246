//! Builders for the columns of one batch.

use super::body::{BodyColumn, ViewColumn};
use super::schema::{BatchShape, BodyType, CREATE_TIME, Column, Dialect, LOG_APPEND_TIME};
use super::source::records;
use super::text::{PropertyColumns, TopicColumn, TopicTexts};
use crate::engine::{RowRef, Rows};
use crate::error::{Error, Result};
use crate::record::Row;
use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use arrow_schema::{ArrowError, SchemaRef};
use std::sync::Arc;

/// Builders for all columns of a batch. Each append adds the same rows to all of them.
pub(super) struct Columns {
    columns: Vec<(Column, Builder)>,
    dialect: Dialect,
    /// Keys, tags, properties and headers: filled by one walk over the properties of a record.
    properties: PropertyColumns,
}

enum Builder {
    Topic(TopicColumn),
    TopicTexts(TopicTexts),
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
    MessageId(StringBuilder),
    Body(BodyColumn),
    Views(ViewColumn),
    /// Filled together with the other columns that come from properties.
    Property,
}

impl Columns {
    /// Empty builders. `rows_hint` and `body_len_hint`: the rows of the previous batch, and the
    /// bytes of their bodies.
    pub(super) fn new(shape: &BatchShape, rows_hint: usize, body_len_hint: usize) -> Columns {
        let builder = |column: &Column| match column {
            Column::Topic if shape.dialect == Dialect::Spark => {
                Builder::TopicTexts(TopicTexts::default())
            }
            Column::Topic => Builder::Topic(TopicColumn::default()),
            Column::Queue
            | Column::Partition
            | Column::TimestampType
            | Column::Flag
            | Column::SysFlag
            | Column::ReconsumeTimes
            | Column::Size => Builder::Narrow(Vec::with_capacity(rows_hint)),
            Column::Offset
            | Column::Position
            | Column::StoreTimestamp
            | Column::BornTimestamp
            | Column::Timestamp => Builder::Wide(Vec::with_capacity(rows_hint)),
            Column::MessageId => Builder::MessageId(StringBuilder::new()),
            Column::Value => Builder::Body(BodyColumn::new(rows_hint, body_len_hint).with_nulls()),
            Column::Body => match shape.body_type {
                BodyType::Binary => Builder::Body(BodyColumn::new(rows_hint, body_len_hint)),
                BodyType::BinaryView => Builder::Views(ViewColumn::new(rows_hint)),
            },
            Column::Key | Column::Keys | Column::Tags | Column::Properties | Column::Headers => {
                Builder::Property
            }
        };
        Columns {
            columns: shape.columns.iter().map(|c| (*c, builder(c))).collect(),
            dialect: shape.dialect,
            properties: PropertyColumns::new(&shape.columns, shape.dialect),
        }
    }

    /// Adds some of the rows. If `unpacked` is given, it replaces the stored body.
    pub(super) fn append(&mut self, rows: &Rows, some: &[RowRef], unpacked: Option<&[u8]>) {
        for (column, builder) in &mut self.columns {
            match builder {
                Builder::Topic(topics) => topics.append(records(rows, some)),
                Builder::TopicTexts(topics) => topics.append(records(rows, some)),
                Builder::Narrow(values) => narrow(*column, values, rows, some),
                Builder::Wide(values) => wide(*column, values, rows, some),
                Builder::MessageId(ids) => message_ids(ids, rows, some),
                Builder::Body(bodies) => bodies.append(rows, some, unpacked),
                Builder::Views(views) => views.append(rows, some, unpacked),
                Builder::Property => {}
            }
        }
        if !self.properties.is_empty() {
            self.properties.append(records(rows, some));
        }
    }

    /// Builds the batch.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if Arrow refuses a column. No test has seen this.
    pub(super) fn finish(mut self, schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (column, builder) in std::mem::take(&mut self.columns) {
            arrays.push(self.array(column, builder).map_err(refused)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).map_err(refused)
    }

    fn array(&mut self, column: Column, builder: Builder) -> Result<ArrayRef, ArrowError> {
        Ok(match builder {
            Builder::Topic(topics) => topics.finish()?,
            Builder::TopicTexts(topics) => topics.finish(),
            Builder::Narrow(values) => Arc::new(Int32Array::from(values)),
            Builder::Wide(values) => match column {
                Column::StoreTimestamp | Column::BornTimestamp | Column::Timestamp => {
                    timestamps(values, self.dialect)
                }
                _ => Arc::new(Int64Array::from(values)),
            },
            Builder::MessageId(mut ids) => Arc::new(ids.finish()),
            Builder::Body(bodies) => bodies.finish()?,
            Builder::Views(views) => views.finish()?,
            Builder::Property => self.properties.finish(column)?,
        })
    }
}

fn timestamps(mut millis: Vec<i64>, dialect: Dialect) -> ArrayRef {
    match dialect {
        Dialect::Arrow => Arc::new(TimestampMillisecondArray::from(millis).with_timezone("UTC")),
        Dialect::Spark => {
            // Times in a damaged or foreign record may exceed the range of microseconds.
            for time in &mut millis {
                *time = time.saturating_mul(1000);
            }
            Arc::new(TimestampMicrosecondArray::from(millis).with_timezone("UTC"))
        }
    }
}

fn refused(error: ArrowError) -> Error {
    Error::Unsupported {
        what: format!("a column that Arrow refuses: {error}"),
    }
}

fn narrow(column: Column, values: &mut Vec<i32>, rows: &Rows, some: &[RowRef]) {
    match column {
        Column::TimestampType => extend(values, rows, some, |record| {
            match record.has_append_time() {
                true => LOG_APPEND_TIME,
                false => CREATE_TIME,
            }
        }),
        Column::Flag => extend(values, rows, some, |record| record.flag()),
        Column::SysFlag => extend(values, rows, some, |record| record.sys_flag() as i32),
        Column::ReconsumeTimes => extend(values, rows, some, |record| record.reconsume_times()),
        Column::Size => extend(values, rows, some, |record| {
            record.layout().total_len() as i32
        }),
        _ => extend(values, rows, some, |record| record.queue_id()),
    }
}

fn wide(column: Column, values: &mut Vec<i64>, rows: &Rows, some: &[RowRef]) {
    match column {
        Column::Position => extend(values, rows, some, |record| record.position()),
        Column::StoreTimestamp | Column::Timestamp => {
            extend(values, rows, some, |record| record.store_timestamp());
        }
        Column::BornTimestamp => extend(values, rows, some, |record| record.born_timestamp()),
        _ => extend(values, rows, some, |record| record.queue_offset()),
    }
}

/// Adds one number per record. Callers match on the column outside the loop.
#[inline]
fn extend<T>(values: &mut Vec<T>, rows: &Rows, some: &[RowRef], number: impl Fn(&Row<'_>) -> T) {
    values.extend(records(rows, some).map(|record| number(&record)));
}

fn message_ids(ids: &mut StringBuilder, rows: &Rows, some: &[RowRef]) {
    let mut id = String::new();
    for record in records(rows, some) {
        record.write_id(&mut id);
        ids.append_value(&id);
    }
}
