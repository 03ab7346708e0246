"""The columns of a read: names, and the only types in which Spark takes them from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.spark.errors import invalid

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

#: Columns of the Kafka connector, in its order; `headers` only with ``includeHeaders``.
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "headers",
    "queue": "int",
    "position": "long",
    "store_timestamp": "timestamp",
    "born_timestamp": "timestamp",
    "keys": "string",
    "tags": "string",
    "properties": "properties",
    "body": "binary",
    "flag": "int",
    "sys_flag": "int",
    "reconsume_times": "int",
    "message_id": "string",
    "size": "int",
    "store": "string",
}


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the names in a list that is separated by commas.

    Raises
    ------
    InvalidOptionError
        If a name is unknown, or named twice, or there is none.
    """
    names = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    if not names:
        raise invalid("columns", text, "name at least one column")
    for place, name in enumerate(names):
        if name not in _TYPES:
            raise invalid("columns", name, f"the columns are {', '.join(_TYPES)}")
        if name in names[:place]:
            raise invalid("columns", name, "it is named twice")
    return names


def schema_of(columns: tuple[str, ...]) -> StructType:
    """Return Spark's schema of these columns; all of them are nullable, as the connector's are."""
    from pyspark.sql import types

    header = types.StructType()
    header.add("key", types.StringType()).add("value", types.BinaryType())
    kinds: dict[str, types.DataType] = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(header),
        "properties": types.MapType(types.StringType(), types.StringType()),
    }
    schema = types.StructType()
    for name in columns:
        schema.add(name, kinds[_TYPES[name]])
    return schema


def select(batch: pyarrow.RecordBatch, columns: tuple[str, ...], store: str) -> pyarrow.RecordBatch:
    """Return these columns of a batch; ``store`` is the path of its store in every row."""
    import pyarrow

    if batch.schema.names == list(columns):
        return batch
    arrays = []
    fields = []
    for name in columns:
        if name == "store":
            arrays.append(pyarrow.repeat(pyarrow.scalar(store, pyarrow.string()), batch.num_rows))
            fields.append(pyarrow.field(name, pyarrow.string()))
        else:
            arrays.append(batch.column(name))
            fields.append(batch.schema.field(name))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema(fields))
