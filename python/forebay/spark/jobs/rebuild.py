"""The job `rebuild`: builds the queues and the index of a store from its log alone.

A first Spark job has a task for each log file. It writes queue entries straight to their places,
which follow from the offsets in the records, and keys to a separate file. Then the driver fills
gaps, and works out how many keys precede each index file. A second job has a task for each of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _forebay
from forebay.errors import StoreExistsError
from forebay.options import Progress
from forebay.spark.jobs.work import grouped, run, tasks_at_once
from forebay.spark.options import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay._forebay import IndexKeys, LaidRange

#: Where a store's new queues and index are built, and where the old ones are moved.
_BUILT, _AWAY = "rebuild.new", "rebuild.old"
_QUEUES = "consumequeue"

#: Bytes of the log, or of index entries, from which on a task is worth its overhead.
_TASK_BYTES_MIN = 64 << 20
#: Cost of indexing a key, expressed in bytes of the log that are processed in the same time.
_KEY_BYTES = 64


@dataclass(frozen=True)
class Rebuild:
    """The result of a rebuild.

    Attributes
    ----------
    path, target
        The store, and where the queues and the index were built.
    replaced
        Whether the store's own queues and index were replaced.
    records, queues, queue_entries
        Number of each.
    fillers
        Queue entries for offsets that have no message.
    index_files, index_entries
        Number of each.
    holes
        Damaged ranges of the log that were skipped: start and end positions.
    log_bytes
        Bytes of the log that were read.
    tasks, seconds
        How many tasks of Spark did it, and how long it took.
    """

    path: str
    target: str
    replaced: bool
    records: int
    queues: int
    queue_entries: int
    fillers: int
    index_files: int
    index_entries: int
    holes: tuple[tuple[int, int], ...]
    log_bytes: int
    tasks: int
    seconds: float

    def _asdict(self) -> dict[str, Any]:
        return asdict(self)


def rebuild(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    index: bool = True,
    adopt: bool = False,
    progress: Progress | None = None,
) -> Rebuild:
    """Build the queues and the index of a store from its log, byte for byte as Forebay does.

    Only the names of index files differ: Forebay names an index file by its time of creation, this
    job by the time of its first key.

    Parameters
    ----------
    spark
        The session.
    path
        Directory of a store that no process writes: a Forebay store that was closed, or a RocketMQ
        store, closed or not. Every worker must reach it, and the target, under this path.
    target
        A new or empty directory for `consumequeue` and `index`. Without it the store's own are
        replaced, under its lock; after a crash in between, the next opening rebuilds them.
    index
        Whether to build the index. If false and there is no target, the store's index is removed,
        and the next writer rebuilds it.
    adopt
        Whether to replace the queues of a store that Forebay did not create.
    progress
        Called with the number of finished tasks and of all tasks; not in a remote session.

    Raises
    ------
    StoreLockedError
        If another process writes the store.
    UnsupportedError
        If Forebay wrote the store and did not close it: opening it for writing once decides where
        its log ends.
    CorruptError
        If the content of a queue cannot be decided range by range: a repeated offset, an
        unexplained gap, or damage in the log of another system. Opening the store, in one process,
        decides it.
    StoreExistsError
        If the target is not empty.

    Examples
    --------
    >>> forebay.spark.rebuild(spark, "events").queue_entries  # doctest: +SKIP
    1000000
    """
    began = time.monotonic()
    root = local("path", path)
    with _place(root, target, adopt=adopt) as (built, lock):
        ranges = _forebay.rebuild_ranges(root, lock is not None)
        groups_wanted = 4 * tasks_at_once(spark)
        lengths = [end - start for start, end in ranges]
        groups = grouped(lengths, groups_wanted, _TASK_BYTES_MIN)
        first = [_Ranges(root, built, [ranges[n] for n in group], index) for group in groups]
        done = run(spark, first, _lay, progress)
        laid = sorted((part for parts in done for part in parts), key=lambda part: part.start)
        merged = _forebay.rebuild_merge(root, built, laid)
        plans = merged.index
        staged = [_Keys(part.start, part.keys) for part in laid]
        weights = [_KEY_BYTES * plan.count for plan in plans]
        groups = grouped(weights, groups_wanted, _TASK_BYTES_MIN)
        second = [_Files(root, built, staged, [plans[n] for n in group]) for group in groups]
        run(spark, second, _build, progress)
        shutil.rmtree(os.path.join(built, "keys"), ignore_errors=True)
        if lock is not None:
            _keep_retired(os.path.join(root, _QUEUES), os.path.join(built, _QUEUES))
            lock.install(built, os.path.join(root, _AWAY), plans)
    return Rebuild(
        path=root,
        target=root if target is None else built,
        replaced=target is None,
        records=merged.records,
        queues=merged.queues,
        queue_entries=merged.queue_entries,
        fillers=merged.fillers,
        index_files=len(plans),
        index_entries=sum(plan.count for plan in plans),
        holes=tuple(merged.holes),
        log_bytes=sum(lengths),
        tasks=len(first) + len(second),
        seconds=time.monotonic() - began,
    )


@contextlib.contextmanager
def _place(
    root: str, target: str | os.PathLike[str] | None, *, adopt: bool
) -> Iterator[tuple[str, _forebay.StoreLock | None]]:
    """Yield a directory to build in, and the store's lock if its own queues are replaced."""
    if target is not None:
        built = local("target", target)
        os.makedirs(built, mode=0o700, exist_ok=True)
        if os.listdir(built):
            message = f"{built} is not empty; rebuild needs a new or empty directory"
            raise StoreExistsError(message, path=built)
        yield built, None
        return
    lock = _forebay.StoreLock(root, adopt)
    built = os.path.join(root, _BUILT)
    try:
        # Undo what an interrupted rebuild has left.
        old, own = os.path.join(root, _AWAY, _QUEUES), os.path.join(root, _QUEUES)
        if os.path.isdir(old) and not os.path.exists(own):
            os.rename(old, own)
        _remove(root)
        os.mkdir(built, mode=0o700)
        yield built, lock
        _remove(root)
    finally:
        lock.release()


def _keep_retired(own: str, built: str) -> None:
    """Link the files of queues whose messages are all retired; only these know their offsets."""
    for folder, _folders, files in os.walk(own):
        name = os.path.relpath(folder, own)
        target = os.path.join(built, name)
        if name.count(os.sep) != 1 or os.path.exists(target):
            continue
        os.makedirs(target, mode=0o700)
        for file in files:
            os.link(os.path.join(folder, file), os.path.join(target, file))


def _remove(root: str) -> None:
    for name in (_BUILT, _AWAY):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(root, name))


@dataclass(frozen=True)
class _Ranges:
    path: str
    target: str
    ranges: list[tuple[int, int]]
    index: bool


class _Keys(NamedTuple):
    """The keys of a range of the log: where the range starts, and their number."""

    start: int
    keys: int


@dataclass(frozen=True)
class _Files:
    path: str
    target: str
    staged: list[_Keys]
    plans: list[IndexKeys]


def _lay(task: _Ranges) -> list[LaidRange]:
    token = uuid.uuid4().hex
    return _forebay.rebuild_lay(task.path, task.target, task.ranges, task.index, token)


def _build(task: _Files) -> None:
    token = uuid.uuid4().hex
    _forebay.rebuild_index(task.path, task.target, task.staged, task.plans, token)
