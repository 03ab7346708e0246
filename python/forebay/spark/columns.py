"""The columns of a read: their names, and the only types that Spark accepts from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.spark.errors import did_you_mean, invalid

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
_LIST = ", ".join(_TYPES)


def parse_columns(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list.

    Raises
    ------
    InvalidOptionError
        If a name is unknown or repeated, or the list is empty.
    """
    names = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    if not names:
        raise invalid("columns", text, "name at least one column")
    for place, name in enumerate(names):
        if name not in _TYPES:
            hint = did_you_mean(name, _TYPES)
            raise invalid("columns", name, f"no such column{hint}; the columns are {_LIST}")
        if name in names[:place]:
            raise invalid("columns", name, "the column is named twice")
    return names


def schema_of(columns: tuple[str, ...]) -> StructType:
    """Return the Spark schema of these columns; like the connector's, all of them are nullable."""
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
    """Return these columns of a batch; the column ``store`` is filled with the path `store`."""
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
