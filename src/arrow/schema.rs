//! The columns of a scan: their names and types, and which ones a batch has.

use crate::error::{Error, Result};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// A column of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// `topic`: a dictionary of text, built for each batch.
    Topic,
    /// `queue`: int32.
    Queue,
    /// `offset`: int64, the offset in the queue.
    Offset,
    /// `position`: int64, the position in the log.
    Position,
    /// `store_timestamp`: milliseconds, UTC.
    StoreTimestamp,
    /// `born_timestamp`: milliseconds, UTC.
    BornTimestamp,
    /// `keys`: text as stored, keys separated by one space; null if there are none.
    Keys,
    /// `tags`: text; null if there is no tag.
    Tags,
    /// `properties`: the user's properties, sorted by name; of equal names the last.
    Properties,
    /// `headers`: the user's properties in stored order, with repeated names.
    Headers,
    /// `body`: the decompressed body, in the type of [`BodyType`].
    Body,
    /// `flag`: int32, set by the user.
    Flag,
    /// `sys_flag`: int32, the bits as stored.
    SysFlag,
    /// `reconsume_times`: int32.
    ReconsumeTimes,
    /// `message_id`: text.
    MessageId,
    /// `size`: int32, bytes of the record in the log.
    Size,
    /// `key`: binary, the first key, decoded; null if there is none.
    Key,
    /// `value`: binary, the body; null if the message is marked as null.
    Value,
    /// `partition` of [`Dialect::Spark`]: the queue.
    Partition,
    /// `timestamp` of [`Dialect::Spark`]: the store time.
    Timestamp,
    /// `timestampType` of [`Dialect::Spark`]: int32: 1 is the time of the append, 0 that of the
    /// producer.
    TimestampType,
}

/// Kafka's number for a timestamp that the producer gave to a message.
pub const CREATE_TIME: i32 = 0;
/// Kafka's number for a timestamp that the log gave to a message.
pub const LOG_APPEND_TIME: i32 = 1;

/// The names and types of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Those of Forebay.
    #[default]
    Arrow,
    /// Forebay's names and those of Spark's Kafka connector, in the only types that Spark accepts
    /// from a Python data source: text is plain, timestamps are microseconds, every column is
    /// nullable, and `headers` is null if there are none. Values coded in properties are decoded.
    Spark,
}

/// The type of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BodyType {
    /// Copied into one contiguous buffer per batch.
    #[default]
    Binary,
    /// Views into the mapped files; only short and compressed bodies are copied.
    BinaryView,
}

/// The columns and the maximum size of a batch.
#[derive(Clone, Debug)]
pub struct BatchShape {
    /// The columns in order. Without columns, batches only count rows.
    pub columns: Vec<Column>,
    /// The type of bodies.
    pub body_type: BodyType,
    /// The names and types of the columns.
    pub dialect: Dialect,
    /// Maximum number of rows in a batch.
    pub batch_rows: usize,
    /// Maximum bytes of bodies in a batch. A single longer body is allowed.
    pub batch_bytes: usize,
}

const ALL: [(Column, &str); 18] = [
    (Column::Topic, "topic"),
    (Column::Queue, "queue"),
    (Column::Offset, "offset"),
    (Column::Position, "position"),
    (Column::StoreTimestamp, "store_timestamp"),
    (Column::BornTimestamp, "born_timestamp"),
    (Column::Keys, "keys"),
    (Column::Tags, "tags"),
    (Column::Properties, "properties"),
    (Column::Body, "body"),
    (Column::Headers, "headers"),
    (Column::Flag, "flag"),
    (Column::SysFlag, "sys_flag"),
    (Column::ReconsumeTimes, "reconsume_times"),
    (Column::MessageId, "message_id"),
    (Column::Size, "size"),
    (Column::Key, "key"),
    (Column::Value, "value"),
];

/// The columns that [`Dialect::Spark`] has in addition to [`ALL`].
const SPARK: [(Column, &str); 3] = [
    (Column::Partition, "partition"),
    (Column::Timestamp, "timestamp"),
    (Column::TimestampType, "timestampType"),
];

/// Number of columns of [`ALL`] that a scan has by default. The others must be requested.
const DEFAULT_COLUMNS: usize = 10;

impl Column {
    /// Every column of [`Dialect::Arrow`], beginning with [`Column::defaults`].
    pub fn all() -> impl Iterator<Item = Column> {
        ALL.iter().map(|(column, _)| *column)
    }

    /// The columns that a scan has by default.
    pub fn defaults() -> impl Iterator<Item = Column> {
        Column::all().take(DEFAULT_COLUMNS)
    }

    /// The column with this name.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], which lists the valid names.
    pub fn parse(name: &str, dialect: Dialect) -> Result<Column> {
        let mut named = Column::named(dialect);
        let found = named.find(|(_, known)| *known == name);
        found.map(|(column, _)| *column).ok_or_else(|| {
            let names: Vec<&str> = Column::named(dialect).map(|(_, name)| *name).collect();
            let reason = format!("the columns are {}", names.join(", "));
            Error::option("columns", format!("{name:?}"), reason)
        })
    }

    /// Columns and names of a dialect; those that only Spark has come first.
    fn named(dialect: Dialect) -> impl Iterator<Item = &'static (Column, &'static str)> {
        let own: &[_] = match dialect {
            Dialect::Arrow => &[],
            Dialect::Spark => &SPARK,
        };
        own.iter().chain(&ALL)
    }

    /// Whether a dialect has this column.
    pub(crate) fn is_of(self, dialect: Dialect) -> bool {
        Column::named(dialect).any(|(column, _)| *column == self)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        Column::named(Dialect::Spark)
            .find(|(column, _)| *column == self)
            .map_or("", |(_, name)| name)
    }

    /// Whether this column holds bodies.
    pub(crate) fn is_body(self) -> bool {
        matches!(self, Column::Body | Column::Value)
    }

    /// Whether this column requires reading the properties of a record.
    pub(crate) fn needs_properties(self) -> bool {
        matches!(
            self,
            Column::Key | Column::Keys | Column::Tags | Column::Properties | Column::Headers
        )
    }

    /// Name, type and nullability.
    pub fn field(self, body: BodyType, dialect: Dialect) -> Field {
        let spark = dialect == Dialect::Spark;
        let data_type = match self {
            Column::Topic if spark => DataType::Utf8,
            Column::Topic => {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            Column::Offset | Column::Position => DataType::Int64,
            Column::StoreTimestamp | Column::BornTimestamp | Column::Timestamp => {
                let unit = if spark {
                    TimeUnit::Microsecond
                } else {
                    TimeUnit::Millisecond
                };
                DataType::Timestamp(unit, Some("UTC".into()))
            }
            Column::Keys | Column::Tags | Column::MessageId => DataType::Utf8,
            Column::Properties => DataType::Map(properties_field(), false),
            Column::Headers => DataType::List(headers_field()),
            Column::Body if body == BodyType::BinaryView => DataType::BinaryView,
            Column::Body | Column::Value | Column::Key => DataType::Binary,
            Column::Queue
            | Column::Partition
            | Column::TimestampType
            | Column::Flag
            | Column::SysFlag
            | Column::ReconsumeTimes
            | Column::Size => DataType::Int32,
        };
        let nullable = spark
            || matches!(
                self,
                Column::Keys | Column::Tags | Column::Key | Column::Value
            );
        Field::new(self.name(), data_type, nullable)
    }
}

impl BatchShape {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        let columns = self.columns.iter();
        let fields = columns.map(|column| column.field(self.body_type, self.dialect));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// Fields of one entry of `properties`. Names and nullability are those of pyarrow's `map_(utf8(),
/// utf8())`, so that the types compare equal; no value is null.
pub(crate) fn property_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ])
}

pub(crate) fn properties_field() -> FieldRef {
    let entry = DataType::Struct(property_fields());
    Arc::new(Field::new("entries", entry, false))
}

/// Fields of one header, with names and nullability as in pyarrow's `struct([...])`.
pub(crate) fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

pub(crate) fn headers_field() -> FieldRef {
    Arc::new(Field::new("item", DataType::Struct(header_fields()), true))
}
