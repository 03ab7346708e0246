"""Filters that a read takes over from Spark, with the option ``pushdown``.

Some filters narrow the read exactly, and Spark drops them. Others only leave out rows that cannot
match, and Spark evaluates them again:

| filter on | effect | Spark |
|---|---|---|
| store, topic, queue | selects ranges | drops it |
| offset, store time: comparisons | moves the ends of ranges | drops it |
| offset, store time: a list | moves the ends to the lowest and highest value | evaluates it again |
| key, keys: equality, a list | reads through the index | evaluates it again |
| tags: equality, a list | compares tags in the scan | evaluates it again |

All other filters are left to Spark. A partition log has no index of keys, and its timestamps need
not rise: there the reader compares keys and store times row by row (`Pushed.compare`). Only the
columns of the last two rows of the table can be null.
"""

from __future__ import annotations

import operator
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeGuard
from unicodedata import category

from pyspark.sql import datasource
from pyspark.sql.datasource import Filter

from forebay.selection import UNBOUNDED, Span
from forebay.spark.ranges import Range
from forebay.spark.stores import is_partition_log
from forebay.times import milliseconds

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from forebay.spark.stores import Source

#: Maximum number of keys to look up one by one; with more of them the log is read instead.
_LOOKUPS_MAX = 1_000

#: Columns that are the same in every row of a range.
_FIXED: dict[str, tuple[type, Callable[[Range], Any]]] = {
    "store": (str, lambda found: found.store),
    "topic": (str, lambda found: found.topic),
    "partition": (int, lambda found: found.queue),
    "queue": (int, lambda found: found.queue),
}
_TIMES = ("timestamp", "store_timestamp")
_NEVER_NULL = {*_FIXED, *_TIMES, "offset"}

_HOLDS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    datasource.EqualTo: operator.eq,
    datasource.EqualNullSafe: operator.eq,
    datasource.GreaterThan: operator.gt,
    datasource.GreaterThanOrEqual: operator.ge,
    datasource.LessThan: operator.lt,
    datasource.LessThanOrEqual: operator.le,
    datasource.In: lambda value, some: value in some,
    datasource.StringStartsWith: str.startswith,
    datasource.StringEndsWith: str.endswith,
    datasource.StringContains: operator.contains,
}


@dataclass(frozen=True)
class Lookup:
    """A key to look up in the index, and the value that the wanted rows have in `column`."""

    key: str
    column: str
    value: str | bytes


@dataclass(frozen=True)
class Pushed:
    """The pushed-down filters; without any, everything is read."""

    #: Filters on columns that have one value in all rows of a range.
    fixed: tuple[Filter, ...] = ()
    offsets: Span = UNBOUNDED
    #: Store times in ms.
    times: Span = UNBOUNDED
    lookups: tuple[Lookup, ...] | None = None
    tags: tuple[str, ...] | None = None

    @property
    def selective(self) -> bool:
        """Whether only some rows of a range are read."""
        return self.lookups is not None or self.tags is not None

    def has(self, store: str) -> bool:
        """Return whether a store may have matching rows."""
        some = Range(store, "", 0, 0, 0)
        return all(_holds(one, some) for one in self.fixed if _column(one) == "store")

    def narrow(self, store: Source, ranges: Iterable[Range]) -> list[Range]:
        """Return the parts of the ranges that may have matching rows."""
        narrowed = []
        for found in ranges:
            if not all(_holds(one, found) for one in self.fixed):
                continue
            start, end = found.start, found.end
            if self.offsets.start is not None:
                start = max(start, self.offsets.start)
            if self.offsets.end is not None:
                end = min(end, self.offsets.end)
            if start < end and self.times.start is not None:
                start = max(start, store.offset_at(found.topic, found.queue, self.times.start))
            if start < end and self.times.end is not None and not is_partition_log(store):
                end = min(end, store.offset_at(found.topic, found.queue, self.times.end))
            if start < end:
                narrowed.append(replace(found, start=start, end=end))
        return narrowed

    def compared(self) -> list[str]:
        """Return the columns that `compare` needs."""
        columns = [] if self.times == UNBOUNDED else ["timestamp"]
        return columns + [lookup.column for lookup in self.lookups or ()][:1]

    def compare(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return the rows of a batch with the wanted keys and store times."""
        import pyarrow
        import pyarrow.compute as compute  # type: ignore[import-untyped]

        for lookup in (self.lookups or ())[:1]:
            column = batch.column(lookup.column)
            wanted = [it.value for it in self.lookups or ()]
            batch = batch.filter(compute.is_in(column, pyarrow.array(wanted, column.type)))
        for bound, holds in (
            (self.times.start, compute.greater_equal),
            (self.times.end, compute.less),
        ):
            if bound is not None:
                times = batch.column("timestamp").cast(pyarrow.int64())
                batch = batch.filter(holds(times, bound * 1000))
        return batch


def take(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Return what to push down of filters that must all hold, and those left for Spark."""
    pushed = Pushed()
    left = []
    for one in filters:
        name = _column(one)
        if isinstance(one, datasource.IsNotNull) and name in _NEVER_NULL:
            continue
        if name in _FIXED and _is_of(one, _FIXED[name][0]):
            pushed = replace(pushed, fixed=(*pushed.fixed, one))
            continue
        if name == "offset" and _is_of(one, int):
            span = _span(one, lambda value: (value, value))
            pushed = replace(pushed, offsets=pushed.offsets.within(span))
        elif name in _TIMES and _is_of(one, datetime):
            span = _span(one, milliseconds)
            pushed = replace(pushed, times=pushed.times.within(span))
        else:
            pushed = _select(pushed, one)
            left.append(one)
            continue
        if isinstance(one, datasource.In | datasource.Not):
            left.append(one)
    return pushed, left


def _column(one: Filter) -> str | None:
    """Return the column that a filter tests; `None` if it tests a nested field or no column."""
    if isinstance(one, datasource.Not):
        return _column(one.child)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else None


def _is_of(one: Filter, kind: type) -> bool:
    """Return whether a filter compares only with values of this type, none of them null."""
    if isinstance(one, datasource.Not):
        return _is_of(one.child, kind)
    if type(one) not in _HOLDS:
        return False
    return all(isinstance(value, kind) for value in _values(one))


def _values(one: Any) -> tuple[Any, ...]:
    return tuple(one.value) if isinstance(one, datasource.In) else (one.value,)


def _is_equality(
    one: Filter,
) -> TypeGuard[datasource.EqualTo | datasource.EqualNullSafe | datasource.In]:
    return isinstance(one, datasource.EqualTo | datasource.EqualNullSafe | datasource.In)


def _holds(one: Any, found: Range) -> bool:
    if isinstance(one, datasource.Not):
        return not _holds(one.child, found)
    _, value_of = _FIXED[one.attribute[0]]
    return _HOLDS[type(one)](value_of(found), one.value)


def _span(one: Any, numbers: Callable[[Any], tuple[int, int]]) -> Span:
    """Return a span outside of which a filter does not hold.

    `numbers` rounds a value down and up to integers.
    """
    if isinstance(one, datasource.Not):
        return Span()
    bounds = [numbers(value) for value in _values(one)]
    if not bounds:
        return Span(0, 0)
    below, above = max(low for low, _ in bounds), min(high for _, high in bounds)
    if isinstance(one, datasource.GreaterThan):
        return Span(start=below + 1)
    if isinstance(one, datasource.GreaterThanOrEqual):
        return Span(start=above)
    if isinstance(one, datasource.LessThan):
        return Span(end=above)
    if isinstance(one, datasource.LessThanOrEqual):
        return Span(end=below + 1)
    return Span(above, below + 1)


def _select(pushed: Pushed, one: Filter) -> Pushed:
    """Push down an equality on keys or tags; only the first one on each is used."""
    if not _is_equality(one):
        return pushed
    name = _column(one)
    # A null in a list equals nothing.
    values = [value for value in dict.fromkeys(_values(one)) if value is not None]
    if name == "tags" and pushed.tags is None:
        if values and all(isinstance(value, str) and _is_exact(value) for value in values):
            return replace(pushed, tags=tuple(values))
    elif name in ("key", "keys") and pushed.lookups is None:
        lookups = [_lookup(name, value) for value in values]
        known = tuple(lookup for lookup in lookups if lookup is not None)
        if len(known) == len(lookups) and 0 < len(known) <= _LOOKUPS_MAX:
            return replace(pushed, lookups=known)
    return pushed


def _lookup(column: str, value: object) -> Lookup | None:
    """Return how to find rows with this value; `None` if the index cannot find it."""
    if column == "key" and isinstance(value, bytes | bytearray):
        if b" " in value:
            # No key is stored with a space in it: such a key is stored as base64.
            return Lookup(b64encode(value).decode(), column, bytes(value))
        try:
            text = bytes(value).decode()
        except UnicodeDecodeError:
            return None
        # Spark's writer encodes such keys, but another writer may have stored them as they are.
        doubtful = text == "" or any(it.isspace() or category(it) == "Cc" for it in text)
        return None if doubtful else Lookup(text, column, bytes(value))
    if column == "keys" and isinstance(value, str) and _is_exact(value):
        first = next((word for word in value.split(" ") if word), None)
        return None if first is None else Lookup(first, column, value)
    return None


def _is_exact(text: str) -> bool:
    """Return whether only one stored value reads as this text; invalid UTF-8 reads as U+FFFD."""
    return text != "" and "\N{REPLACEMENT CHARACTER}" not in text
