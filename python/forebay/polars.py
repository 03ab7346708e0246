"""Topics as `LazyFrame` of Polars.

The scan reads only the columns and rows that a query needs. `forebay.polars` needs
``pip install 'forebay[polars]'``.

Examples
--------
>>> import forebay.polars
>>> import polars
>>> with forebay.open(":memory:") as store:
...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b", b"c"])
...     orders = forebay.polars.scan(store, "orders")
...     orders.filter(polars.col("offset") >= 1).select("body").collect()["body"].to_list()
[b'b', b'c']
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

from forebay._forebay import Scan, Store
from forebay.given import check, listed
from forebay.selection import (
    UNBOUNDED,
    QueueRange,
    Span,
    open_reader,
    ranges,
    require,
    scan_ranges,
)
from forebay.times import milliseconds

if TYPE_CHECKING:
    import polars

    from forebay.options import BodyType, Bound

__all__ = ["scan"]

#: Rows of a batch where Polars does not ask for fewer.
_BATCH_ROWS = 65_536

#: Comparisons, and what they are with both sides swapped.
_SWAPPED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_CLOSED = {
    "Both": ("GtEq", "LtEq"),
    "Left": ("GtEq", "Lt"),
    "Right": ("Gt", "LtEq"),
    "None": ("Gt", "Lt"),
}


def scan(
    store: Store,
    topic: str | Iterable[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    queues: Iterable[int] | None = None,
    start: Bound = "earliest",
    end: Bound = "latest",
    tags: str | Iterable[str] | None = None,
    key: str | bytes | None = None,
    body_type: BodyType = "binary",
    verify: bool = True,
) -> polars.LazyFrame:
    """Return the messages of a topic as a lazy frame.

    Nothing is read before the frame is collected, and each collection reads the store as it is
    then. The store must be open until the collection ends.

    Polars passes to the scan which columns a query uses, a limit of rows, and conditions that all
    must hold: those on ``topic`` and ``queue``, comparisons of ``offset`` and ``store_timestamp``
    with constants, and equality of ``keys`` and ``tags`` with a constant. Polars evaluates all
    conditions again.

    Parameters
    ----------
    store
        The store.
    topic, columns, queues, start, end, tags, key, body_type, verify
        As for `Store.scan`.

    Returns
    -------
    polars.LazyFrame
        ``topic`` is a ``Categorical``, ``properties`` a map; the other types are those of the
        Arrow table.

    Raises
    ------
    ImportError
        If Polars or pyarrow is missing.
    UnknownTopicError, OffsetOutOfRangeError
        When the frame is collected, as for `Store.scan`.

    Examples
    --------
    >>> import forebay.polars
    >>> with forebay.open(":memory:") as store:
    ...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b"], tags=["x", "y"])
    ...     frame = forebay.polars.scan(store, "orders").select("offset", "tags").collect()
    >>> frame.rows()
    [(0, 'x'), (1, 'y')]
    """
    plugins = require("polars.io.plugins", "polars")
    require("pyarrow", "polars")
    check("store", store, Store, "a store")
    if topic is not None and not isinstance(topic, str):
        topic = listed("topic", topic, str, "a topic, a list of topics, or None")
    if queues is not None:
        # To ask whether a value is a SupportsIndex takes a hundred times as long.
        kinds = (int, SupportsIndex)
        queues = listed("queues", queues, kinds, "a list of queues, or None")
    if tags is not None and not isinstance(tags, str):
        tags = listed("tags", tags, str, "a tag, a list of tags, or None")
    import polars

    source = _Source(
        store,
        [topic] if isinstance(topic, str) else topic,
        queues,
        start,
        end,
        {
            "tags": tags,
            "key": key,
            "body_type": body_type,
            "verify": verify,
        },
    )
    whole = store.scan(source.topics, columns=columns, start=start, end=end, **source.others)
    source.columns = whole.columns
    frame: polars.LazyFrame = plugins.register_io_source(
        source, schema=polars.Schema(whole), is_pure=True
    )
    return frame


@dataclass(frozen=True)
class _Pushed:
    """The part of a condition that the scan applies; without one, everything is read."""

    #: Conditions on topic and queue alone.
    fixed: tuple[polars.Expr, ...] = ()
    offsets: Span = UNBOUNDED
    #: Store times in ms.
    times: Span = UNBOUNDED
    tags: str | None = None
    keys: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether only parts of the queues are read."""
        return bool(self.fixed) or self.offsets != UNBOUNDED or self.times != UNBOUNDED


class _Source:
    """What Polars calls for the batches of one collection."""

    columns: list[str]

    def __init__(
        self,
        store: Store,
        topics: list[str] | None,
        queues: list[int] | None,
        start: Bound,
        end: Bound,
        others: dict[str, Any],
    ) -> None:
        self._store = store
        self.topics = topics
        self._queues = queues
        self._start = start
        self._end = end
        self.others = others

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        """Yield frames of the wanted columns with the rows that pass the condition.

        `n_rows` limits the rows before the condition is applied.
        """
        import polars

        wanted = self.columns if with_columns is None else with_columns
        read = list(wanted)
        pushed = _Pushed()
        if predicate is not None:
            read += [name for name in predicate.meta.root_names() if name not in read]
            if n_rows is None:
                pushed = _push(predicate)
        batch_rows = min(batch_size or _BATCH_ROWS, n_rows or _BATCH_ROWS, _BATCH_ROWS)
        left = n_rows
        for plan in self._plans(pushed, columns=read, batch_rows=batch_rows):
            for batch in open_reader(plan):
                frame = polars.DataFrame(batch)
                if left is not None:
                    frame = frame.head(left)
                    left -= len(frame)
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame.select(wanted)
                if left == 0:
                    return

    def _plans(self, pushed: _Pushed, **shape: Any) -> list[Callable[[], Scan]]:
        """Return what makes the scans to read, one after another."""
        store, others = self._store, self.others | shape
        if pushed.tags and others["tags"] is None:
            others["tags"] = [pushed.tags]
        if pushed.keys and others["key"] is None:
            # Outside of Kafka's form, spaces separate the keys of a message.
            is_one = store._meanings.in_kafka_form
            others["key"] = pushed.keys if is_one else pushed.keys.split(" ")[0] or None
        if not pushed.narrows:
            bounds: dict[str, Any] = {"start": self._start, "end": self._end}
            whole = partial(store.scan, self.topics, queues=self._queues, **bounds, **others)
            return [whole]
        topics = self.topics if self.topics is not None else sorted(store.topics)
        return [partial(self._narrowed, topic, pushed, others) for topic in topics]

    def _narrowed(self, topic: str, pushed: _Pushed, others: dict[str, Any]) -> Scan:
        found = ranges(self._store, topic, self._queues, self._start, self._end)
        kept = _keep(topic, [it.queue for it in found], pushed.fixed)
        offset_at, narrowed = self._store.offset_at, []
        for queue, first, last in found:
            if queue not in kept:
                continue
            span = Span(first, last).within(pushed.offsets)
            for bound, time in (("start", pushed.times.start), ("end", pushed.times.end)):
                # Otherwise messages with earlier times may follow one with a later time.
                is_sharp = bound == "start" or self._store._meanings.append_times
                if time is not None and is_sharp:
                    at = offset_at(topic, queue, time)
                    span = span.within(replace(UNBOUNDED, **{bound: at}))
            if span.start is not None and span.end is not None and span.start < span.end:
                narrowed.append(QueueRange(queue, span.start, span.end))
        return scan_ranges(self._store, topic, narrowed, **others)


def _keep(topic: str, queues: list[int], fixed: Iterable[polars.Expr]) -> set[int]:
    """Return the queues of a topic that pass conditions on topic and queue."""
    import polars

    schema = {"topic": polars.Categorical, "queue": polars.Int32}
    rows = polars.DataFrame({"topic": [topic] * len(queues), "queue": queues}, schema=schema)
    return set(rows.filter(*fixed)["queue"])


def _push(predicate: polars.Expr) -> _Pushed:
    """Return the part of a condition that the scan can apply."""
    pushed = _Pushed()
    for node in _conjuncts(json.loads(predicate.meta.serialize(format="json"))):
        try:
            pushed = _push_one(pushed, node)
        except Exception:
            # The form of a serialised expression is Polars' own and may change.
            continue
    return pushed


def _conjuncts(node: Any) -> Iterator[Any]:
    """Yield the conditions that must all hold."""
    pending = [node]
    while pending:
        node = pending.pop()
        inner = node.get("BinaryExpr") if isinstance(node, dict) else None
        if inner is not None and inner.get("op") in ("And", "LogicalAnd"):
            pending += [inner["right"], inner["left"]]
        else:
            yield node


def _expression(node: Any) -> polars.Expr:
    import polars

    return polars.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")


def _push_one(pushed: _Pushed, node: Any) -> _Pushed:
    whole = _expression(node)
    roots = set(whole.meta.root_names())
    if roots and roots <= {"topic", "queue"}:
        _keep("topic", [0], [whole])
        return replace(pushed, fixed=(*pushed.fixed, whole))
    if not roots:
        passes = True in _constants(node)
        return pushed if passes else replace(pushed, offsets=Span(0, 0))
    for column, comparison, values in _comparisons(node):
        if column == "offset":
            span = _span(comparison, values, lambda value: (value, value), int)
            pushed = replace(pushed, offsets=pushed.offsets.within(span))
        elif column == "store_timestamp":
            span = _span(comparison, values, milliseconds, datetime)
            pushed = replace(pushed, times=pushed.times.within(span))
        elif column in ("keys", "tags") and comparison == "Eq" and _is_exact(values):
            pushed = replace(pushed, **{column: values[0]})
    return pushed


def _comparisons(node: Any) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the comparisons of a column with constants that a condition implies."""
    if inner := node.get("BinaryExpr"):
        left, right, comparison = inner["left"], inner["right"], inner["op"]
        if "Column" in right:
            left, right, comparison = right, left, _SWAPPED[comparison]
        if "Column" in left and comparison in _SWAPPED:
            yield left["Column"], comparison, _constants(right)
        return
    function = node["Function"]["function"]["Boolean"]
    column, *others = node["Function"]["input"]
    if "IsIn" in function:
        yield column["Column"], "Eq", _constants(others[0])
    elif "IsBetween" in function:
        lower, upper = _CLOSED[function["IsBetween"]["closed"]]
        yield column["Column"], lower, _constants(others[0])
        yield column["Column"], upper, _constants(others[1])


def _constants(node: Any) -> list[Any]:
    """Return the values of an expression without columns, without nulls."""
    import polars

    expression = _expression(node)
    if expression.meta.root_names():
        raise ValueError("the expression uses a column")
    values = polars.select(expression).to_series()
    if isinstance(values.dtype, polars.List | polars.Array):
        values = values.explode()
    if isinstance(values.dtype, polars.Datetime) and values.dtype.time_unit == "ns":
        raise ValueError("a Python datetime has microseconds")
    return values.drop_nulls().to_list()


def _span(
    comparison: str, values: list[Any], numbers: Callable[[Any], tuple[int, int]], kind: type
) -> Span:
    """Return a span that contains every value that compares so with one of the constants.

    `numbers` rounds a value down and up to integers.
    """
    if not all(type(value) is kind for value in values):
        return UNBOUNDED
    if any(isinstance(value, datetime) and value.tzinfo is None for value in values):
        return UNBOUNDED
    bounds = [numbers(value) for value in values]
    if not bounds:
        # A comparison with null is never true.
        return Span(0, 0)
    below, above = max(low for low, _ in bounds), min(high for _, high in bounds)
    return {
        "Gt": Span(start=below + 1),
        "GtEq": Span(start=above),
        "Lt": Span(end=above),
        "LtEq": Span(end=below + 1),
        "Eq": Span(above, below + 1),
    }[comparison]


def _is_exact(values: list[Any]) -> bool:
    """Return whether there is one text, and only one stored value reads as it.

    Invalid UTF-8 reads as U+FFFD.
    """
    text = values[0] if len(values) == 1 else None
    return isinstance(text, str) and "\N{REPLACEMENT CHARACTER}" not in text
