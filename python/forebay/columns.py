"""Columns of Arrow data that wrappers of producers change before the rows are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from forebay.selection import require

__all__ = ["with_bodies", "with_properties"]

#: The names that the column of bodies may have.
_BODIES = ("body", "value")


def with_bodies(data: Any, encode: Callable[[Any], Any]) -> Any:
    """Return the rows with their bodies encoded, all of them before the first is sent.

    What a producer refuses is returned as it is: data that is not Arrow's, rows without bodies.
    """
    reader = _reader(data)
    if reader is None:
        return data
    pyarrow = require("pyarrow", "arrow")
    table = reader.read_all()
    found = [at for at, name in enumerate(table.schema.names) if name in _BODIES]
    if len(found) != 1:
        return table
    (at,) = found
    # One array of long values, since 2 GiB is the most that others hold.
    kind = pyarrow.large_binary()
    bodies = [_bytes(encode(value)) for value in table.column(at).to_pylist()]
    return table.set_column(at, table.schema.names[at], pyarrow.array(bodies, kind))


def with_properties(data: Any, added: Mapping[str, str]) -> Any:
    """Return the rows with more properties, which replace those of the same names.

    What a producer refuses is returned as it is: data that is not Arrow's, a column of properties
    of another type.
    """
    reader = _reader(data)
    if reader is None:
        return data
    pyarrow = require("pyarrow", "arrow")
    schema = reader.schema
    at = schema.get_field_index("properties")
    if at >= 0 and not _has_pairs(schema.field(at).type):
        return reader
    # Not a map, which cannot have the null names that the producer refuses.
    parts = [pyarrow.field(name, pyarrow.binary()) for name in ("name", "value")]
    field = pyarrow.field("properties", pyarrow.list_(pyarrow.struct(parts)))
    whole = schema.append(field) if at < 0 else schema.set(at, field)

    def batches() -> Iterator[Any]:
        for batch in reader:
            columns = batch.columns
            given = [None] * batch.num_rows if at < 0 else columns.pop(at).to_pylist()
            merged = pyarrow.array([_merged(row, added) for row in given], field.type)
            columns.insert(len(columns) if at < 0 else at, merged)
            yield pyarrow.RecordBatch.from_arrays(columns, schema=whole)

    return pyarrow.RecordBatchReader.from_batches(whole, batches())


def _reader(data: Any) -> Any:
    """Return a reader of Arrow data; `None` of anything else."""
    if hasattr(data, "__arrow_c_stream__"):
        return require("pyarrow", "arrow").RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        pyarrow = require("pyarrow", "arrow")
        batch = pyarrow.record_batch(data)
        return pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])
    return None


def _has_pairs(kind: Any) -> bool:
    """Return whether a type is one of properties: a map, a list of pairs, or null for none."""
    types = require("pyarrow", "arrow").types
    if types.is_null(kind):
        return True
    if types.is_map(kind):
        return _is_bytes(kind.key_type) and _is_bytes(kind.item_type)
    is_list = types.is_list(kind) or types.is_large_list(kind)
    if not is_list or not types.is_struct(kind.value_type):
        return False
    parts = [kind.value_type.field(at).type for at in range(kind.value_type.num_fields)]
    return len(parts) == 2 and all(_is_bytes(part) for part in parts)


def _is_bytes(kind: Any) -> bool:
    """Return whether a producer accepts a type for the name or value of a property."""
    types = require("pyarrow", "arrow").types
    if types.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    names = "string large_string string_view binary large_binary binary_view fixed_size_binary"
    return any(getattr(types, f"is_{name}")(kind) for name in names.split())


def _merged(given: Iterable[Any] | None, added: Mapping[str, str]) -> list[Any]:
    """Return the properties of a row, as dicts, with those that are added."""
    pairs = [None if one is None else _pair(one) for one in given or ()]
    kept = [pair for pair in pairs if pair is None or _text(pair["name"]) not in added]
    return [*kept, *({"name": name, "value": value} for name, value in added.items())]


def _pair(given: Any) -> dict[str, Any]:
    """Return a property of a map, which is a tuple, or of a list of structs."""
    name, value = given.values() if isinstance(given, dict) else given
    return {"name": name, "value": value}


def _text(name: Any) -> Any:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _bytes(body: Any) -> bytes:
    """Return what a serde has made; raises TypeError for what is not bytes, such as a str."""
    return body if isinstance(body, bytes) else bytes(memoryview(body))
