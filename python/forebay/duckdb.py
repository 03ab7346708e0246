"""Topics as views of a DuckDB connection.

A query reads only the columns and the ranges of rows that it needs. `forebay.duckdb` needs
``pip install 'forebay[duckdb]'``.

Examples
--------
>>> import duckdb
>>> import forebay.duckdb
>>> with forebay.open(":memory:") as store, duckdb.connect() as con:
...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b", b"c"])
...     forebay.duckdb.attach(con, store)
...     con.sql('from orders select body where "offset" >= 1').fetchall()
('orders',)
[(b'b',), (b'c',)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from forebay._forebay import Scan, Store
from forebay.dead_letters import prefixes
from forebay.given import check, listed
from forebay.selection import QueueRange, open_reader, ranges, require, scan_ranges

if TYPE_CHECKING:
    import duckdb

__all__ = ["attach"]

#: Above any store time that is not damaged: the year 9999, in ms.
_TIME_MAX = 253_402_300_800_000


def attach(
    con: duckdb.DuckDBPyConnection,
    store: Store,
    topics: str | Iterable[str] | Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Make each topic a view of a connection, by the topic's name.

    Each query reads the store as it is then. The store must be open while a query runs. Topics
    that are created later need another call; a second call replaces views of the same name.

    DuckDB passes to the scan which columns a query uses, and conditions that compare columns with
    constants. The scan reads those columns, and in each queue the range of offsets that the
    conditions on ``topic``, ``queue``, ``offset`` and ``store_timestamp`` allow. Other rows within
    the range are read and dropped. DuckDB passes no limit, but stops reading after a batch or two.

    Parameters
    ----------
    con
        The connection.
    store
        The store.
    topics
        Topics to attach; by default those that the store has, without retries and dead letters:
        topics whose names begin with ``%``, in a partition log with ``retry.`` or ``dlq.``. A
        mapping gives other names to the views: ``{"view": "topic"}``.

    Returns
    -------
    tuple of str
        Names of the views. One with other characters than letters, digits and ``_`` is quoted in
        SQL: ``from "%DLQ%billing"``.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    UnknownTopicError
        If there is no such topic.
    ValueError
        If the names of two views differ only in case: DuckDB ignores it. Pass a mapping.

    Examples
    --------
    >>> import duckdb
    >>> import forebay.duckdb
    >>> with forebay.open(":memory:") as store, duckdb.connect() as con:
    ...     _ = store.send("orders", b"a"), store.send("orders", b"b")
    ...     _ = forebay.duckdb.attach(con, store, {"o": "orders"})
    ...     con.sql("select count(*) from o").fetchall()
    [(2,)]
    """
    dataset = _dataset_class()
    check("con", con, require("duckdb", "duckdb").DuckDBPyConnection, "a connection of DuckDB")
    check("store", store, Store, "a store")
    takes = "a topic, a list of topics, a mapping of views to topics, or None"
    check("topics", topics, (str, Iterable, type(None)), takes)
    if topics is None:
        hidden = ("%", *prefixes(store))
        topics = sorted(name for name in store.topics if not name.startswith(hidden))
    elif isinstance(topics, str):
        topics = [topics]
    if isinstance(topics, Mapping):
        views = dict(topics)
        listed("topics", [*views, *views.values()], str, takes)
    else:
        views = {name: name for name in listed("topics", topics, str, takes)}
    spelt: dict[str, str] = {}
    known = store.topics
    for name, topic in views.items():
        other = spelt.setdefault(name.lower(), name)
        if other != name:
            reason = "differ only in case, which DuckDB ignores"
            raise ValueError(f"{other!r} and {name!r} {reason}: pass a mapping of view to topic")
        if topic not in known:
            # Raises, in the words of the store.
            ranges(store, topic)
    for name, topic in views.items():
        con.register(name, dataset(store, topic))
    return tuple(views)


class _Stream:
    """What DuckDB asks for a reader."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def to_reader(self) -> Any:
        return self._reader


@cache
def _dataset_class() -> Any:
    """Return the class of views. pyarrow may be missing when this module is imported."""
    dataset = require("pyarrow.dataset", "duckdb")

    class TopicDataset(dataset.Dataset):  # type: ignore[misc, name-defined]
        """A topic for DuckDB, which passes conditions to pyarrow's datasets alone."""

        def __init__(self, store: Store, topic: str) -> None:
            self._store = store
            self._topic = topic

        @property
        def schema(self) -> Any:
            return require("pyarrow", "duckdb").schema(self._store.scan(self._topic))

        def scanner(
            self, columns: list[str] | None = None, filter: Any = None, **_others: Any
        ) -> Any:
            return _scanner(self._store, self._topic, self.schema, columns, filter)

    return TopicDataset


def _scanner(
    store: Store, topic: str, schema: Any, columns: list[str] | None, condition: Any
) -> Any:
    wanted = schema.names if columns is None else columns
    if condition is None:
        return _Stream(open_reader(lambda: store.scan(topic, columns=wanted)))
    dataset = require("pyarrow.dataset", "duckdb")
    # The text contains the name of each column that the condition uses.
    text = str(condition)
    read = [name for name in schema.names if name in wanted or name in text]
    reader = open_reader(lambda: _narrowed(store, topic, condition, columns=read))
    return dataset.Scanner.from_batches(
        reader, columns=wanted, filter=condition, batch_readahead=1, fragment_readahead=1
    )


def _narrowed(store: Store, topic: str, condition: Any, **shape: Any) -> Scan:
    """Return a scan of the ranges of each queue that can pass a condition."""
    field = require("pyarrow.dataset", "duckdb").field
    can_pass, text = _prober(condition), str(condition)
    rows = field("topic") == topic
    found = ranges(store, topic) if can_pass(rows) else []
    if "store_timestamp" in text:
        found = _by_time(store, topic, found, partial(_between, can_pass, rows))
    kept: list[QueueRange] = []
    for queue, first, last in found:
        there = rows & (field("queue") == queue)
        if "offset" in text:
            first, last = _narrow(first, last, partial(_offsets, can_pass, there))
        if first < last and can_pass(there):
            kept.append(QueueRange(queue, first, last))
    return scan_ranges(store, topic, kept, **shape)


def _offsets(can_pass: Callable[[Any], bool], rows: Any, low: int, high: int) -> bool:
    """Return whether rows with offsets in a range can pass."""
    offset = require("pyarrow.dataset", "duckdb").field("offset")
    return can_pass(rows & (offset >= low) & (offset < high))


def _between(can_pass: Callable[[Any], bool], rows: Any, low: int, high: int) -> bool:
    """Return whether rows with store times in a range of ms can pass."""
    import pyarrow.dataset  # type: ignore[import-untyped]

    time = pyarrow.dataset.field("store_timestamp")
    unit = pyarrow.timestamp("us", "UTC")
    first = pyarrow.scalar(low * 1000, unit)
    last = pyarrow.scalar((high - 1) * 1000, unit)
    return can_pass(rows & (time >= first) & (time <= last))


def _by_time(
    store: Store, topic: str, found: list[QueueRange], can_pass: Callable[[int, int], bool]
) -> list[QueueRange]:
    """Return the parts of ranges whose store times can pass."""
    low, high = _narrow(0, _TIME_MAX, can_pass)
    bounded = []
    for queue, first, last in found:
        if low > 0:
            first = max(first, store.offset_at(topic, queue, low))
        # Otherwise messages with earlier times may follow one with a later time.
        if high < _TIME_MAX and store._meanings.append_times:
            last = min(last, store.offset_at(topic, queue, high))
        if first < last:
            bounded.append(QueueRange(queue, first, last))
    return bounded


def _narrow(low: int, high: int, can_pass: Callable[[int, int], bool]) -> tuple[int, int]:
    """Return the smallest part of a range outside of which nothing can pass."""
    if not can_pass(low, high):
        return low, low
    # Nothing below `low` can pass, and something in [low, most) can.
    most = high
    while most - low > 1:
        middle = (low + most) // 2
        if can_pass(low, middle):
            most = middle
        else:
            low = middle
    # Something in [least, high) can pass, and nothing from `high` on.
    least = low
    while high - least > 1:
        middle = (least + high) // 2
        if can_pass(middle, high):
            least = middle
        else:
            high = middle
    return low, high


def _prober(condition: Any) -> Callable[[Any], bool]:
    """Return a function that says whether rows of which something is known can pass a condition.

    pyarrow has no way to look into an expression, but leaves out the files of a dataset whose
    partition contradicts one. So a file stands for the rows; it is never opened.
    """
    import pyarrow.dataset
    import pyarrow.fs  # type: ignore[import-untyped]

    # DuckDB's constants have microseconds.
    time = pyarrow.timestamp("us", "UTC")
    known = [
        ("topic", pyarrow.utf8()),
        ("queue", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("position", pyarrow.int64()),
        ("store_timestamp", time),
        ("born_timestamp", time),
        ("keys", pyarrow.utf8()),
        ("tags", pyarrow.utf8()),
        ("properties", pyarrow.map_(pyarrow.utf8(), pyarrow.utf8())),
        ("body", pyarrow.binary()),
    ]
    schema = pyarrow.schema(known)
    form = pyarrow.dataset.IpcFileFormat()
    place = pyarrow.fs.LocalFileSystem()

    def can_pass(rows: Any) -> bool:
        file = form.make_fragment("rows", filesystem=place, partition_expression=rows)
        files = pyarrow.dataset.FileSystemDataset([file], schema, form)
        return any(True for _ in files.get_fragments(condition))

    return can_pass
