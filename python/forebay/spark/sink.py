"""Writing: ``df.write.format("forebay")`` and ``df.writeStream.format("forebay")``.

Tasks stage their rows beside the store (`forebay.spark.stage`). The driver commits: it writes a
manifest that names the stages, and the process that writes the store appends them, each commit
exactly once. If no other process has the store open for writing, the driver opens it and appends;
otherwise it waits for that process.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
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
from forebay.spark.errors import invalid
from forebay.spark.stage import StageMessage, stage
from forebay.spark.write import COLUMNS, WriteOptions, query_of

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from forebay._forebay import Contents, Staged

#: How long a job tries to withdraw its commit before it gives up, in seconds.
_WITHDRAWAL_S = 2.0
#: The local property of a task that holds the id of a stream's query, the same in all its runs.
_QUERY_ID = "sql.streaming.queryId"

_log = logging.getLogger(__name__)


def _stage(
    options: WriteOptions, query: str, batches: Iterator[pyarrow.RecordBatch]
) -> StageMessage:
    """Stage the rows of a task, without ignored columns."""
    if options.ignore_extra:
        batches = (
            batch.select([name for name in batch.schema.names if name in COLUMNS])
            for batch in batches
        )
    return stage(options.path, query, options.topic, batches)


class ForebayWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one commit.

    The commit is a batch of the application that the options name. If they name none, it is the
    only batch of a query with a random name.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        found = options.transaction
        self._query = uuid.uuid4().hex if found is None else query_of(found[0])

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return _stage(self._options, self._query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the staged rows of all tasks; they are durable on return.

        A version of an application is appended unless the log holds it or a later one.

        Raises
        ------
        StoreLockedError
            If the process that writes the store has not appended the commit in time. The error says
            what happens next. A commit that has not begun is withdrawn: nothing was or will be
            written. A commit that has begun is finished by that process, or by the next one that
            opens the store. The commit of a version stays, and a repeated write finds it.
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
        if options.batch_conflict == "skip" and self._is_in_log_with_other_rows(version, staged):
            _log.warning(
                "version %d of txnAppId %r counts as done, because %s holds it or a later one with "
                "other rows; these %d rows were not written",
                version,
                app,
                options.path,
                _forebay.contents_of(staged).rows,
            )

    def _is_in_log_with_other_rows(self, version: int, staged: list[Staged]) -> bool:
        """Return whether the log holds the version with other rows; False if that is unknown."""
        path, contents = self._options.path, _forebay.contents_of(staged)
        try:
            return not _holds(path, self._query, version, contents, skips=False)
        except (ForebayError, OSError):
            # The write is done; only the warning depends on this.
            return False

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks have staged, unless a commit that has begun names it."""
        _discard(self._options.path, messages)


class ForebayStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        if options.transaction is not None:
            reason = "only batch writes have this option; Spark numbers a stream's batches itself"
            raise invalid("txnAppId", options.transaction[0], reason)
        self._options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(_QUERY_ID)
        if not query:
            message = f"cannot write exactly once: the stream's task has no property {_QUERY_ID}"
            raise UnsupportedError(message)
        return _stage(self._options, query, iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Append the staged rows, unless the log holds the batch; they are durable on return.

        Raises
        ------
        StoreLockedError
            If the process that writes the store has not appended the commit in time. The commit
            stays: that process, or the next one that opens the store, will append it, and a
            repeated batch finds it.
        StoreFailedError
            If the log holds the batch with other rows: the checkpoint was rolled back, copied or
            forked. The option ``batchConflict`` can select another outcome.
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
        """Delete what the tasks have staged, unless a commit names it."""
        _discard(self._options.path, messages)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    found = [m.staged for m in messages if isinstance(m, StageMessage)]
    return [staged for staged in found if staged is not None]


def _discard(path: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    names: dict[str, list[str]] = {}
    for message in messages:
        if isinstance(message, StageMessage) and message.staged is not None:
            names.setdefault(message.query, []).append(message.staged.name)
    for query, stages in names.items():
        _forebay.discard_stages(path, query, stages)


def _commit(options: WriteOptions, kind: str, query: str, batch: int, staged: list[Staged]) -> None:
    """Publish a manifest, and make sure that its commit is processed."""
    path, own = options.path, not staged
    contents = _forebay.contents_of(staged) if staged else None
    while True:
        try:
            if staged:
                own = _forebay.publish_commit(
                    path, query, batch, kind, staged, options.batch_conflict
                )
            error, may_follow = _process(options, kind, query, batch, contents if own else None)
        except BaseException:
            # The rows of a failed job should not appear later: withdraw the commit. The manifest
            # may be visible even if publishing it failed.
            if kind == "batch":
                _forebay.withdraw_commit(path, query, batch)
            raise
        # A manifest of an earlier attempt is processed first. Then the log shows whether it was
        # this batch, or another one with the same number.
        if error is not None and (own or not may_follow):
            raise error
        if own:
            return


def _holds(path: str, query: str, batch: int, contents: Contents | None, *, skips: bool) -> bool:
    """Return whether the durable log holds a batch with these contents; with `skips`, or a later.

    Contents of None are always held.
    """
    with forebay.open(path, mode="r") as store:
        return contents is None or _forebay.holds_commit(store, query, batch, contents, skips)


def _process(
    options: WriteOptions,
    kind: str,
    query: str,
    batch: int,
    contents: Contents | None,
) -> tuple[ForebayError | None, bool]:
    """Process a commit if no other process writes the store; else wait until that one has.

    After that the log must hold the batch with these contents, unless `contents` is None. Return
    the error if the commit was not appended, and whether another commit of the batch may follow.
    A batch write that is too late is withdrawn if possible, and the error says so.
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
                    # The error may be about another query.
                    failure = error
        except StoreLockedError:
            locked = True
        budget -= time.monotonic() - began
        timeout = options.commit_timeout if locked else 0
        progress = _forebay.wait_for_commit(path, query, batch, timeout)
        state = progress.state
        if state in ("pending", "begun"):
            if failure is None and budget > 0 and not (locked and progress.held):
                # The process that wrote the store has closed it or died: open it here.
                continue
            if kind == "batch" and _withdraw(path, query, batch):
                state = "withdrawn"
            else:
                progress = _forebay.wait_for_commit(path, query, batch, 0)
                state = progress.state
        if progress.reason is not None:
            reason, appended = progress.reason, progress.appended
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

    A writer whose disk is full begins it again and again; it can be withdrawn in between.
    """
    until = time.monotonic() + _WITHDRAWAL_S
    while not _forebay.withdraw_commit(path, query, batch):
        state = _forebay.wait_for_commit(path, query, batch, 0.01).state
        if state not in ("pending", "begun") or time.monotonic() > until:
            return False
    return True


def _check_marker(options: WriteOptions, query: str, batch: int, contents: Contents) -> None:
    """Check that the durable log holds a batch whose manifest is gone.

    The manifest is also gone if another process has withdrawn the commit.
    """
    path = options.path
    try:
        held = _holds(path, query, batch, contents, skips=options.batch_conflict == "skip")
    except (ForebayError, OSError) as error:
        reason = (
            "its manifest is gone, so it was most likely appended, but the log cannot be read to "
            f'make sure: {error}; do not write the rows again until "forebay commits show {path} '
            f'{query}" shows that they are not in the log'
        )
        message = f"batch {batch} of query {query}: {reason}"
        raise StoreFailedError(message, reason=reason, appended=True) from error
    if held:
        return
    reason = "its manifest is gone, and the log holds no marker of it"
    message = f"batch {batch} of query {query} is not in {path}: {reason}"
    raise StoreFailedError(message, reason=reason, appended=False)


def _what(options: WriteOptions, query: str, batch: int, state: str, kind: str) -> str:
    """Describe what happens to a commit that is not appended as a whole."""
    if state == "withdrawn":
        return "the commit was withdrawn; nothing was written"
    if state == "begun":
        return (
            "the commit has begun, and the process that writes the store, or the next one that "
            "opens it, will finish it; do not write the rows again; "
            f'"forebay commits show {options.path} {query}" shows its progress'
        )
    again = ", and a repeated batch will find it" if kind == "stream" else ""
    return (
        "the commit stays pending: the process that writes the store, or the next one that opens "
        f"it, will append it{again}"
    )


def _stopped(
    options: WriteOptions, query: str, batch: int, state: str, kind: str, failure: ForebayError
) -> ForebayError:
    """Return the error for a commit that this process could not append."""
    cause = str(failure)
    if isinstance(failure, DiskFullError):
        cause = f"no space for {failure.needed} bytes, {failure.free} bytes are free"
    what = _what(options, query, batch, state, kind)
    message = f"batch {batch} of query {query} was not appended to {options.path}: {cause}; {what}"
    return type(failure)(message, **failure._facts)


def _late(options: WriteOptions, query: str, batch: int, state: str, kind: str) -> StoreLockedError:
    """Return the error for a commit that was not processed in time."""
    pid = _forebay.writer_of(options.path)
    who = "another process" if pid is None else f"process {pid}"
    message = (
        f"{options.path} is being written by {who}, which appended neither batch {batch} of query "
        f"{query} nor another commit within commitTimeout ({options.commit_timeout:g} s): "
        f"{_what(options, query, batch, state, kind)}"
    )
    return StoreLockedError(message, path=options.path, pid=pid)
