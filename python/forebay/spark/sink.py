"""Writing: ``df.write.format("forebay")`` and ``df.writeStream.format("forebay")``.

Tasks stage their rows beside the store (`forebay.spark.stage`). The driver commits: it leaves a
manifest that names the stages that count, and whoever writes the store appends them, each commit
exactly once. That is this process where nobody else has the store open for writing; else it waits
for the one that has.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
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
from forebay.errors import (
    DiskFullError,
    ForebayError,
    StoreFailedError,
    StoreLockedError,
    UnsupportedError,
)
from forebay.spark.errors import invalid, unknown
from forebay.spark.options import LONG_MAX, directory, truth
from forebay.spark.stage import Staged, StageMessage, stage

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType


_NAMES = (
    "path",
    "topic",
    "commitTimeout",
    "batchConflict",
    "txnAppId",
    "txnVersion",
    "ignoreExtraColumns",
)
#: Options that Spark's own writer hands on with the format's.
_SPARKS = ("checkpointlocation", "queryname")
_COMMIT_TIMEOUT = 60.0
#: How long a job tries to withdraw its commit, in seconds.
_WITHDRAWAL_S = 2.0
_CONFLICTS = ("fail", "append", "skip")
#: Application ids that are part of the name of a query as they are; others go by their hash.
_PLAIN_ID = re.compile("[A-Za-z0-9_-]{1,60}")
#: The property of a task that names the query of a stream: the same over all its runs.
_QUERY_ID = "sql.streaming.queryId"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WriteOptions:
    """Where to write."""

    path: str
    #: Where all rows go; without it the column of that name says.
    topic: str | None = None
    #: How long a commit waits for the process that writes the store while that appends none, in
    #: seconds.
    commit_timeout: float = _COMMIT_TIMEOUT
    #: What becomes of a batch whose number the log holds with other rows.
    batch_conflict: str = "fail"
    #: The application and the version of a batch write that is done once, however often it is run.
    transaction: tuple[str, int] | None = None
    #: Whether columns that are none of a message are passed over.
    ignore_extra: bool = False


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
            raise unknown(name, "options of a Kafka client have no meaning for a directory")
        elif name.lower() not in _SPARKS:
            reason = f"there is no such option of a write; there are {', '.join(_NAMES)}"
            raise unknown(name, reason)
    timeout = _COMMIT_TIMEOUT
    if "commitTimeout" in options:
        text = options["commitTimeout"]
        try:
            timeout = float(text)
        except ValueError:
            timeout = math.nan
        if not 0 < timeout < 1e9:
            raise invalid("commitTimeout", text, "it is a number of seconds above 0")
    transaction = _transaction(options)
    # An application that repeats a version means the write that is done.
    conflict = options.get("batchConflict", "fail" if transaction is None else "skip")
    if conflict not in _CONFLICTS:
        raise invalid("batchConflict", conflict, f"it is one of {', '.join(_CONFLICTS)}")
    path = directory("path", options.get("path", ""), ".save(path), .start(path)")
    ignore = truth(options, "ignoreExtraColumns", default=False)
    return WriteOptions(path, options.get("topic"), timeout, conflict, transaction, ignore)


def _transaction(options: Mapping[str, str]) -> tuple[str, int] | None:
    names = ("txnAppId", "txnVersion")
    given = [name for name in names if name in options]
    if not given:
        return None
    if len(given) == 1:
        (missing,) = set(names) - set(given)
        reason = f"{missing} is missing: both are given, or neither"
        raise invalid(given[0], options[given[0]], reason)
    app, text = (options[name] for name in names)
    if not app:
        raise invalid("txnAppId", app, "it has at least one character")
    version = text.strip()
    if re.fullmatch("[0-9]{1,19}", version) is None or int(version) > LONG_MAX:
        raise invalid("txnVersion", text, f"it is a whole number from 0 to {LONG_MAX}")
    return app, int(version)


def query_of(app: str) -> str:
    """Return the name of the query whose batches are the versions of an application.

    It is no name that Spark gives to a stream. An id with characters that a name cannot have, or
    that is too long, goes by its hash, under another prefix.
    """
    if _PLAIN_ID.fullmatch(app) is not None:
        return f"txn-{app}"
    return f"txn_{hashlib.sha256(app.encode()).hexdigest()[:40]}"


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
    check_schema(schema, parsed.topic, ignore_extra=parsed.ignore_extra)
    if parsed.topic is not None:
        _forebay.check_topic(parsed.topic)
    _forebay.stage_target(parsed.path)
    return parsed


#: The columns of a message; these are the Kafka sink's, and two more.
COLUMNS = ("value", "key", "topic", "partition", "headers", "timestamp", "tags")


def check_schema(schema: StructType, topic: str | None, *, ignore_extra: bool = False) -> None:
    """Refuse columns that are none of a message, unless these are passed over.

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
        if field.name not in COLUMNS:
            if field.name.lower() in COLUMNS:
                # Passed over, it would be lost by a slip.
                raise invalid("columns", field.name, f"its name is {field.name.lower()}")
            if ignore_extra:
                continue
            reason = (
                f"there is no such column of a message; there are {', '.join(COLUMNS)}; "
                'set ignoreExtraColumns to "true" to pass over others'
            )
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


def _stage(
    options: WriteOptions, query: str, batches: Iterator[pyarrow.RecordBatch]
) -> StageMessage:
    """Stage the rows of a task, by the columns of a message alone."""
    if options.ignore_extra:
        batches = (
            batch.select([name for name in batch.schema.names if name in COLUMNS])
            for batch in batches
        )
    return stage(options.path, query, options.topic, batches)


class ForebayWriter(DataSourceArrowWriter):
    """Writes a DataFrame: one commit.

    It is a batch of the application that the options name. Where they name none, it is the only one
    of a query that is never named again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        found = options.transaction
        self._query = uuid.uuid4().hex if found is None else query_of(found[0])

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return _stage(self._options, self._query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what the tasks have staged; durable on return.

        The version of an application is appended unless the log holds it or a later one.

        Raises
        ------
        StoreLockedError
            If the process that writes the store has not done so in time. If it had not begun,
            nothing was written, and nothing will be; else it, or whoever opens the store next, ends
            what is begun. The error says which. That of a version stays, and the write that is run
            again finds it.
        StoreFailedError
            If ``batchConflict`` is ``fail`` and the log holds the version with other rows, or a
            later one.
        """
        options, staged = self._options, _staged(messages)
        if options.transaction is None:
            _commit(options, "batch", self._query, 0, staged)
            _forebay.close_query(options.path, self._query)
            return
        app, version = options.transaction
        if not staged:
            return
        _commit(options, "stream", self._query, version, staged)
        if options.batch_conflict == "skip" and self._is_passed_over(version, staged):
            _log.warning(
                "version %d of txnAppId %r counts as done, because %s holds it or a later one with "
                "other rows; these %d rows were not written",
                version,
                app,
                options.path,
                sum(contents[0] for _, contents, _ in staged),
            )

    def _is_passed_over(self, version: int, staged: list[Staged]) -> bool:
        """Whether the log holds the version with other rows, as far as that can be told."""
        path, contents = self._options.path, _contents(staged)
        try:
            return not _holds(path, self._query, version, contents, skips=False)
        except (ForebayError, OSError):
            # The write is done: this is asked for a warning alone.
            return False

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take away what the tasks have staged, but for a commit that is begun."""
        _discard(self._options.path, messages)


class ForebayStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        if options.transaction is not None:
            reason = "it is for batch writes; Spark numbers the batches of a stream itself"
            raise invalid("txnAppId", options.transaction[0], reason)
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(_QUERY_ID)
        if not query:
            message = f"the task of a stream has no {_QUERY_ID}: exactly once cannot be had"
            raise UnsupportedError(message)
        return _stage(self._options, query, iterator)

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
        StoreFailedError
            If the log holds the batch with other rows: the checkpoint was rolled back, copied or
            forked. The option ``batchConflict`` says what becomes of it else.
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
    path, own = options.path, not staged
    contents = _contents(staged)
    while True:
        try:
            if staged:
                own = _forebay.publish_commit(
                    path, query, batch, kind, staged, options.batch_conflict
                )
            error, may_follow = _settle(options, kind, query, batch, contents if own else None)
        except BaseException:
            # What a job has failed to write must not appear later, if that can be helped. A
            # manifest may be visible though publishing it failed.
            if kind == "batch":
                _forebay.withdraw_commit(path, query, batch)
            raise
        # A manifest that an earlier attempt has left goes first; then the log tells whether it was
        # this batch, or another of its number.
        if error is not None and (own or not may_follow):
            raise error
        if own:
            return


def _contents(staged: Sequence[Staged]) -> tuple[int, int] | None:
    """Return rows and sum of all stages, as the core adds them up."""
    if not staged:
        return None
    rows = sum(contents[0] for _, contents, _ in staged)
    return rows, sum(contents[1] for _, contents, _ in staged) % (1 << 64)


def _holds(
    path: str, query: str, batch: int, contents: tuple[int, int] | None, *, skips: bool
) -> bool:
    """Whether the durable log holds a batch with these contents; with `skips`, or a later one."""
    with forebay.open(path, mode="r") as store:
        return contents is None or _forebay.holds_commit(store, query, batch, contents, skips)


def _settle(
    options: WriteOptions,
    kind: str,
    query: str,
    batch: int,
    contents: tuple[int, int] | None,
) -> tuple[ForebayError | None, bool]:
    """Take a commit up, where nobody else writes the store; else wait until it is dealt with.

    Once it is, the log has to hold the batch with these contents, unless there are none. Return
    what became of it where it is not appended, with what is withdrawn then, and whether another
    commit of the batch may follow.
    """
    path, budget = options.path, options.commit_timeout
    while True:
        began = time.monotonic()
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
        budget -= time.monotonic() - began
        timeout = options.commit_timeout if locked else 0
        state, refusal, held = _forebay.wait_for_commit(path, query, batch, timeout)
        if state in ("pending", "begun"):
            if failure is None and budget > 0 and not (locked and held):
                # Whoever wrote the store has closed it, or died: it is ours to open.
                continue
            if kind == "batch" and _withdraw(path, query, batch):
                state = "withdrawn"
            else:
                state, refusal, _ = _forebay.wait_for_commit(path, query, batch, 0)
        if refusal is not None:
            reason, appended = refusal
            message = f"batch {batch} of query {query} cannot be appended to {path}: {reason}"
            return StoreFailedError(message, reason=reason, appended=appended), not appended
        if state == "gone":
            if contents is not None:
                _check_marker(options, query, batch, contents)
            return None, False
        if failure is not None:
            stopped = _stopped(options, query, batch, state, kind, failure)
            stopped.__cause__ = failure
            return stopped, False
        return _late(options, query, batch, state, kind), False


def _withdraw(path: str, query: str, batch: int) -> bool:
    """Withdraw a commit, unless a part of it is in the log.

    A writer without room begins it again and again: it can be withdrawn in between.
    """
    until = time.monotonic() + _WITHDRAWAL_S
    while not _forebay.withdraw_commit(path, query, batch):
        state, _, _ = _forebay.wait_for_commit(path, query, batch, 0.01)
        if state not in ("pending", "begun") or time.monotonic() > until:
            return False
    return True


def _check_marker(options: WriteOptions, query: str, batch: int, contents: tuple[int, int]) -> None:
    """See that the durable log holds a batch whose manifest is gone.

    It is gone as well where somebody has withdrawn it.
    """
    path = options.path
    try:
        held = _holds(path, query, batch, contents, skips=options.batch_conflict == "skip")
    except (ForebayError, OSError) as error:
        reason = (
            "its manifest is gone, so it is most likely appended, and the log cannot be read to "
            f'make sure: {error}; do not write the rows again before "forebay commits show {path} '
            f'{query}" tells that they are not there'
        )
        message = f"batch {batch} of query {query}: {reason}"
        raise StoreFailedError(message, reason=reason, appended=True) from error
    if held:
        return
    reason = "its manifest is gone, and the log holds no marker of it"
    message = f"batch {batch} of query {query} is not in {path}: {reason}"
    raise StoreFailedError(message, reason=reason, appended=False)


def _what(options: WriteOptions, query: str, batch: int, state: str, kind: str) -> str:
    """Return what becomes of a commit that is not appended as a whole."""
    if state == "withdrawn":
        return "the commit is withdrawn: nothing was written"
    if state == "begun":
        return (
            "it is begun, and the process that writes the store or the next one that opens it ends "
            f'it: do not write the rows again; "forebay commits show {options.path} {query}" tells '
            "how far it is"
        )
    again = ", and the batch that is run again finds it" if kind == "stream" else ""
    return (
        "the commit stays pending: the process that writes the store takes it up, or the next one "
        f"that opens it{again}"
    )


def _stopped(
    options: WriteOptions, query: str, batch: int, state: str, kind: str, failure: ForebayError
) -> ForebayError:
    """Return the error for a commit that this process could not append."""
    cause = str(failure)
    if isinstance(failure, DiskFullError):
        cause = f"no space for {failure.needed} bytes: {failure.free} bytes are free"
    what = _what(options, query, batch, state, kind)
    message = f"batch {batch} of query {query} is not appended to {options.path}: {cause}; {what}"
    return type(failure)(message, **failure._facts)


def _late(options: WriteOptions, query: str, batch: int, state: str, kind: str) -> StoreLockedError:
    """Return the error for a commit that was not taken up in time."""
    pid = _forebay.writer_of(options.path)
    who = "another process, which one is unknown," if pid is None else f"process {pid}"
    message = (
        f"{options.path} is being written by {who} and it has appended nothing of batch {batch} of "
        f"query {query}, nor of another commit, within commitTimeout, {options.commit_timeout:g} "
        f"s: {_what(options, query, batch, state, kind)}"
    )
    return StoreLockedError(message, path=options.path, pid=pid)
