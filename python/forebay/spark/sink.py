"""Writing: ``df.write.format("forebay")`` and ``df.writeStream.format("forebay")``.

Tasks stage their rows beside the store (`forebay.spark.stage`). The driver commits: it leaves a
manifest that names the stages that count, and whoever writes the store appends them, each commit
exactly once. That is this process where nobody else has the store open for writing; else it waits
for the one that has.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import forebay
from forebay import _forebay
from forebay.errors import ForebayError, StoreFailedError, StoreLockedError, UnsupportedError
from forebay.spark.errors import invalid
from forebay.spark.options import directory
from forebay.spark.stage import Staged, StageMessage, stage

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType

    from forebay import Message

_NAMES = ("path", "topic", "commitTimeout")
#: Options that Spark's own writer hands on with the format's.
_SPARKS = ("checkpointlocation", "queryname")
_COMMIT_TIMEOUT = 60.0
#: The topic of the rows that say which commits the log holds.
_MARKERS = "rmq_sys_forebay_commits"
#: Markers that are looked at before the index is asked.
_RECENT = 256
#: The property of a task that names the query of a stream: the same over all its runs.
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class WriteOptions:
    """Where to write."""

    path: str
    #: Where all rows go; without it the column of that name says.
    topic: str | None = None
    #: How long a commit waits for the process that writes the store, in seconds.
    commit_timeout: float = _COMMIT_TIMEOUT


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write; names are given in any case.

    Raises
    ------
    InvalidOptionError
        If a name is unknown, or a value is not allowed.
    """
    names = {name.lower(): name for name in _NAMES}
    options = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is not None:
            options[known] = value
        elif name.lower().startswith("kafka."):
            reason = "options of a Kafka client have no meaning for a directory"
            raise invalid(name, value, reason)
        elif name.lower() not in _SPARKS:
            reason = f"there is no such option of a write; there are {', '.join(_NAMES)}"
            raise invalid(name, value, reason)
    timeout = _COMMIT_TIMEOUT
    if "commitTimeout" in options:
        text = options["commitTimeout"]
        try:
            timeout = float(text)
        except ValueError:
            timeout = math.nan
        if not 0 < timeout < 1e9:
            raise invalid("commitTimeout", text, "it is a number of seconds above 0")
    path = directory("path", options.get("path", ""), ".save(path), .start(path)")
    return WriteOptions(path, options.get("topic"), timeout)


def check_write(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, modes: str
) -> WriteOptions:
    """Return the options, once all is checked that is known before a task runs.

    Raises
    ------
    InvalidOptionError
        If an option is not allowed, or a column is unknown, missing, or of a wrong type.
    UnsupportedError
        If what is there is to be overwritten: a log is appended to.
    ForebayError
        If there can be no store of ours at the path, or the topic cannot be one.
    """
    parsed = parse_write_options(options)
    if overwrite:
        message = f"a log is only appended to: use {modes}; to begin anew, write to another path"
        raise UnsupportedError(message)
    check_schema(schema, parsed.topic)
    if parsed.topic is not None:
        _forebay.check_topic(parsed.topic)
    _forebay.stage_target(parsed.path)
    return parsed


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuse columns that are none of a message; these are the Kafka sink's, and two more.

    Raises
    ------
    InvalidOptionError
        If a column is unknown, named twice, missing, or of a wrong type.
    """
    from pyspark.sql import types

    words = (types.StringType, types.BinaryType)
    wanted: dict[str, tuple[tuple[type[DataType], ...], str]] = {
        "value": (words, "string or binary"),
        "key": (words, "string or binary"),
        "topic": ((types.StringType,), "string"),
        "partition": ((types.IntegerType,), "int"),
        "headers": ((types.ArrayType,), "array<struct<key: string, value: binary>>"),
        "timestamp": ((types.TimestampType,), "timestamp"),
        "tags": ((types.StringType,), "string"),
    }
    names = [field.name for field in schema.fields]
    for place, field in enumerate(schema.fields):
        if field.name not in wanted:
            reason = f"there is no such column of a message; there are {', '.join(wanted)}"
            raise invalid("columns", field.name, reason)
        if field.name in names[:place]:
            raise invalid("columns", field.name, "it is there twice")
        kinds, word = wanted[field.name]
        found = field.dataType
        good = isinstance(found, kinds) and (field.name != "headers" or _are_headers(found))
        if not (good or (isinstance(found, types.NullType) and field.name != "value")):
            reason = f"its type is {found.simpleString()} and has to be {word}"
            raise invalid("columns", field.name, reason)
    if "value" not in names:
        raise invalid("columns", ", ".join(names), "a column value is needed, string or binary")
    if topic is None and "topic" not in names:
        reason = "where the rows go is not said: set the option topic, or give a column topic"
        raise invalid("columns", ", ".join(names), reason)


def _are_headers(found: DataType) -> bool:
    from pyspark.sql import types

    assert isinstance(found, types.ArrayType)
    entry = found.elementType
    if not isinstance(entry, types.StructType) or entry.fieldNames() != ["key", "value"]:
        return False
    key, value = (field.dataType for field in entry.fields)
    return isinstance(key, types.StringType) and isinstance(value, types.BinaryType)


class ForebayWriter(DataSourceArrowWriter):
    """Writes a DataFrame: one commit, of a query that is never named again."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._query = uuid.uuid4().hex

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return stage(self._options.path, self._query, self._options.topic, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what the tasks have staged; durable on return.

        Raises
        ------
        StoreLockedError
            If the process that writes the store has not done so in time. If it had not begun,
            nothing was written, and nothing will be; else it, or whoever opens the store next, ends
            what is begun. The error says which.
        """
        _commit(self._options, "batch", self._query, 0, _staged(messages))
        _forebay.close_query(self._options.path, self._query)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take away what the tasks have staged, but for a commit that is begun."""
        _discard(self._options.path, messages)


class ForebayStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(_QUERY_ID)
        if not query:
            message = f"the task of a stream has no {_QUERY_ID}: exactly once cannot be had"
            raise UnsupportedError(message)
        return stage(self._options.path, query, self._options.topic, iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Append what the tasks have staged, unless the batch is in the log; durable on return.

        Raises
        ------
        StoreLockedError
            If the process that writes the store has not done so in time. The commit stays: it, or
            whoever opens the store next, will append it, and the batch that is run again finds it.
        """
        queries = {m.query for m in messages if isinstance(m, StageMessage)}
        staged = _staged(messages)
        if staged:
            assert len(queries) == 1, queries
            _commit(self._options, "stream", queries.pop(), batchId, staged)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Take away what the tasks have staged, unless a commit names it."""
        _discard(self._options.path, messages)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    found = [m.staged for m in messages if isinstance(m, StageMessage)]
    return [staged for staged in found if staged is not None]


def _discard(path: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    names: dict[str, list[str]] = {}
    for message in messages:
        if isinstance(message, StageMessage) and message.staged is not None:
            names.setdefault(message.query, []).append(message.staged[0])
    for query, stages in names.items():
        _forebay.discard_stages(path, query, stages)


def _commit(options: WriteOptions, kind: str, query: str, batch: int, staged: list[Staged]) -> None:
    """Leave a manifest, and see to it that it is taken up."""
    try:
        if staged:
            _forebay.publish_commit(options.path, query, batch, kind, staged)
        _settle(options, kind, query, batch, nothing=not staged)
    except BaseException:
        # What a job has failed to write must not appear later, if that can be helped. A manifest
        # may be visible though publishing it failed: it is synced behind the renaming.
        if kind == "batch":
            _forebay.withdraw_commit(options.path, query, batch)
        raise


def _settle(options: WriteOptions, kind: str, query: str, batch: int, *, nothing: bool) -> None:
    """Take a commit up, where nobody else writes the store; else wait until it is dealt with."""
    path = options.path
    deadline = time.monotonic() + options.commit_timeout
    while True:
        locked, failure = False, None
        try:
            with forebay.open(path, mode="a") as store:
                try:
                    _forebay.take_commits(store)
                except ForebayError as error:
                    # That of another query, perhaps.
                    failure = error
        except StoreLockedError:
            locked = True
        left = max(deadline - time.monotonic(), 0) if locked else 0
        state, reason, held = _forebay.wait_for_commit(path, query, batch, left)
        if state == "refused":
            message = f"batch {batch} of query {query} cannot be appended to {path}: {reason}"
            raise StoreFailedError(message, reason=reason, appended=False)
        if state == "gone":
            if locked and not nothing:
                _check_marker(path, query, batch)
            return
        if failure is not None:
            raise failure
        if deadline > time.monotonic() and not (locked and held):
            # Whoever wrote the store has closed it, or died: it is ours to open.
            continue
        withdrawn = kind == "batch" and _forebay.withdraw_commit(path, query, batch)
        raise _late(options, kind, query, batch, withdrawn=withdrawn)


def _check_marker(path: str, query: str, batch: int) -> None:
    """See that the log holds a commit whose manifest another process has taken away."""

    def is_of_it(marker: Message) -> bool:
        said = json.loads(marker.body)
        return bool(said["query"] == query and said["batch"] >= batch)

    with forebay.open(path, mode="r") as store:
        if _MARKERS in store.topics:
            queue = store.topics[_MARKERS].queues[0]
            start = max(queue.min_offset, queue.max_offset - _RECENT)
            if any(map(is_of_it, store.read(_MARKERS, 0, start, max_messages=_RECENT))):
                return
            if any(map(is_of_it, store.query(_MARKERS, query))):
                return
    reason = "its manifest is gone, and the log holds no marker of it"
    message = f"batch {batch} of query {query} is not in {path}: {reason}"
    raise StoreFailedError(message, reason=reason, appended=False)


def _late(
    options: WriteOptions, kind: str, query: str, batch: int, *, withdrawn: bool
) -> StoreLockedError:
    """Return the error for a commit that was not taken up in time."""
    pid = _forebay.writer_of(options.path)
    who = "another process, which one is unknown," if pid is None else f"process {pid}"
    if withdrawn:
        what = "the commit is withdrawn: nothing was written"
    elif kind == "batch":
        what = "it has begun to append and will end it, or whoever opens the store next does"
    else:
        what = (
            "the commit stays pending: it is taken up by that process or by the next one that "
            "opens the store, and the batch that is run again finds it"
        )
    message = (
        f"{options.path} is being written by {who} and it has not taken up batch {batch} of query "
        f"{query} within commitTimeout, {options.commit_timeout:g} s: {what}"
    )
    return StoreLockedError(message, path=options.path, pid=pid)
